#include "worker/strategies/ordered_rows_ops.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/row_entries.h"
#include "engine/ops/common/shape_rules.h"
#include "ps/client/ordered_keys.h"
#include "ps/client/ps_client.h"
#include "worker/strategies/cached_rows.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/ordered_groups.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

// ---------------------------------------------------------------------------------------------------- PsKeys

void infer_keys(InferContext& c) {
  const Ints lists = c.attr("lists", Ints{});
  const auto servers = c.attr("servers", std::int64_t{0});
  if (std::ssize(lists) != c.inputs() || !std::ranges::is_sorted(lists) || lists.front() != 0)
    c.fail("the tables of the inputs must be given, rising from 0");
  if (c.attr("padded", lists).size() != lists.size())
    c.fail("it must be said of each input whether it is padded");
  if (servers < 1) c.fail("there are " + std::to_string(servers) + " servers");
  std::int64_t n = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    require_index_dtype(c, i);
    const std::int64_t ids = c.shape(i).is_static() ? c.shape(i).elements() : Shape::kUnknown;
    n = n < 0 || ids < 0 ? Shape::kUnknown : n + ids;
  }
  c.output(DType::Int64, {1, n});
  c.output(DType::Int64, {servers, lists.back() + 1});
  c.output(DType::Int64, {c.attr("entries", true) ? n : 0});
  for (int i = 0; i < c.inputs(); ++i) c.output(DType::Int32, c.shape(i));
}

PreparedKernel prepare_keys(const PrepareContext& c) {
  const Ints lists = c.attr("lists", Ints{});
  const Ints padded = c.attr("padded", Ints(lists.size(), 0));
  const auto servers = static_cast<int>(c.attr("servers", std::int64_t{1}));
  const auto tables = static_cast<int>(lists.back()) + 1;
  const std::int64_t n = c.outputs[0].shape[1];
  const bool entries = c.attr("entries", true);
  if (n >= kEntryLimit) c.fail(std::to_string(n) + " ids are more than can be counted");
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const bool narrow = std::ranges::any_of(c.inputs, [](const auto& in) { return in.dtype != DType::Int64; });
  const std::size_t places_bytes = aligned(static_cast<std::size_t>(n) * sizeof(std::int32_t)),
                    wide_bytes = narrow ? aligned(static_cast<std::size_t>(n) * sizeof(std::int64_t)) : 0;
  PreparedKernel kernel;
  kernel.scratch_bytes = places_bytes + wide_bytes + ps::order_scratch_bytes(n, tables, servers);
  kernel.run = [=, inputs = std::vector<OutputInfo>(c.inputs.begin(), c.inputs.end()),
                ids = std::vector<ps::IdList>(c.inputs.size())](const KernelArgs& a) mutable {
    auto* const scratch = static_cast<std::byte*>(a.scratch);
    auto* const places = reinterpret_cast<std::int32_t*>(scratch);
    auto* wide = reinterpret_cast<std::int64_t*>(scratch + places_bytes);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto count = static_cast<std::size_t>(inputs[i].shape.elements());
      const auto* of_input = static_cast<const std::int64_t*>(a.inputs[i]);
      if (inputs[i].dtype != DType::Int64) {
        std::copy_n(a.in<std::int32_t>(static_cast<int>(i)), count, wide);
        of_input = wide;
        wide += count;
      }
      ids[i] = {static_cast<int>(lists[i]), {of_input, count}, padded[i] != 0};
    }
    ps::order_keys(
        ids, tables, servers,
        {a.out<std::int64_t>(0), a.out<std::int64_t>(1), places, entries ? a.out<std::int64_t>(2) : nullptr},
        scratch + places_bytes + wide_bytes);
    const std::int32_t* next = places;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::copy_n(next, ids[i].ids.size(), a.out<std::int32_t>(static_cast<int>(i) + 3));
      next += ids[i].ids.size();
    }
  };
  return kernel;
}

Cost keys_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  Cost cost = grouping_cost(known_elements(outputs[0].shape));
  for (int i = 0; i < c.inputs(); ++i) cost.bytes += known_bytes({c.dtype(i), c.shape(i)});
  for (const OutputInfo& output : outputs) cost.bytes += known_bytes(output);
  return cost;
}

// ------------------------------------------------------------------------------------- PsRows and PsPushRows

/// The dense variables of a pull, or gradients of a push, from that input on.
struct DenseParts {
  struct Part {
    int table;
    std::size_t input, count;
  };
  DenseParts(const PrepareContext& c, std::size_t first) {
    for (const std::int64_t table : c.attr("dense_tables", Ints{})) {
      const auto count = static_cast<std::size_t>(c.inputs[first].shape.elements());
      parts.push_back({static_cast<int>(table), first++, count});
    }
  }
  std::vector<Part> parts;
};

void infer_rows(InferContext& c) {
  const Ints dims = c.attr("dims", Ints{});
  if (c.inputs() !=
      2 * static_cast<int>(dims.size()) + static_cast<int>(c.attr("dense_tables", Ints{}).size()))
    c.fail("keys and counts of each group are needed");
  for (std::size_t g = 0; g < dims.size(); ++g) {
    const Shape& keys = c.shape(2 * static_cast<int>(g));
    c.output(DType::Float32, {1, keys.has_rank() ? keys[1] : Shape::kUnknown, dims[g]});
  }
  if (c.attr("votes", false)) c.output(DType::Float32, Shape{});
}

