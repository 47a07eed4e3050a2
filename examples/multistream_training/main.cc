// multistream_training [--steps N] [--width N] [--layers N] [--device cpu|cuda]
//
// Four branches of twenty 512 x 512 layers: step times on 1 and on 4 streams, with scopes that backward nodes
// follow and with scopes that they do not. Same numbers whatever the streams. Then the two-branch linear
// regression over two streams, and the line that it finds.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "engine/device/accelerator.h"
#include "examples/multistream_training/branches.h"
#include "examples/multistream_training/regression.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr int kWarmUpSteps = 2;
constexpr float kLearningRate = 0.01F;

struct Arguments {
  int steps = 10;
  BranchesOptions branches;
  bool cuda = false;
};

RuntimeOptions runtime_options(const Arguments& arguments, int streams) {
  RuntimeOptions options;
  options.intra_op_threads = std::max(1, usable_cores() / streams);
  if (arguments.cuda) options.device = open_cuda({});
  return options;
}

/// The median time of a step in milliseconds; `loss` becomes that of the last one.
double time_branches(const Arguments& arguments, int streams, float& loss) {
  Runtime runtime(runtime_options(arguments, streams));
  SgdLoop loop(make_branches(arguments.branches), kBranchesLoss, kLearningRate,
               {branches_feed(arguments.branches, kSeed)}, streams, kSeed, runtime);
  for (int i = 0; i < kWarmUpSteps; ++i) loop.step();
  std::vector<double> times;
  for (int i = 0; i < arguments.steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    loss = loop.step();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void run_branches(Arguments arguments) {
  for (const bool include_grad : {true, false}) {
    arguments.branches.include_grad = include_grad;
    double one = 0;
    for (const int streams : {1, 4}) {
      float loss = 0;
      const double ms = time_branches(arguments, streams, loss);
      if (streams == 1) one = ms;
      fmt::print("include_grad {}, {} stream{}: {:.3f} ms a step ({:.2f} x), loss {:.6f}\n", include_grad,
                 streams, streams == 1 ? " " : "s", ms, one / ms, loss);
    }
  }
}

void run_regression(const Arguments& arguments) {
  Runtime runtime(runtime_options(arguments, 2));
  GraphDef graph;
  const Regression regression = make_regression(graph);
  SgdLoop loop(graph, regression.loss, Regression::kLearningRate, regression.feeds, 2, kSeed, runtime);
  for (int step = 0; step <= Regression::kSteps; ++step) {
    const float w_x = loop.value("weight_x"), w_y = loop.value("weight_y"), bias = loop.value("bias");
    if (step % Regression::kLogSteps == 0 && step < Regression::kSteps) {
      fmt::print("step {}: loss {:.4f}, w_x {:.4f}, w_y {:.4f}, b {:.4f}\n", step, loop.step(), w_x, w_y,
                 bias);
    } else if (step == Regression::kSteps) {
      fmt::print("Z = {:.4f} X + {:.4f} Y + {:.4f}\nloss {:.4f}\n", w_x, w_y, bias, loop.step());
    } else {
      loop.step();
    }
  }
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--device" && (value == "cpu" || value == "cuda")) {
      arguments.cuda = value == "cuda";
      continue;
    }
    const auto number = parse_int(value);
    if (!number || *number < 1 || *number > (1 << 20))
      throw InvalidArgument(name + " " + value + ": not a size");
    if (name == "--steps")
      arguments.steps = static_cast<int>(*number);
    else if (name == "--width")
      arguments.branches.width = arguments.branches.rows = *number;
    else if (name == "--layers")
      arguments.branches.layers = static_cast<int>(*number);
    else
      throw InvalidArgument(
          "usage: multistream_training [--steps N] [--width N] [--layers N] [--device cpu|cuda]");
  }
  if (argc % 2 == 0)
    throw InvalidArgument(
        "usage: multistream_training [--steps N] [--width N] [--layers N] [--device cpu|cuda]");
  return arguments;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    const braid::Arguments arguments = braid::parse(argc, argv);
    braid::run_branches(arguments);
    braid::run_regression(arguments);
    return braid::kExitSuccess;
  } catch (const braid::Error& e) {
    fmt::print(stderr, "{}: {}\n", braid::error_code_name(e.code()), e.message());
    return braid::exit_code_for(e.code());
  }
}
