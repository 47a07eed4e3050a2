// multistream_training [--steps N] [--width N] [--layers N] [--device cpu|cuda] [--config FILE]
//
// Four branches of twenty 512 x 512 layers: step times on 1 and on 4 streams, with scopes that backward nodes
// follow and with scopes that they do not. Same numbers whatever the streams. Then the two-branch linear
// regression over two streams, and the line that it finds.
//
// How many streams, and what else decides about them, may be in a text ConfigProto or in the environment
// (TF_GPU_STREAM_GROUP_COUNT=4 with TF_NODE_LEVEL_MULTISTREAM=true, TF_STREAM_FROM_FILE, ...;
// docs/user/streams.md).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/device/accelerator.h"
#include "examples/multistream_training/branches.h"
#include "examples/multistream_training/regression.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"
#include "worker/job/settings.h"

namespace braid {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr int kWarmUpSteps = 2;
constexpr float kLearningRate = 0.01F;

struct Arguments {
  int steps = 10;
  BranchesOptions branches;
  bool cuda = false;
  std::string config;
};

constexpr const char* kUsage =
    "usage: multistream_training [--steps N] [--width N] [--layers N] [--device cpu|cuda] [--config FILE]";

/// Of the run on several streams: what the settings say, or four streams, where scopes decide.
StreamOptions chosen_streams(const Arguments& arguments) {
  const worker::Settings settings =
      worker::read_settings(launch::process_environment(), arguments.config, worker::SettingsFor::Training);
  worker::log_settings(settings);
  proto::Job job = worker::settings_job(settings);
  if (job.streams().count() == 0) job.mutable_streams()->set_count(4);
  worker::fill_job_defaults(job);
  StreamOptions streams = worker::stream_options(job);
  if (job.streams().policy() == proto::Streams::AUTO) streams.policy = StreamPolicy::User;
  if (streams.count == 1) streams.policy = StreamPolicy::None;
  return streams;
}

RuntimeOptions runtime_options(const Arguments& arguments, int streams) {
  RuntimeOptions options;
  options.intra_op_threads = std::max(1, usable_cores() / streams);
  if (arguments.cuda) options.device = open_cuda({});
  return options;
}

/// The median time of a step in milliseconds; `loss` becomes that of the last one.
double time_branches(const Arguments& arguments, const StreamOptions& streams, float& loss) {
  Runtime runtime(runtime_options(arguments, streams.count));
  SgdLoop loop(make_branches(arguments.branches), kBranchesLoss, kLearningRate,
               {branches_feed(arguments.branches, kSeed)}, streams, kSeed, runtime);
  for (const Note& note : loop.program().notes)
    if (note.severity == Severity::Warning && arguments.branches.include_grad)
      log_warning("{}: {}", note.pass, note.text);
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
  const StreamOptions chosen = chosen_streams(arguments), serial{.policy = StreamPolicy::None};
  for (const bool include_grad : {true, false}) {
    arguments.branches.include_grad = include_grad;
    double one = 0;
    for (const StreamOptions& streams : {serial, chosen}) {
      float loss = 0;
      const double ms = time_branches(arguments, streams, loss);
      if (one == 0) one = ms;
      fmt::print("include_grad {}, {} stream{}: {:.3f} ms a step ({:.2f} x), loss {:.6f}\n", include_grad,
                 streams.count, streams.count == 1 ? " " : "s", ms, one / ms, loss);
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
    if (name == "--config") {
      arguments.config = value;
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
      throw InvalidArgument(kUsage);
  }
  if (argc % 2 == 0) throw InvalidArgument(kUsage);
  return arguments;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
      fmt::print("{}\n", braid::kUsage);
      return braid::kExitSuccess;
    }
    const braid::Arguments arguments = braid::parse(argc, argv);
    braid::run_branches(arguments);
    braid::run_regression(arguments);
    return braid::kExitSuccess;
  } catch (const braid::Error& e) {
    fmt::print(stderr, "{}: {}\n", braid::error_code_name(e.code()), e.message());
    return braid::exit_code_for(e.code());
  }
}