PreparedKernel prepare_ordered_rows(const PrepareContext& c) {
  ps::PsClient& client = require_service<ps::PsClient>(c, "parameter-server client");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const bool versioned = c.attr("versioned", false), ahead = c.attr("ahead", false),
             votes = c.attr("votes", false), fills = c.attr("fill", false);
  Ints floats;
  for (std::size_t g = 0; g < c.outputs.size() - (votes ? 1 : 0); ++g)
    floats.push_back(c.outputs[g].shape.elements());
  CachedRows* const cached =
      c.attr("cached", false) ? &require_service<CachedRows>(c, "cache of rows") : nullptr;
  const DenseParts dense(c, 2 * floats.size());
  PreparedKernel kernel;
  kernel.run_async = [&client, cached, deadline, versioned, ahead, votes, fills, floats, dense,
                      groups = std::make_shared<const OrderedGroups>(c)](const KernelArgs& a,
                                                                         Completion done) {
    ps::PullRequest request;
    for (const DenseParts::Part& part : dense.parts)
      request.dense.push_back({part.table, {static_cast<float*>(a.inputs[part.input]), part.count}});
    for (std::size_t g = 0; g < groups->size(); ++g) {
      if (fills) std::fill_n(static_cast<float*>(a.outputs[g]), floats[g], 0.0F);
      request.ordered.push_back({groups->keys(g, a), static_cast<float*>(a.outputs[g])});
    }
    request.min_version = versioned ? a.params->step : 0;
    request.ahead = ahead ? a.params->step + 1 : 0;
    if (votes) request.stop_vote = static_cast<float*>(a.outputs[groups->size()]);
    auto ended = [groups, done = std::move(done)](ErrorPtr error) { done(std::move(error)); };
    if (cached)
      cached->pull(std::move(request), a.params->step, std::move(ended), a.wait->at_most(deadline));
    else
      client.pull_async(std::move(request), std::move(ended), a.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_plan_rows(const PrepareContext& c) {
  CachedRows& cached = require_service<CachedRows>(c, "cache of rows");
  for (std::size_t g = 0; g < c.attr("group_tables", Ints{}).size(); ++g)
    cached.cache(g).require_room(c.inputs[2 * g].shape.elements());
  PreparedKernel kernel;
  kernel.run = [&cached, groups = std::make_shared<const OrderedGroups>(c)](const KernelArgs& a) {
    std::vector<ps::OrderedKeys> keys;
    for (std::size_t g = 0; g < groups->size(); ++g) keys.push_back(groups->keys(g, a));
    cached.plan(a.params->step, keys);
  };
  return kernel;
}

PreparedKernel prepare_push_rows(const PrepareContext& c) {
  ps::PsClient& client = require_service<ps::PsClient>(c, "parameter-server client");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto sequence = static_cast<std::uint32_t>(c.attr("sequence", std::int64_t{0}));
  const auto examples = static_cast<std::uint32_t>(c.attr("examples", std::int64_t{0}));
  const bool votes = c.attr("votes", false);
  CachedRows* const cached =
      c.attr("cached", false) ? &require_service<CachedRows>(c, "cache of rows") : nullptr;
  std::vector<int> numbers;
  for (const std::int64_t group : c.attr("groups", Ints{})) numbers.push_back(static_cast<int>(group));
  const DenseParts dense(c, 3 * c.attr("group_tables", Ints{}).size());
  PreparedKernel kernel;
  kernel.run_async = [&client, cached, numbers, deadline, sequence, examples, votes, dense,
                      groups = std::make_shared<const OrderedGroups>(c)](const KernelArgs& a,
                                                                         Completion done) {
    ps::PushRequest request;
    for (const DenseParts::Part& part : dense.parts)
      request.dense.push_back({part.table, {static_cast<const float*>(a.inputs[part.input]), part.count}});
    request.step = a.params->step;
    request.sequence = sequence;
    request.examples = examples;
    request.params = {a.params->learning_rate, a.params->grad_scale, a.params->step};
    for (std::size_t g = 0; g < groups->size(); ++g)
      request.ordered.push_back(
          {groups->keys(g, a), static_cast<const float*>(a.inputs[2 * groups->size() + g])});
    const float vote =
        votes ? *static_cast<const float*>(a.inputs[3 * groups->size() + dense.parts.size()]) : 0.0F;
    request.votes_to_stop = vote >= kLeastStopVote;
    request.votes_to_finish = vote == kFinishVote;
    auto ended = [groups, done = std::move(done)](ErrorPtr error) { done(std::move(error)); };
    if (cached)
      cached->push(std::move(request), numbers, std::move(ended), a.wait->at_most(deadline));
    else
      client.push_async(std::move(request), std::move(ended), a.wait->at_most(deadline));
  };
  return kernel;
}

}  // namespace

void register_ordered_rows_ops(OpRegistry& registry) {
  registry.add({.name = "braid.PsKeys",
                .traits = computes().output_lists({{"keys"}, {"counts"}, {"entries"}, {"places", "*"}}),
                .min_inputs = 1,
                .max_inputs = -1,
                .infer = infer_keys,
                .no_gradient_reason = "ids have no gradient",
                .cost = keys_cost,
                .cpu = prepare_keys});
  OpDef rows = exchange_op("braid.PsRows", Lane::Pull);
  rows.min_inputs = 2;
  rows.infer = infer_rows;
  rows.cpu = prepare_ordered_rows;
  rows.further_handles = Access::Write;
  registry.add(std::move(rows));
  OpDef plan = exchange_op("braid.PsPlanRows", Lane::Pull);
  plan.min_inputs = 2;
  plan.infer = [](InferContext&) {};
  plan.cpu = prepare_plan_rows;
  registry.add(std::move(plan));
  OpDef push = exchange_op("braid.PsPushRows", Lane::Push);
  push.min_inputs = 3;
  push.infer = [](InferContext&) {};
  push.cpu = prepare_push_rows;
  registry.add(std::move(push));
}

}  // namespace braid::worker
