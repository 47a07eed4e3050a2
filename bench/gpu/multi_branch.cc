// Step times of three models of many branches on one GPU, with the streams that their builder's scopes say:
// one stream or N, launched op by op or as one captured graph. The peer is PyTorch, which bench/gpu/run runs
// in the same call where it is told where its script is.
//
// Prints a line a case: median over 5 rounds of `steps` steps, microseconds a step, two steps in flight.
// With --check each way's first losses are compared with one stream launched. With --profile a window of
// steps of N streams as a graph is recorded: where its time goes, node by node.
//
// usage: gpu_multi_branch [--models towers8,mmoe8x4,dlrm26] [--steps 100] [--streams 8] [--batch] [--check]
//                         [--plan] [--profile] [--measure-products]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/plan_report.h"
#include "tests/gpu/branch_step.h"

namespace braid {
namespace {

constexpr int kWarmUp = 20;  // steps, whose losses are compared

struct Way {
  const char* name;
  int streams;  // 0: the number asked for
  bool graphs;
};

constexpr Way kWays[] = {
    {"one stream, launched", 1, false},
    {"N streams, launched", 0, false},
    {"one stream, graph", 1, true},
    {"N streams, graph", 0, true},
};

struct Options {
  std::string models = "towers8,mmoe8x4,dlrm26";
  int steps = 100, streams = 8;
  bool check = false, plan = false, batched = false, profile = false, measure_products = false;
};

/// The losses of the first steps.
std::vector<float> measure(const BranchCase& c, const Way& way, const Options& options,
                           const std::shared_ptr<Accelerator>& device) {
  const bool detailed = way.graphs && way.streams == 0;
  const int streams = way.streams ? way.streams : options.streams;
  const BranchTraining training = make_branch_training(c, streams);
  CompileOptions compiling;
  compiling.domain = Domain::Device;
  compiling.streams.count = streams;
  compiling.streams.policy = StreamPolicy::User;
  if (options.batched) compiling.batch_siblings = BatchSiblings::AcrossScopes;
  const auto program = compile(training.graph.graph, training.request, compiling);
  std::unique_ptr<ActivitySampler> sampler;
  if (options.profile && detailed) sampler = make_activity_sampler(*device);
  Runtime runtime(branch_runtime(device, way.graphs));
  BranchSteps steps(training, program, runtime);
  steps.run(kWarmUp);
  const std::vector<float> losses = steps.losses(kWarmUp);
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) times.push_back(steps.time(options.steps));
  fmt::print("{} B={} {:<22} {:9.1f} us/step  loss {:.6f} -> {:.6f}\n", c.model, c.batch, way.name,
             median_of(times), losses.front(), losses.back());
  if (detailed && options.plan) fmt::print("{}\n", plan_report(*program));
  if (sampler) {
    const BranchProfile p = record(steps, *sampler);
    fmt::print(
        "  recorded: {:.1f} us a step, some kernel running {:.1f}, sum of kernels {:.1f}, kernels {:.1f}, "
        "overlap "
        "factor {:.2f}\n{}\n",
        p.step_us, p.busy_us, p.kernels_us, p.kernels, p.overlap_factor, p.by_node);
  }
  std::fflush(stdout);
  return losses;
}

int main_of(int argc, char** argv) {
  CLI::App app("Step times of models of many branches on one GPU");
  Options options;
  app.add_option("--models", options.models, "comma-separated");
  app.add_option("--steps", options.steps, "in each of 5 rounds");
  app.add_option("--streams", options.streams, "N");
  app.add_flag("--check", options.check, "compare the losses of all ways bit by bit");
  app.add_flag("--batch", options.batched, "batch siblings, across streams too");
  app.add_flag("--plan", options.plan, "print the compiled program with N streams");
  app.add_flag("--measure-products", options.measure_products,
               "products take the fastest of cuBLASLt's suggestions");
  app.add_flag("--profile", options.profile, "record where the time of N streams as a graph goes");
  CLI11_PARSE(app, argc, argv);
  AcceleratorOptions device_options;
  device_options.measure_products = options.measure_products;
  const auto device = open_cuda(device_options);
  fmt::print("{}\n", device->description());
  bool equal = true;
  for (const BranchCase& c : branch_cases()) {
    if (options.models.find(c.model) == std::string::npos) continue;
    std::vector<float> reference;
    for (const Way& way : kWays) {
      const std::vector<float> losses = measure(c, way, options, device);
      if (reference.empty()) reference = losses;
      if (options.check && losses != reference) {
        equal = false;
        fmt::print("  DIFFERS from one stream, launched\n");
      }
    }
  }
  if (options.check) fmt::print("all ways give the same bits: {}\n", equal ? "yes" : "NO");
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::main_of(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_multi_branch: {}\n", error.what());
    return 1;
  }
}
