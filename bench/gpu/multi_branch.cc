// Step times of three models of many branches on one GPU: forward, backward and SGD, float32 with TF32
// products, inputs fixed in device memory. Ways: one stream or N, launched op by op or as one captured graph.
// The models are those of a peer's benchmark script, which bench/gpu/run.sh runs beside this one.
//
// Prints a line a case: median over 5 rounds of `steps` steps, microseconds a step, two steps in flight.
// With --check each way's first losses are compared with one stream launched.
//
// With --profile a window of steps of N streams as a graph is recorded: where its time goes, node by node.
//
// usage: multi_branch [--models towers8,mmoe8x4,dlrm26] [--steps 100] [--streams 8] [--batch] [--check]
//                     [--plan] [--profile]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "base/init.h"
#include "engine/device/activity.h"
#include "engine/exec/instance.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/program.h"
#include "engine/ops/variable_init.h"
#include "engine/passes/compile.h"
#include "examples/models/multi_branch.h"
#include "proto/graph.pb.h"
#include "worker/training_graph.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  std::string model;
  std::int64_t batch;
};

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

constexpr std::int64_t kTables = 26, kRows = 100'000;

/// Fixed inputs are variables that nobody trains.
Output fixed(GraphBuilder& b, const std::string& name, DType dtype, Shape shape) {
  const Output handle = b.op("VarHandleOp", {},
                             {{"dtype", dtype},
                              {"shape", std::move(shape)},
                              {"_trainable", false},
                              {"_init_kind", static_cast<std::int64_t>(InitKind::Uniform)},
                              {"_init_a", -1.7},
                              {"_init_b", 1.7}},
                             name);
  return b.op("ReadVariableOp", {handle}, {{"dtype", dtype}});
}

Output build(GraphBuilder& b, const Case& c, int streams) {
  const auto many = [&](const std::string& name, int count, DType dtype, const Shape& shape) {
    std::vector<Output> all;
    for (int i = 0; i < count; ++i) all.push_back(fixed(b, name + std::to_string(i), dtype, shape));
    return all;
  };
  const Shape rows{c.batch};
  if (c.model == "towers8")
    return build_towers(b, many("x", 8, DType::Float32, Shape{c.batch, 256}), 256,
                        fixed(b, "y", DType::Float32, rows), streams);
  if (c.model == "mmoe8x4")
    return build_mmoe(b, fixed(b, "x", DType::Float32, Shape{c.batch, 512}), 512,
                      many("y", 4, DType::Float32, rows), 8, streams);
  return build_dlrm_branches(b, fixed(b, "x", DType::Float32, Shape{c.batch, 13}), 13,
                             many("ids", kTables, DType::Int64, rows), kRows, 16,
                             fixed(b, "y", DType::Float32, rows), streams);
}

void initialize(const worker::TrainingGraph& training, VariableStore& variables) {
  std::uint64_t seed = 1;
  for (const VariableInfo& variable : list_variables(training.graph)) {
    auto value = variables.read(variable.name);
    if (!value) continue;
    if (value->dtype() == DType::Int64) {
      std::vector<float> uniform(static_cast<std::size_t>(value->elements()));
      fill_uniform01(RngKey{++seed}, 0, uniform);
      for (std::size_t i = 0; i < uniform.size(); ++i)
        value->data<std::int64_t>()[i] = std::min(kRows - 1, static_cast<std::int64_t>(uniform[i] * kRows));
    } else {
      initialize_variable(training.graph.node(variable.handle), 1, *value);
      if (variable.name.starts_with("y"))  // labels are 0 or 1
        for (float& label : value->data<float>()) label = label > 0 ? 1.0F : 0.0F;
    }
    variables.write(variable.name, *value);
  }
}

struct Outcome {
  double median_us = 0;
  std::vector<float> losses;
  std::string report, profile;
};

