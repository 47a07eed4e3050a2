// A text ConfigProto as fields of a job.
#include <fmt/format.h>

#include "base/error.h"
#include "proto/config.pb.h"
#include "worker/job/settings.h"
#include "worker/job/text_proto.h"

namespace braid::worker {
namespace {

class ConfigReader {
 public:
  ConfigReader(std::string_view source, Settings& settings) : source_(source), settings_(settings) {}

  void set(std::string_view field, std::string assignment) {
    settings_.job.push_back({std::move(assignment), place(field)});
  }
  void note_group(std::string_view field, std::string_view what) {
    settings_.group_notes.push_back(fmt::format("{}: {}", place(field), what));
  }
  void warn(std::string_view field, std::string_view why) {
    settings_.warnings.push_back(fmt::format("{} has no effect: {}", place(field), why));
  }
  [[noreturn]] void refuse(std::string_view field, std::string_view why) const {
    throw InvalidArgument(fmt::format("{}: {}", place(field), why));
  }
  /// A count of which 0 means "as it is".
  bool given(std::string_view field, int value) const {
    if (value < 0) refuse(field, fmt::format("must not be negative, got {}", value));
    return value > 0;
  }

 private:
  std::string place(std::string_view field) const { return fmt::format("{}: {}", source_, field); }

  const std::string_view source_;
  Settings& settings_;
};

std::string_view policy_of(proto::MultiStreamPartitionPolicy policy) {
  switch (policy) {
    case proto::USER_DEFINED_PARTITION:
      return "USER";
    case proto::EMBEDDING_GRAPH_PARTITION:
      return "EMBEDDING";
    case proto::FULL_GRAPH_PARTITION:
      return "FULL";
    default:
      return "NONE";
  }
}

void read_streams(const proto::RewriterConfig& config, ConfigReader& reader) {
  constexpr const char* kUse = "graph_options.rewrite_options.use_multi_stream";
  constexpr const char* kOptions = "graph_options.rewrite_options.multi_stream_opts";
  switch (config.use_multi_stream()) {
    case proto::RewriterConfig::ON:
      break;
    case proto::RewriterConfig::OFF:
      reader.set(kUse, "streams.count=1");
      [[fallthrough]];
    case proto::RewriterConfig::DEFAULT:
      if (config.has_multi_stream_opts()) reader.warn(kOptions, "use_multi_stream is not ON");
      return;
    default:
      reader.refuse(kUse, "ON, OFF and DEFAULT are known, got " +
                              proto::RewriterConfig::Toggle_Name(config.use_multi_stream()));
  }
  const proto::MultiStreamOptions& options = config.multi_stream_opts();
  if (options.multi_stream_num() < 1 || options.multi_stream_num() > 64)
    reader.refuse(kUse, fmt::format("ON needs multi_stream_opts.multi_stream_num from 1 to 64, got {}",
                                    options.multi_stream_num()));
  reader.set(kOptions, fmt::format("streams.count={}", options.multi_stream_num()));
  if (options.has_partition_policy())
    reader.set(kOptions, fmt::format("streams.policy={}", policy_of(options.partition_policy())));
}

void read_gpu(const proto::GPUOptions& gpu, ConfigReader& reader) {
  if (gpu.has_per_process_gpu_memory_fraction()) {
    constexpr const char* kField = "gpu_options.per_process_gpu_memory_fraction";
    const double fraction = gpu.per_process_gpu_memory_fraction();
    if (!(fraction >= 0 && fraction <= 1))
      reader.refuse(
          kField, fmt::format("must be between 0 and 1, got {}; there is no unified memory here", fraction));
    reader.set(kField, fmt::format("runtime.device_memory_fraction={}", fraction));
  }
  if (gpu.has_visible_device_list())
    reader.set("gpu_options.visible_device_list",
               "runtime.visible_device_list=" + text_value(gpu.visible_device_list()));
  if (gpu.has_allow_growth())
    reader.set("gpu_options.allow_growth",
               fmt::format("runtime.device_memory_up_front={}", !gpu.allow_growth()));
}

void read_pools(const proto::ConfigProto& config, bool inference, ConfigReader& reader, Settings& settings) {
  for (const auto& pool : config.session_inter_op_thread_pool()) {
    constexpr const char* kField = "session_inter_op_thread_pool";
    if (!inference) {
      reader.warn(kField, "a step has a thread for each of its streams; the pools are for `braid infer`");
      break;
    }
    const bool given = reader.given(kField, pool.num_threads());
    settings.groups.pools.push_back({given ? pool.num_threads() : 1, pool.global_name()});
    reader.note_group(kField, fmt::format("launch pool {} of {} thread{}", settings.groups.pools.size() - 1,
                                          settings.groups.pools.back().threads,
                                          settings.groups.pools.back().threads == 1 ? "" : "s"));
  }
  for (const auto& pool : config.session_stage_subgraph_thread_pool()) {
    constexpr const char* kField = "session_stage_subgraph_thread_pool";
    if (inference) {
      reader.warn(kField, "requests are not staged");
      break;
    }
    reader.given(kField, pool.inter_op_threads_num());
    reader.given(kField, pool.intra_op_threads_num());
    reader.set(kField, fmt::format("staging.{}={}", kField, pool.ShortDebugString()));
  }
}

}  // namespace

void read_config_settings(std::string_view text, std::string_view source, SettingsFor purpose,
                          Settings& settings) {
  proto::ConfigProto config;
  parse_text(text, source, config);
  ConfigReader reader(source, settings);
  const bool inference = purpose == SettingsFor::Inference;
  read_streams(config.graph_options().rewrite_options(), reader);
  if (config.graph_options().optimizer_options().has_stage_multi_stream()) {
    constexpr const char* kField = "graph_options.optimizer_options.stage_multi_stream";
    const bool on = config.graph_options().optimizer_options().stage_multi_stream();
    if (inference)
      reader.warn(kField, "requests are not staged");
    else
      reader.set(kField, fmt::format("staging.stage_multi_stream={}", on));
  }
  read_pools(config, inference, reader, settings);
  read_gpu(config.gpu_options(), reader);
  if (reader.given("intra_op_parallelism_threads", config.intra_op_parallelism_threads()))
    reader.set("intra_op_parallelism_threads",
               fmt::format("runtime.intra_op_threads={}", config.intra_op_parallelism_threads()));
  if (config.inter_op_parallelism_threads() != 0)  // 0 and -1 leave the choice, or the caller's thread
    reader.warn("inter_op_parallelism_threads", "every stream of the host has one thread of its own");
  if (config.has_allow_soft_placement() && !config.allow_soft_placement())
    reader.set("allow_soft_placement", "runtime.soft_placement=false");
  if (config.log_device_placement()) reader.set("log_device_placement", "runtime.log_device_placement=true");
}

}  // namespace braid::worker
