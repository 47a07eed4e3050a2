// The environment variables of multi-stream TensorFlow. One that is set to nothing counts as not set.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/env.h"
#include "base/error.h"
#include "worker/job/settings.h"
#include "worker/job/text_proto.h"

namespace braid::worker {
namespace {

constexpr int kMaxGroups = 64;
constexpr int kMaxLaunchThreads = 256;

class EnvironmentReader {
 public:
  EnvironmentReader(const launch::Environment& environment, Settings& settings)
      : environment_(environment), settings_(settings) {}

  const std::string* text(const char* name) const {
    const std::string* value = launch::find_variable(environment_, name);
    return value && !value->empty() ? value : nullptr;
  }
  std::optional<bool> flag(const char* name) const {
    const std::string* value = text(name);
    if (!value) return std::nullopt;
    if (const auto parsed = parse_bool(*value)) return parsed;
    throw InvalidArgument(fmt::format("{}={}: expected true or false", name, *value));
  }
  std::optional<int> count(const char* name, int min, int max) const {
    const std::string* value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = parse_int(*value);
    if (parsed && *parsed >= min && *parsed <= max) return static_cast<int>(*parsed);
    throw InvalidArgument(fmt::format("{}={}: expected a number from {} to {}", name, *value, min, max));
  }

  void set(const char* name, std::string assignment) {
    settings_.job.push_back({std::move(assignment), name});
  }
  void note_group(const char* name, std::string_view what) {
    settings_.group_notes.push_back(fmt::format("{}: {}", name, what));
  }
  /// REQUIRES: the variable is set.
  void warn(const char* name, std::string_view why) {
    settings_.warnings.push_back(fmt::format("{}={} has no effect: {}", name, *text(name), why));
  }
  void warn_if_set(const char* name, std::string_view why) {
    if (text(name)) warn(name, why);
  }

