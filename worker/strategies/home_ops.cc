#include "worker/strategies/home_ops.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/home_swap.h"
#include "engine/ops/common/shape_rules.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/home_keys.h"
#include "worker/strategies/homed_rows.h"
#include "worker/strategies/ordered_groups.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

PreparedKernel prepare_home_rows(const PrepareContext& c) {
  HomedRows& homed = require_service<HomedRows>(c, "home of rows");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  PreparedKernel kernel;
  kernel.run = [&homed, deadline, groups = std::make_shared<const OrderedGroups>(c)](const KernelArgs& a) {
    std::vector<ps::OrderedKeys> keys;
    for (std::size_t g = 0; g < groups->size(); ++g) keys.push_back(groups->keys(g, a));
    homed.begin(a.params->step, keys, a.wait->at_most(deadline));
    *static_cast<float*>(a.outputs[0]) = 0;
  };
  return kernel;
}

PreparedKernel prepare_home_arrive(const PrepareContext& c) {
  HomedRows& homed = require_service<HomedRows>(c, "home of rows");
  PreparedKernel kernel;
  kernel.run_async = [&homed](const KernelArgs& a, Completion done) {
    *static_cast<float*>(a.outputs[0]) = 0;
    homed.arrive(a.params->step, static_cast<float*>(a.outputs[1]),
                 [done = std::move(done)](ErrorPtr error) { done(std::move(error)); });
  };
  return kernel;
}

HomeSwapSpec home_swap_of(const PrepareContext& c) {
  HomedRows& homed = require_service<HomedRows>(c, "home of rows");
  const auto group = static_cast<std::size_t>(c.attr("group", std::int64_t{0}));
  HomeSwapSpec spec;
  spec.layout = homed.group(group).layout();
  spec.memory = homed.memory(group, c.accelerator);
  spec.widths = c.attr("widths", Ints{});
  spec.tables = static_cast<int>(c.attr("tables", std::int64_t{0}));
  spec.joined = !c.attr("capacities", Ints{}).empty();
  std::int64_t ids = 0;
  for (std::int64_t list = 0; list < c.attr("lists", std::int64_t{0}); ++list) {
    spec.ids.push_back(c.outputs[static_cast<std::size_t>(list)].shape.elements());
    ids += spec.ids.back();
  }
  if (spec.joined && c.inputs[1].shape.elements() != ids)
    c.fail("there are not as many places as the lists have room for");
  if (std::ssize(c.inputs) != spec.variable(spec.tables, 0))
    c.fail("each table needs its values and its slots");
  return spec;
}

void infer_home_swap(InferContext& c) {
  const auto lists = c.attr("lists", std::int64_t{0});
  if (const Ints capacities = c.attr("capacities", Ints{}); !capacities.empty()) {
    if (c.inputs() < 2 || c.dtype(1) != DType::Int32) c.fail("places must be int32");
    for (const std::int64_t capacity : capacities)
      c.output(DType::Int32, {c.attr("ranks", std::int64_t{1}), capacity});
    return c.output(DType::Float32, Shape{});
  }
  if (c.inputs() <= lists) c.fail("each list needs its places");
  for (int list = 0; list < lists; ++list) {
    if (c.dtype(list + 1) != DType::Int32) c.fail("places must be int32");
    c.output(DType::Int32, c.shape(list + 1));
  }
  c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_home_leave(const PrepareContext& c) {
  HomedRows& homed = require_service<HomedRows>(c, "home of rows");
  PreparedKernel kernel;
  kernel.run_async = [&homed](const KernelArgs& a, Completion done) {
    homed.leave(a.params->step, std::move(done));
  };
  return kernel;
}

}  // namespace

void register_home_ops(OpRegistry& registry) {
  register_home_keys(registry);
  OpDef rows = exchange_op("braid.PsHomeRows", Lane::Pull);
  rows.min_inputs = 2;
  rows.infer = [](InferContext& c) { c.output(DType::Float32, Shape{}); };
  rows.cpu = prepare_home_rows;
  registry.add(std::move(rows));

  OpDef arrive = exchange_op("braid.PsHomeArrive", Lane::Pull);
  arrive.min_inputs = 1;
  arrive.max_inputs = 1;
  arrive.infer = [](InferContext& c) {
    c.output(DType::Float32, Shape{});
    c.output(DType::Float32, Shape{});
  };
  arrive.cpu = prepare_home_arrive;
  registry.add(std::move(arrive));

  OpDef swap = exchange_op("braid.PsHomeSwap", Lane::Compute);
  swap.min_inputs = 2;
  swap.infer = infer_home_swap;
  swap.further_handles = Access::ReadWrite;
  swap.cost = [](const InferContext&, std::span<const OutputInfo> outputs) {  // few rows come and go
    Cost cost;
    for (const OutputInfo& output : outputs) cost.bytes += 3 * known_bytes(output);
    return cost;
  };
  swap.cpu = [](const PrepareContext& c) { return host_home_swap(c, home_swap_of(c)); };
  registry.add(std::move(swap));
  registry.add_cuda("braid.PsHomeSwap",
                    [](const PrepareContext& c) { return device_home_swap(c, home_swap_of(c)); });

  OpDef leave = exchange_op("braid.PsHomeLeave", Lane::Push);
  leave.min_inputs = 1;
  leave.infer = [](InferContext&) {};
  leave.cpu = prepare_home_leave;
  registry.add(std::move(leave));
}

}  // namespace braid::worker