/// What a recorded window of so many steps consisted of, the largest first.
std::string profile_report(const DeviceActivity& activity, double steps) {
  struct Row {
    double us = 0;
    std::uint64_t pieces = 0;
  };
  std::map<std::string, Row> rows;
  double sum = 0;
  for (const ActivitySlice& slice : activity.slices) {
    const double us = std::chrono::duration<double, std::micro>(slice.end - slice.begin).count();
    Row& row = rows[fmt::format("{:<10} {}", activity.streams[static_cast<std::size_t>(slice.stream)].stream,
                                slice.name)];
    row.us += us;
    row.pieces += 1;
    sum += us;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  std::string text = fmt::format(
      "  recorded {:.0f} steps: {:.1f} us a step, some kernel running {:.1f}, sum of kernels {:.1f}, kernels "
      "{:.1f}\n",
      steps, activity.window_seconds * 1e6 / steps, activity.busy_seconds * 1e6 / steps, sum / steps,
      static_cast<double>(activity.slices.size()) / steps);
  for (const auto& [name, row] : sorted)
    if (row.us / steps > 0.05)
      text += fmt::format("  {:8.2f} us {:5.1f} pieces  {}\n", row.us / steps,
                          static_cast<double>(row.pieces) / steps, name);
  return text;
}

struct Settings {
  int streams = 8;
  bool graphs = true, batched = false, profile = false;
  int steps = 100;
};

Outcome measure(const Case& c, const Settings& settings, const std::shared_ptr<Accelerator>& device) {
  const int streams = settings.streams, steps = settings.steps;
  std::unique_ptr<ActivitySampler> sampler;
  if (settings.profile) sampler = make_activity_sampler(*device);
  GraphBuilder b;
  const Output loss = build(b, c, streams);
  worker::TrainingGraph training = worker::make_training_graph(b.graph(), loss.name());
  OptimizerSpec sgd;
  sgd.kind = OptimizerKind::Sgd;
  for (const VariableGradient& gradient : training.gradients) worker::add_update(training, gradient, sgd);
  CompileRequest request;
  request.fetches = {training.graph.value_name(training.loss)};
  request.targets = training.targets;
  CompileOptions options;
  options.domain = Domain::Device;
  options.streams.count = streams;
  options.streams.policy = StreamPolicy::User;
  if (settings.batched) options.batch_siblings = BatchSiblings::AcrossScopes;
  const auto program = compile(training.graph, request, options);
  RuntimeOptions runtime_options;
  runtime_options.device = device;
  runtime_options.device_graphs = settings.graphs;
  Runtime runtime(runtime_options);
  Instance instance(program, runtime);
  initialize(training, runtime.variables());

  Outcome outcome;
  outcome.report = plan_report(*program);
  const auto wait = [] { return WaitContext::with_timeout(std::chrono::seconds(30)); };
  std::uint64_t next = 0;
  const auto start = [&] {
    StepRequest request_of_step;
    request_of_step.params.step = next++;
    request_of_step.params.learning_rate = 1e-3F;
    instance.start(std::move(request_of_step), wait());
  };
  const auto finish = [&] {
    const StepResult result = instance.finish(wait());
    if (outcome.losses.size() < 20) outcome.losses.push_back(result.fetches[0].data<float>()[0]);
  };
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      if (instance.in_flight() == program->steps_in_flight) finish();
      start();
    }
    while (instance.in_flight() > 0) finish();
  };
  run(20);
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    run(steps);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / steps);
  }
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  outcome.median_us = times[2];
  if (sampler) {
    std::atomic<bool> done = false;
    DeviceActivity activity;
    std::jthread recorder([&](const std::stop_token& stop) {
      activity = sampler->sample({}, stop);
      done = true;
    });
    const auto begin = Clock::now();
    const std::uint64_t first = next;
    while (!done) run(10);
    const double us_a_step = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                             static_cast<double>(next - first);
    recorder.join();
    outcome.profile = profile_report(activity, activity.window_seconds * 1e6 / us_a_step);
  }
  return outcome;
}

int main_of(int argc, char** argv) {
  CLI::App app("Step times of models of many branches on one GPU");
  std::string models = "towers8,mmoe8x4,dlrm26";
  int steps = 100, streams = 8;
  bool check = false, plan = false, batched = false, profile = false;
  app.add_option("--models", models, "comma-separated");
  app.add_option("--steps", steps, "in each of 5 rounds");
  app.add_option("--streams", streams, "N");
  app.add_flag("--check", check, "compare the losses of all ways bit by bit");
  app.add_flag("--batch", batched, "batch siblings, across streams too");
  app.add_flag("--plan", plan, "print the compiled program with N streams");
  app.add_flag("--profile", profile, "record where the time of N streams as a graph goes");
  CLI11_PARSE(app, argc, argv);
  const auto device = open_cuda({});
  fmt::print("{}\n", device->description());
  const Case cases[] = {{"towers8", 256},  {"towers8", 2048}, {"mmoe8x4", 512},
                        {"mmoe8x4", 4096}, {"dlrm26", 2048},  {"dlrm26", 16384}};
  bool equal = true;
  for (const Case& c : cases) {
    if (models.find(c.model) == std::string::npos) continue;
    std::vector<float> reference;
    for (const Way& way : kWays) {
      const int count = way.streams ? way.streams : streams;
      const bool last = way.graphs && way.streams == 0;
      const Outcome outcome = measure(c, {count, way.graphs, batched, profile && last, steps}, device);
      fmt::print("{} B={} {:<22} {:9.1f} us/step  loss {:.6f} -> {:.6f}\n", c.model, c.batch, way.name,
                 outcome.median_us, outcome.losses.front(), outcome.losses.back());
      std::fflush(stdout);
      if (plan && last) fmt::print("{}\n", outcome.report);
      if (profile && last) fmt::print("{}\n", outcome.profile);
      if (reference.empty()) reference = outcome.losses;
      if (check && outcome.losses != reference) {
        equal = false;
        fmt::print("  DIFFERS from one stream, launched\n");
      }
    }
  }
  if (check) fmt::print("all ways give the same bits: {}\n", equal ? "yes" : "NO");
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::main_of(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "multi_branch: {}\n", error.what());
    return 1;
  }
}