 private:
  const launch::Environment& environment_;
  Settings& settings_;
};

/// How nodes go onto streams.
void read_node_level(EnvironmentReader& reader) {
  if (const auto reduce = reader.flag("TF_REDUCE_STREAM_WAIT"))
    reader.set("TF_REDUCE_STREAM_WAIT", fmt::format("streams.keep_all_events={}", !*reduce));
  if (const auto forward = reader.flag("TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION"))
    reader.set("TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION",
               fmt::format("streams.forward_propagation={}", *forward));
  if (const std::string* file = reader.text("TF_STREAM_FROM_FILE"))
    reader.set("TF_STREAM_FROM_FILE", "streams.rules_file=" + text_value(*file));
}

constexpr std::array kNodeLevelVariables = {
    "TF_REDUCE_STREAM_WAIT", "TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION", "TF_STREAM_FROM_FILE"};
constexpr std::array kGroupVariables = {"TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT",
                                        "TF_GPU_STREAM_GROUP_SHARE_MEM_POOL"};

void read_groups(EnvironmentReader& reader, GroupSettings& groups) {
  if (const std::string* mode = reader.text("TF_GPU_THREAD_MODE")) {
    std::string lower = *mode;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (lower == "global")
      groups.launch = LaunchThreads::Pools;
    else if (lower == "gpu_private")
      groups.launch = LaunchThreads::Private;
    else if (lower == "gpu_shared")
      groups.launch = LaunchThreads::Shared;
    else
      throw InvalidArgument(
          fmt::format("TF_GPU_THREAD_MODE={}: expected global, gpu_private or gpu_shared", *mode));
    reader.note_group("TF_GPU_THREAD_MODE", groups.launch == LaunchThreads::Pools     ? "--launch pools"
                                            : groups.launch == LaunchThreads::Private ? "--launch private"
                                                                                      : "--launch shared");
  }
  groups.launch_threads = reader.count("TF_GPU_THREAD_COUNT", 1, kMaxLaunchThreads);
  if (groups.launch_threads)
    reader.note_group("TF_GPU_THREAD_COUNT", fmt::format("--launch-threads {}", *groups.launch_threads));
  groups.share_memory_limit = reader.flag("TF_GPU_STREAM_GROUP_SHARE_MEM_POOL");
  if (groups.share_memory_limit)
    reader.note_group("TF_GPU_STREAM_GROUP_SHARE_MEM_POOL",
                      *groups.share_memory_limit ? "one limit for all groups" : "--split-memory");
}

}  // namespace

void read_environment_settings(const launch::Environment& environment, SettingsFor purpose,
                               Settings& settings) {
  EnvironmentReader reader(environment, settings);
  const bool inference = purpose == SettingsFor::Inference;
  const auto count = reader.count("TF_GPU_STREAM_GROUP_COUNT", 1, kMaxGroups);
  const bool node_level = reader.flag("TF_NODE_LEVEL_MULTISTREAM").value_or(false);
  if (count && node_level)
    reader.set("TF_GPU_STREAM_GROUP_COUNT", fmt::format("streams.count={}", *count));
  else if (count && inference) {
    settings.groups.groups = count;
    reader.note_group("TF_GPU_STREAM_GROUP_COUNT", fmt::format("--groups {}", *count));
  } else if (count)
    reader.warn("TF_GPU_STREAM_GROUP_COUNT",
                "without TF_NODE_LEVEL_MULTISTREAM=true it counts the stream groups of `braid infer`");
  if (node_level) {
    read_node_level(reader);
    const bool names_any = std::any_of(kNodeLevelVariables.begin(), kNodeLevelVariables.end(),
                                       [&](const char* name) { return reader.text(name) != nullptr; });
    if (!count && !names_any)
      reader.warn("TF_NODE_LEVEL_MULTISTREAM", "TF_GPU_STREAM_GROUP_COUNT does not say how many streams");
  } else {
    for (const char* name : kNodeLevelVariables)
      reader.warn_if_set(name, "TF_NODE_LEVEL_MULTISTREAM is not true");
  }
  if (const auto merge = reader.flag("TF_GPU_STREAM_MERGE"))
    reader.set("TF_GPU_STREAM_MERGE", fmt::format("streams.merge_copies={}", *merge));
  if (const auto growth = reader.flag("TF_FORCE_GPU_ALLOW_GROWTH"))
    reader.set("TF_FORCE_GPU_ALLOW_GROWTH", fmt::format("runtime.device_memory_up_front={}", !*growth));
  if (inference) {
    read_groups(reader, settings.groups);
  } else {
    for (const char* name : kGroupVariables)
      reader.warn_if_set(name,
                         "a training step has one issuing thread and one memory; it is for `braid infer`");
  }
  reader.warn_if_set("TF_GPU_CONTEXT_COUNT",
                     "all streams of a process share one context, whose multiprocessors streams.partition "
                     "shares out");
  reader.warn_if_set(
      "TF_PER_STREAM_HOST_ALLOCATOR",
      "each group's page-locked memory is allocated before its first step, and no step allocates");
  reader.warn_if_set("TF_SEGMENT_OWN_CONST", "groups always share one copy of constants and variables");
}

std::optional<LogLevel> log_level_setting(const launch::Environment& environment) {
  const std::string* own = launch::find_variable(environment, "BRAID_LOG");
  if (own && !own->empty()) {
    constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warning", "error", "off"};
    if (std::find(kNames.begin(), kNames.end(), *own) == kNames.end())
      throw InvalidArgument("BRAID_LOG='" + *own + "': known are debug, info, warning, error, off");
    return std::nullopt;
  }
  Settings unused;
  const auto level = EnvironmentReader(environment, unused).count("TF_CPP_MIN_LOG_LEVEL", 0, 3);
  if (!level) return std::nullopt;
  // At 3 only what ends the process would be said, and that is logged as an error here.
  constexpr std::array kLevels = {LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Error};
  return kLevels[static_cast<std::size_t>(*level)];
}

}  // namespace braid::worker
