// What each stream policy makes of three models of many branches on one GPU, whose builders say nothing about
// streams: as one captured graph, with 1, 2, 4 and 8 streams, siblings batched or not.
//
// Each row: step time (median of interleaved rounds, two steps in flight) and its ratio to one stream of the
// same batching, overlap factor (sum of the streams' busy time over the device's, recorded), waits issued and
// removed, and the arena's bytes against one stream's. AUTO is the engine's own measured choice among the
// others.
//
// usage: gpu_stream_policies [--models towers8,mmoe8x4,dlrm26] [--steps 50] [--rounds 9] [--measure-products]
//     [--no-memory-waits]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/tune.h"
#include "engine/program/program.h"
#include "tests/gpu/branch_step.h"

namespace braid {
namespace {

constexpr int kWarmUp = 20;  // steps, whose losses are compared

struct Row {
  std::string name;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Runtime> runtime = nullptr;
  std::unique_ptr<BranchSteps> steps = nullptr;
  std::vector<double> times = {}, ratios = {};
};

struct Options {
  std::string models = "towers8,mmoe8x4,dlrm26";
  int steps = 50, rounds = 9;
  bool measure_products = false, no_memory_waits = false;
};

CompileOptions compile_options(const Options& settings, StreamPolicy policy, int streams, bool batched) {
  CompileOptions options;
  if (settings.no_memory_waits) options.streams.memory_waits_from = kNoMemoryWaits;
  options.domain = Domain::Device;
  options.streams.policy = policy;
  options.streams.count = streams;
  if (batched) options.batch_siblings = BatchSiblings::AcrossScopes;
  return options;
}

void measure(const BranchCase& c, bool batched, const Options& options,
             const std::shared_ptr<Accelerator>& device) {
  const BranchTraining training = make_branch_training(c, 0);
  const Graph& graph = training.graph.graph;
  std::vector<Row> rows;
  const auto add = [&](StreamPolicy policy, int streams) {
    rows.push_back({fmt::format("{} {}", stream_policy_name(policy), streams),
                    compile(graph, training.request, compile_options(options, policy, streams, batched))});
  };
  add(StreamPolicy::None, 1);
  for (const StreamPolicy policy : {StreamPolicy::Full, StreamPolicy::Cost})
    for (const int streams : {2, 4, 8}) add(policy, streams);

  CompileOptions automatic = compile_options(options, StreamPolicy::Auto, 8, batched);
  Runtime runtime(branch_runtime(device, true));
  const StreamPlan plan = tune_streams(graph, training.request, automatic, {}, runtime);
  automatic.streams = plan.apply(automatic.streams);
  rows.push_back({"AUTO 8", compile(graph, training.request, automatic)});

  const auto sampler = make_activity_sampler(*device);
  for (Row& row : rows) {
    row.runtime = std::make_unique<Runtime>(branch_runtime(device, true));
    row.steps = std::make_unique<BranchSteps>(training, row.program, *row.runtime);
    row.steps->run(kWarmUp);
  }
  for (int round = 0; round < options.rounds; ++round)
    for (Row& row : rows) {
      row.times.push_back(row.steps->time(options.steps));
      row.ratios.push_back(row.times.back() / rows[0].times.back());
    }
  fmt::print("{} B={}{}\n", c.model, c.batch, batched ? ", siblings batched" : "");
  for (Row& row : rows) {
    const BranchProfile profile = record(*row.steps, *sampler);
    const ProgramStats& stats = row.program->stats;
    fmt::print(
        "  {:<10} {:8.1f} us/step  {:5.3f}  overlap {:4.2f}  waits {:4} issued {:5} removed  arena {:7.1f} "
        "MiB  {:5.3f}{}\n",
        row.name, median_of(row.times), median_of(row.ratios), profile.overlap_factor, stats.waits_issued,
        stats.waits_removed, static_cast<double>(row.program->stats.device_arena_bytes) / (1 << 20),
        static_cast<double>(row.program->stats.device_arena_bytes) /
            static_cast<double>(rows[0].program->stats.device_arena_bytes),
        row.steps->losses(kWarmUp) == rows[0].steps->losses(kWarmUp) ? "" : "  BITS DIFFER");
  }
  fmt::print("  {}\n", plan.why);
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  CLI::App app("Stream policies on models of many branches on one GPU");
  Options options;
  app.add_option("--models", options.models, "comma-separated");
  app.add_option("--steps", options.steps, "in each round");
  app.add_option("--rounds", options.rounds, "in which all rows take turns");
  app.add_flag("--measure-products", options.measure_products,
               "products take the fastest of cuBLASLt's suggestions");
  app.add_flag("--no-memory-waits", options.no_memory_waits,
               "streams never wait only so that buffers can share memory");
  CLI11_PARSE(app, argc, argv);
  AcceleratorOptions device_options;
  device_options.measure_products = options.measure_products;
  const auto device = open_cuda(device_options);
  fmt::print("{}\n", device->description());
  for (const BranchCase& c : branch_cases()) {
    if (options.models.find(c.model) == std::string::npos) continue;
    for (const bool batched : {false, true}) measure(c, batched, options, device);
  }
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::main_of(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_stream_policies: {}\n", error.what());
    return 1;
  }
}
