#include "bench/training_step.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "engine/autodiff/gradients.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

WaitContext a_while() { return WaitContext::with_timeout(std::chrono::seconds(300)); }

void add_update(Training& training, const VariableGradient& gradient, OptimizerSpec optimizer) {
  Graph& graph = training.graph;
  const OpRegistry& ops = OpRegistry::global();
  const VariableInfo& variable = gradient.variable;
  optimizer.row_wise = optimizer.row_wise && gradient.slices;
  Node update;
  update.inputs.push_back({variable.handle, 0});
  for (const SlotSpec& slot : optimizer_slots(optimizer)) {
    Node handle;
    handle.name = variable.name + "/" + std::string(slot.name);
    handle.op = &ops.require("VarHandleOp");
    handle.attrs = {{"dtype", variable.dtype},
                    {"shape", optimizer.row_wise ? Shape{variable.shape[0]} : variable.shape},
                    {"_trainable", false},
                    {"_init_kind", static_cast<std::int64_t>(InitKind::Constant)},
                    {"_init_a", static_cast<double>(slot.initial_value)},
                    {"_init_b", 0.0}};
    update.inputs.push_back({graph.add(std::move(handle)), 0});
  }
  if (gradient.slices) update.inputs.push_back(gradient.slices->indices);
  update.inputs.push_back(gradient.slices ? gradient.slices->values : gradient.dense);
  update.op = &ops.require(gradient.slices ? "braid.SparseApplyOptimizer" : "braid.ApplyOptimizer");
  update.attrs = optimizer_attrs(optimizer);
  if (gradient.slices && graph.node(gradient.slices->indices.node).attrs.get(kPadsIndices, false))
    update.attrs.set(kSkipNegative, true);
  update.name = graph.unique_name("update/" + variable.name);
  update.colocate_with = update.inputs.back().node;
  training.request.targets.push_back(update.name);
  graph.add(std::move(update));
}

Tensor made_up(DType dtype, const Shape& shape, std::int64_t below, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto bits = static_cast<std::int64_t>(seed >> 33);
    const auto at = static_cast<std::size_t>(i);
    if (dtype == DType::Float32)
      tensor.data<float>()[at] =
          below == 2 ? static_cast<float>(bits % 2) : static_cast<float>(bits % 2001 - 1000) / 600.0F;
    else if (dtype == DType::Int32)
      tensor.data<std::int32_t>()[at] = static_cast<std::int32_t>(bits % below);
    else
      tensor.data<std::int64_t>()[at] = bits % below;
  }
  return tensor;
}

}  // namespace

Training make_training(const ModelGraph& model, const OptimizerSpec& optimizer) {
  return make_training(model, optimizer, optimizer);
}

Training make_training(const ModelGraph& model, const OptimizerSpec& dense, const OptimizerSpec& of_rows) {
  Training made{import_graph(*model.graph), {}};
  for (const VariableGradient& gradient : add_gradients(made.graph, made.graph.parse_value(model.loss)))
    add_update(made, gradient, gradient.slices ? of_rows : dense);
  made.request.fetches = {model.loss};
  made.request.targets.insert(made.request.targets.end(), model.updates.begin(), model.updates.end());
  return made;
}

std::vector<Tensor> made_up_feeds(Training& training, const std::vector<std::string>& columns,
                                  std::int64_t batch, std::int64_t classes, std::int64_t ids) {
  std::vector<Tensor> feeds;
  for (const std::string& column : columns) {
    const OutputInfo& info = training.graph.info(training.graph.parse_value(column));
    Shape shape = info.shape;
    shape.set_dim(0, batch);
    const bool is_label = column == "label" || column == "click" || column == "purchase";
    const std::int64_t below = is_label && info.dtype == DType::Float32 ? 2
                               : is_label                               ? std::max<std::int64_t>(classes, 2)
                                                                        : std::max<std::int64_t>(ids, 3) - 2;
    training.request.feeds.push_back({column, info.dtype, shape});
    feeds.push_back(made_up(info.dtype, shape, below, feeds.size() + 1));
  }
  return feeds;
}

std::vector<Tensor> on_device(const std::vector<Tensor>& feeds, const std::shared_ptr<Accelerator>& device) {
  if (!device) return feeds;
  std::vector<Tensor> there;
  for (const Tensor& feed : feeds) {
    auto memory = device->allocate(feed.bytes(), "inputs");
    device->copy_now(memory.get(), feed.raw(), feed.bytes());
    there.emplace_back(feed.dtype(), feed.shape(), memory, Domain::Device);
  }
  return there;
}

TimedSteps::TimedSteps(const Training& training, const CompileOptions& compiling,
                       const std::shared_ptr<Accelerator>& device, Options options)
    : options_(std::move(options)),
      program_(compile(training.graph, training.request, compiling)),
      runtime_({.device = device}) {
  instance_ = std::make_unique<Instance>(program_, runtime_);
  for (const VariableInfo& variable : list_variables(training.graph)) {
    if (!runtime_.variables().contains(variable.name)) continue;
    if (options_.stays_zero && options_.stays_zero(variable)) continue;
    Tensor value(variable.dtype, variable.shape);
    initialize_variable(training.graph.node(variable.handle), 1, value);
    runtime_.variables().write(variable.name, value);
  }
}

void TimedSteps::run(const std::vector<std::vector<Tensor>>& batches, int count) {
  for (int i = 0; i < count; ++i) {
    if (instance_->in_flight() == program_->steps_in_flight) finish();
    StepRequest request;
    request.params.step = next_;
    request.params.learning_rate = options_.learning_rate;
    request.feeds = batches[next_++ % batches.size()];
    instance_->start(std::move(request), a_while());
  }
  while (instance_->in_flight() > 0) finish();
}

double TimedSteps::time_us(const std::vector<std::vector<Tensor>>& batches, int count, bool cpu_time) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  run(batches, count);
  if (cpu_time) return 1e6 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC / count;
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
}

double TimedSteps::median_us(const std::vector<std::vector<Tensor>>& batches, int count, int rounds,
                             bool cpu_time) {
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r) times.push_back(time_us(batches, count, cpu_time));
  std::ranges::sort(times);
  return times[times.size() / 2];
}

void TimedSteps::finish() { losses_.push_back(instance_->finish(a_while()).fetches[0].data<float>()[0]); }

double losses_apart(const std::vector<float>& losses, const std::vector<float>& others, std::size_t count) {
  double apart = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = losses[i], b = others[i];
    apart = std::max(apart, std::abs(a - b) / std::max(std::abs(a), 1e-9));
  }
  return apart;
}

}  // namespace braid::bench
