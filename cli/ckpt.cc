// `braid ckpt`: looks into checkpoints; export, import and diff have files of their own.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/checkpoint.h"
#include "base/error.h"
#include "cli/ckpt_tools.h"
#include "cli/commands.h"
#include "engine/ir/shape.h"

namespace braid::cli {
namespace {

int list(const std::string& directory) {
  if (!std::filesystem::is_directory(directory))
    throw InvalidArgument("'" + directory + "' is not a directory");
  const auto checkpoints = CheckpointStore(directory).list();
  if (checkpoints.empty()) fmt::print("no complete checkpoint in '{}'\n", directory);
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointInfo& info = checkpoints[i];
    if (i == 0 || !info.meta.run.same_as(checkpoints[i - 1].meta.run))
      fmt::print("{} (job {}):\n", info.meta.run.describe(), info.meta.job_name);
    std::uint64_t bytes = 0;
    for (const ShardInfo& shard : info.shards) bytes += shard.bytes;
    std::string metrics;
    for (const auto& [name, value] : info.meta.metrics) metrics += fmt::format("  {} {:.6g}", name, value);
    fmt::print("step {:>10}  {:>3} shards  {:>12} bytes  {}{}\n", info.meta.step, info.shards.size(), bytes,
               info.directory.string(), metrics);
  }
  const auto current = CheckpointStore(directory).current_run();
  if (current && (checkpoints.empty() || !current->same_as(checkpoints.back().meta.run)))
    fmt::print("{}: no complete checkpoint yet\n", current->describe());
  return kExitSuccess;
}

/// What is no checkpoint of ours: names, types, shapes.
int show_values(const std::string& path, bool verify) {
  const auto source = ValueSource::open(path);
  for (const auto& [name, info] : source->values()) {
    if (verify) source->read(name);
    fmt::print("{:<60} {:<9} {}\n", name, dtype_name(info.dtype), Shape(info.shape).to_string());
  }
  fmt::print("{}: {}, {} arrays{}\n", path, source->kind(), source->values().size(),
             verify ? ", each matches its CRC" : "");
  return kExitSuccess;
}

int show(const std::string& directory, bool verify) {
  if (!std::filesystem::is_directory(directory) || is_tensorflow_directory(directory))
    return show_values(directory, verify);
  const CheckpointInfo info = checkpoint_at(directory);
  fmt::print("{}\n", info.directory.string());
  fmt::print("job {}  step {}  generation {}  plan {:016x}\n", info.meta.job_name, info.meta.step,
             info.meta.generation, info.meta.plan_hash);
  fmt::print("{}{}\n", info.meta.run.describe(), info.meta.run.id.empty() ? "" : ", id " + info.meta.run.id);
  for (const auto& [name, value] : info.meta.attributes)
    if (!name.starts_with("shape/")) fmt::print("{}: {}\n", name, value);
  for (const auto& [name, value] : info.meta.metrics) fmt::print("{}: {:.6g}\n", name, value);
  for (const auto& [worker, cursor] : info.meta.cursors) fmt::print("cursor of {}: {}\n", worker, cursor);
  for (const ShardInfo& shard : info.shards) {
    fmt::print("{} ({} bytes)\n", shard.file, shard.bytes);
    const ShardReader reader(info.directory / shard.file);
    if (verify) reader.verify();
    for (const CheckpointEntry& entry : reader.entries())
      fmt::print("  {:<40} {:<9} {:<18} {:>12} bytes\n", entry.name, dtype_name(entry.dtype),
                 Shape(entry.shape).to_string(), entry.bytes);
  }
  if (verify) fmt::print("every block matches its CRC\n");
  return kExitSuccess;
}

}  // namespace

void add_ckpt(CLI::App& app, Action& action) {
  CLI::App* ckpt = app.add_subcommand(
      "ckpt", "Look into checkpoints, compare them, and exchange them with NumPy and TensorFlow");
  auto directory = std::make_shared<std::string>();
  auto verify = std::make_shared<bool>(false);
  CLI::App* ls =
      ckpt->add_subcommand("ls", "List the complete checkpoints of a directory by run, oldest first");
  ls->add_option("DIR", *directory, "A job's checkpoint.directory")->required();
  ls->callback([directory, &action] { action = [directory] { return list(*directory); }; });
  CLI::App* one = ckpt->add_subcommand("show", "Show one checkpoint: step, cursors, shards and every entry");
  one->add_option("DIR", *directory,
                  "A step-... directory, or a directory of them (the newest counts); or an .npz file, or a "
                  "TensorFlow V2 checkpoint: its prefix, a "
                  "Saver's directory or a SavedModel")
      ->required();
  one->add_flag("--verify", *verify, "Read everything and check the CRC of every block");
  one->callback(
      [directory, verify, &action] { action = [directory, verify] { return show(*directory, *verify); }; });
  add_ckpt_diff(*ckpt, action);
  add_ckpt_export(*ckpt, action);
  add_ckpt_import(*ckpt, action);
}

}  // namespace braid::cli
