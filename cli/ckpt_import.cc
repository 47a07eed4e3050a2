// `braid ckpt import`: arrays of other programs as a checkpoint that a job can be resumed from. Values keep
// their type and shape; which of them the job's model has is found out when it is resumed.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <cstring>
#include <map>
#include <regex>

#include "base/env.h"
#include "base/error.h"
#include "cli/ckpt_tools.h"
#include "engine/ir/shape.h"

namespace braid::cli {
namespace {

struct CkptImportOptions {
  std::string source, out, name = "imported";
  std::vector<std::string> renames, only;
  std::int64_t step = -1;
};

using Names = std::vector<std::pair<std::string, std::string>>;

Names renamed(Names names, const std::vector<std::string>& rules) {
  for (const std::string& rule : rules) {
    const std::size_t equals = rule.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InvalidArgument("--rename " + rule + ": expected <regular expression>=<replacement>");
    try {
      const std::regex pattern(rule.substr(0, equals));
      for (auto& [from, to] : names) to = std::regex_replace(to, pattern, rule.substr(equals + 1));
    } catch (const std::regex_error& e) {
      throw InvalidArgument("--rename " + rule + ": " + e.what());
    }
  }
  std::erase_if(names, [](const auto& name) { return name.second.empty(); });
  return names;
}

Names source_names(const ValueSource& source) {
  if (std::string_view(source.kind()) == "tensorflow") return tensorflow_names(source);
  Names names;
  for (const auto& [name, info] : source.values()) names.emplace_back(name, name);
  return names;
}

/// The step that the arrays themselves tell, or the checkpoint's name.
std::uint64_t step_of(const ValueSource& source, const Names& names) {
  if (const auto meta = source.meta()) return meta->step;
  for (const char* counter : {"global_step", "iter", "iteration"})
    for (const auto& [from, to] : names) {
      const ValueInfo& info = source.values().at(from);
      const std::string last = to.substr(to.rfind('/') + 1);
      if (last != counter || info.dtype != DType::Int64 || !info.shape.empty()) continue;
      std::int64_t step = 0;
      std::memcpy(&step, source.read(from).data(), sizeof(step));
      if (step >= 0) return static_cast<std::uint64_t>(step);
    }
  const std::string name = source.path().filename().string();  // "model.ckpt-120"
  const std::size_t dash = name.rfind('-');
  const auto number = dash == std::string::npos ? std::nullopt : parse_int(name.substr(dash + 1));
  return number && *number >= 0 ? static_cast<std::uint64_t>(*number) : 0;
}

/// Goes with what could not be written; once it is a checkpoint, there is nothing of this name.
struct Unfinished {
  std::filesystem::path directory;
  ~Unfinished() {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
};

int import_checkpoint(const CkptImportOptions& options) {
  const auto source = ValueSource::open(options.source);
  Names names = renamed(source_names(*source), options.renames);
  if (!options.only.empty())
    std::erase_if(names, [&](const auto& name) {
      return std::none_of(options.only.begin(), options.only.end(),
                          [&](const std::string& prefix) { return name.second.starts_with(prefix); });
    });
  if (names.empty()) throw InvalidArgument("there is nothing to import from '" + options.source + "'");
  std::map<std::string, std::string> origin;
  for (const auto& [from, to] : names)
    if (const auto [at, fresh] = origin.emplace(to, from); !fresh)
      throw InvalidArgument("'" + at->second + "' and '" + from + "' would both become '" + to + "'");
  const std::uint64_t step =
      options.step >= 0 ? static_cast<std::uint64_t>(options.step) : step_of(*source, names);

  const CheckpointStore store(options.out);
  if (std::filesystem::exists(options.out))
    for (const CheckpointInfo& info : store.list())
      if (info.meta.step == step)
        throw InvalidArgument("'" + info.directory.string() +
                              "' is there already; --step gives another number");
  CheckpointStore out(options.out);
  const auto temporary = out.begin(step);
  const Unfinished unfinished{temporary};
  ShardWriter shard(temporary / "worker-0.shard");
  for (const auto& [to, from] : origin) {
    const ValueInfo& info = source->values().at(from);
    const std::vector<std::byte> data = source->read(from);
    shard.add({to, info.dtype, info.shape, data.size()}, data);
    fmt::print("{:<40} {:<9} {:<16}{}\n", to, dtype_name(info.dtype), Shape(info.shape).to_string(),
               from == to ? "" : " from " + from);
  }
  CheckpointMeta meta;
  meta.step = step;
  meta.run = out.begin_run(RunStart::Resume);  // the run that is there, or one of its own
  meta.job_name = options.name;
  meta.cursors["worker-0"] = "ticket=" + std::to_string(step);
  meta.attributes["imported_from"] = std::filesystem::path(options.source).filename().string();
  const CheckpointInfo info = out.commit(temporary, meta, {shard.finish()});
  fmt::print("{}: {} arrays, step {}\n", info.directory.string(), origin.size(), step);
  return kExitSuccess;
}

}  // namespace

void add_ckpt_import(CLI::App& ckpt, Action& action) {
  auto options = std::make_shared<CkptImportOptions>();
  CLI::App* sub = ckpt.add_subcommand(
      "import",
      "Make a checkpoint of an .npz file or a TensorFlow V2 checkpoint, for `braid train --resume`");
  sub->add_option("SRC", options->source,
                  "FILE.npz, or a TensorFlow V2 checkpoint: its prefix, a Saver's directory, or a SavedModel")
      ->required();
  sub->add_option("--out", options->out, "A job's checkpoint.directory")->required();
  sub->add_option("--step", options->step,
                  "Steps that are in the values; default: what global_step says, else 0")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--rename", options->renames,
                  "<regular expression>=<replacement> of each match in a name, $1: the first group; an empty "
                  "name leaves the array out.\nMay be repeated")
      ->allow_extra_args(false);
  sub->add_option("--only", options->only, "Prefix of the names (after renaming) to take; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--name", options->name, "Of the job, in the manifest")->capture_default_str();
  sub->callback([options, &action] { action = [options] { return import_checkpoint(*options); }; });
}

}  // namespace braid::cli
