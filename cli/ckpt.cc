// `braid ckpt`: looks into checkpoints.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/checkpoint.h"
#include "base/error.h"
#include "cli/commands.h"
#include "engine/ir/shape.h"

namespace braid::cli {
namespace {

int list(const std::string& directory) {
  if (!std::filesystem::is_directory(directory))
    throw InvalidArgument("'" + directory + "' is not a directory");
  const auto checkpoints = CheckpointStore(directory).list();
  if (checkpoints.empty()) fmt::print("no whole checkpoint in '{}'\n", directory);
  for (const CheckpointInfo& info : checkpoints) {
    std::uint64_t bytes = 0;
    for (const ShardInfo& shard : info.shards) bytes += shard.bytes;
    fmt::print("step {:>10}  {:>3} shards  {:>12} bytes  {}\n", info.meta.step, info.shards.size(), bytes,
               info.directory.string());
  }
  return kExitSuccess;
}

int show(const std::string& directory) {
  const CheckpointInfo info = read_checkpoint(directory);
  fmt::print("job {}  step {}  generation {}  plan {:016x}\n", info.meta.job_name, info.meta.step,
             info.meta.generation, info.meta.plan_hash);
  for (const auto& [name, value] : info.meta.attributes) fmt::print("{}: {}\n", name, value);
  for (const auto& [name, value] : info.meta.metrics) fmt::print("{}: {:.6g}\n", name, value);
  for (const auto& [worker, cursor] : info.meta.cursors) fmt::print("cursor of {}: {}\n", worker, cursor);
  for (const ShardInfo& shard : info.shards) {
    fmt::print("{} ({} bytes)\n", shard.file, shard.bytes);
    const ShardReader reader(info.directory / shard.file);
    for (const CheckpointEntry& entry : reader.entries())
      fmt::print("  {:<40} {:<9} {:<18} {:>12} bytes\n", entry.name, dtype_name(entry.dtype),
                 Shape(entry.shape).to_string(), entry.bytes);
  }
  return kExitSuccess;
}

}  // namespace

void add_ckpt(CLI::App& app, Action& action) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look into checkpoints");
  auto directory = std::make_shared<std::string>();
  CLI::App* ls = ckpt->add_subcommand("ls", "List the whole checkpoints of a directory, oldest first");
  ls->add_option("DIR", *directory, "A job's checkpoint.directory")->required();
  ls->callback([directory, &action] { action = [directory] { return list(*directory); }; });
  CLI::App* one = ckpt->add_subcommand("show", "Show one checkpoint: step, cursors, shards and every entry");
  one->add_option("DIR", *directory, "One step-... directory")->required();
  one->callback([directory, &action] { action = [directory] { return show(*directory); }; });
}

}  // namespace braid::cli
