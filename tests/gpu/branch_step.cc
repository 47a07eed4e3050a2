#include "tests/gpu/branch_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "models/common.h"
#include "models/multi_branch.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTables = 26, kRows = 100'000;

/// Fixed inputs are variables that nobody trains.
Output fixed(GraphBuilder& b, const std::string& name, DType dtype, Shape shape) {
  const Output handle = b.op("VarHandleOp", {},
                             {{"dtype", dtype},
                              {"shape", std::move(shape)},
                              {"_trainable", false},
                              {"_init_kind", static_cast<std::int64_t>(InitKind::Uniform)},
                              {"_init_a", dtype == DType::Int64 ? 0.0 : -1.7},
                              {"_init_b", dtype == DType::Int64 ? double{kRows} : 1.7}},
                             name);
  return b.op("ReadVariableOp", {handle}, {{"dtype", dtype}});
}

Output build(GraphBuilder& b, const BranchCase& c, int streams) {
  const auto many = [&](const std::string& name, int count, DType dtype, const Shape& shape) {
    std::vector<Output> all;
    for (int i = 0; i < count; ++i) all.push_back(fixed(b, name + std::to_string(i), dtype, shape));
    return all;
  };
  const Shape rows{c.batch};
  if (c.model == "mlp4096x16") {
    std::int64_t width = 4096;
    const Output x = fixed(b, "x", DType::Float32, Shape{c.batch, width});
    const Output top = mlp_layers(b, "mlp", x, width, std::vector<std::int64_t>(16, width));
    return b.op("Mean", {top, b.constant(Tensor::from<std::int32_t>({2}, std::vector<std::int32_t>{0, 1}))});
  }
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
  for (const VariableInfo& variable : list_variables(training.graph)) {
    auto value = variables.read(variable.name);
    if (!value) continue;
    initialize_variable(training.graph.node(variable.handle), 1, *value);
    if (variable.name.starts_with("y"))  // labels are 0 or 1
      for (float& label : value->data<float>()) label = label > 0 ? 1.0F : 0.0F;
    variables.write(variable.name, *value);
  }
}

WaitContext a_while() { return WaitContext::with_timeout(std::chrono::seconds(30)); }

}  // namespace

RuntimeOptions branch_runtime(std::shared_ptr<Accelerator> device, bool graphs) {
  RuntimeOptions options;
  options.device = std::move(device);
  options.device_graphs = graphs;
  return options;
}

const std::vector<BranchCase>& branch_cases() {
  static const std::vector<BranchCase> cases{{"towers8", 256},  {"towers8", 2048}, {"mmoe8x4", 512},
                                             {"mmoe8x4", 4096}, {"dlrm26", 2048},  {"dlrm26", 16384}};
  return cases;
}

BranchTraining make_branch_training(const BranchCase& c, int scopes, worker::Strategy* strategy) {
  GraphBuilder b;
  const Output loss = build(b, c, scopes);
  BranchTraining training{worker::make_training_graph(b.graph(), loss.name()), {}};
  if (strategy) {
    strategy->rewrite_training(training.graph);
  } else {
    OptimizerSpec sgd;
    sgd.kind = OptimizerKind::Sgd;
    for (const VariableGradient& gradient : training.graph.gradients)
      worker::add_update(training.graph, gradient, sgd);
  }
  training.request.fetches = {training.graph.graph.value_name(training.graph.loss)};
  training.request.targets = training.graph.targets;
  return training;
}

BranchSteps::BranchSteps(const BranchTraining& training, std::shared_ptr<const Program> program,
                         Runtime& runtime, worker::Strategy* strategy)
    : program_(std::move(program)), strategy_(strategy), instance_(program_, runtime) {
  initialize(training.graph, runtime.variables());
}

void BranchSteps::start() {
  StepRequest request;
  request.params.step = next_++;
  request.params.learning_rate = 1e-3F;
  if (strategy_) {
    request.params.grad_scale = strategy_->gradient_scale();
    strategy_->begin_step(request.params.step, a_while());
  }
  instance_.start(std::move(request), a_while());
}

void BranchSteps::finish() {
  const StepResult result = instance_.finish(a_while());
  if (strategy_) strategy_->end_step(finished_);
  ++finished_;
  losses_.push_back(result.fetches[0].data<float>()[0]);
}

std::vector<float> BranchSteps::losses(std::size_t most) const {
  return {losses_.begin(), losses_.begin() + static_cast<std::ptrdiff_t>(std::min(most, losses_.size()))};
}

void BranchSteps::run(int count) {
  for (int i = 0; i < count; ++i) {
    if (instance_.in_flight() == program_->steps_in_flight) finish();
    start();
  }
  while (instance_.in_flight() > 0) finish();
}

double BranchSteps::time(int count) {
  const auto begin = Clock::now();
  run(count);
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / count;
}

BranchProfile record(BranchSteps& steps, ActivitySampler& sampler, int count) {
  constexpr int kBurst = 10;
  std::atomic<bool> done = false;
  DeviceActivity activity;
  std::jthread recorder([&](const std::stop_token& stop) {
    activity = sampler.sample({}, stop);
    done = true;
  });
  const auto begin = Clock::now();
  int made = 0;
  for (; count ? made < count : !done; made += kBurst) steps.run(kBurst);
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / made;
  recorder.join();
  const double recorded = activity.window_seconds * 1e6 / us;

  struct Row {
    double us = 0, pieces = 0;
  };
  std::map<std::string, Row> rows;
  BranchProfile profile;
  for (const ActivitySlice& slice : activity.slices) {
    const double slice_us = std::chrono::duration<double, std::micro>(slice.end - slice.begin).count();
    const std::string& stream = activity.streams[static_cast<std::size_t>(slice.stream)].stream;
    Row& row = rows[fmt::format("{:<10} {}", stream, slice.name)];
    row.us += slice_us / recorded;
    row.pieces += 1 / recorded;
    profile.kernels_us += slice_us / recorded;
    profile.kernels += 1 / recorded;
  }
  profile.step_us = us;
  for (const StreamActivity& stream : activity.streams)
    profile.stream_us[stream.stream] = stream.busy_seconds * 1e6 / recorded;
  profile.busy_us = activity.busy_seconds * 1e6 / recorded;
  profile.overlap_factor = activity.overlap_factor();
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  for (const auto& [name, row] : sorted)
    if (row.us > 0.05)
      profile.by_node += fmt::format("  {:8.2f} us {:5.1f} pieces  {}\n", row.us, row.pieces, name);
  return profile;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace braid
