// Sparse mixtures of experts (Shazeer et al. 2017, Lepikhin et al. 2021). A token has k choices of E experts;
// of `groups` equal runs of tokens each expert takes at most `capacity` choices (expert_slots.h), all first
// choices before all second ones, and tokens in their order. Choices behind that are dropped.
//
// braid.RouteToExperts(choices [T, k] int32) -> slots [T, k] int32, -1 where dropped, and load [T, E]
// float32:
//   by expert the share of the choices of the token's group, dropped ones too. Of a token's choices no two
//   are the same. A choice that is no expert fails the step.
// braid.DispatchTokens(x [T, d], slots, weights [T, k] or none) -> [E, groups * capacity, d]: rows of x at
//   their slots, times their weights; zeros in slots that nobody has.
// braid.CombineTokens(y [E, rows, d], slots, weights or none) -> [T, d]: sums of the tokens' rows.
// braid.SlotDots(x [T, d], y [E, rows, d], slots) -> [T, k]: x . y at the slots, 0 where dropped.
//
// Attributes of all: experts, groups, capacity_factor. Each of the last three is the gradient of another.
#include <fmt/format.h>

#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/sparse/expert_slots.h"

namespace braid {
namespace {

template <class Context>
ExpertSlots slots_of(const Context& c, const Shape& choices) {
  const auto experts = c.attr("experts", std::int64_t{0}), groups = c.attr("groups", std::int64_t{1});
  const double factor = c.attr("capacity_factor", 1.25);
  if (experts < 1 || groups < 1 || !(factor >= 0))
    c.fail(fmt::format("{} experts, {} groups, capacity_factor {}", experts, groups, factor));
  return {choices[0], choices[1], experts, groups, factor};
}

bool is_known(const Shape& shape) { return shape.has_rank() && shape.is_static(); }

/// Of the input that has `rank` axes.
void require_slots(const InferContext& c, int input) {
  if (c.dtype(input) != DType::Int32) c.fail(fmt::format("input {} must be int32", input));
  c.require_rank(input, 2);
}

void infer_route(InferContext& c) {
  require_slots(c, 0);
  const auto experts = c.attr("experts", std::int64_t{0});
  if (is_known(c.shape(0))) {
    const ExpertSlots s = slots_of(c, c.shape(0));
    if (s.choices > s.experts) c.fail(fmt::format("{} choices of {} experts", s.choices, s.experts));
    if (s.slots() > INT32_MAX) c.fail(fmt::format("{} slots are more than int32 counts", s.slots()));
  }
  const std::int64_t tokens = c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown;
  c.output(DType::Int32, c.shape(0).has_rank() ? c.shape(0) : Shape{Shape::kUnknown, Shape::kUnknown});
  c.output(DType::Float32, Shape{tokens, experts});
}

void require_weights(const InferContext& c, int input) {
  if (c.inputs() <= input) return;
  c.require_rank(input, 2);
  c.require_same_dtype(0, input);
}

void infer_dispatch(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 2);
  require_slots(c, 1);
  require_weights(c, 2);
  const std::int64_t rows = is_known(c.shape(1)) ? slots_of(c, c.shape(1)).rows() : Shape::kUnknown;
  const std::int64_t width = c.shape(0).has_rank() ? c.shape(0)[1] : Shape::kUnknown;
  c.output(c.dtype(0), Shape{c.attr("experts", std::int64_t{0}), rows, width});
}

void infer_combine(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 3);
  require_slots(c, 1);
  require_weights(c, 2);
  const std::int64_t tokens = c.shape(1).has_rank() ? c.shape(1)[0] : Shape::kUnknown;
  const std::int64_t width = c.shape(0).has_rank() ? c.shape(0)[2] : Shape::kUnknown;
  c.output(c.dtype(0), Shape{tokens, width});
}

void infer_dots(InferContext& c) {
  require_floating(c, 0);
  c.require_rank(0, 2);
  c.require_same_dtype(0, 1);
  c.require_rank(1, 3);
  require_slots(c, 2);
  c.output(c.dtype(0), c.shape(2).has_rank() ? c.shape(2) : Shape{Shape::kUnknown, Shape::kUnknown});
}

/// One group; `taken`: as many numbers as experts.
void route_group(const ExpertSlots& s, std::int64_t group, const std::int32_t* choices, std::int32_t* slots,
                 float* load, std::int64_t* taken) {
  const std::int64_t first = std::min(group * s.of_group, s.tokens);
  const std::int64_t end = std::min(first + s.of_group, s.tokens);
  std::fill(taken, taken + s.experts, 0);
  for (std::int64_t k = 0; k < s.choices; ++k)
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t expert = choices[t * s.choices + k], place = taken[expert]++;
      slots[t * s.choices + k] =
          place < s.capacity ? static_cast<std::int32_t>((expert * s.groups + group) * s.capacity + place)
                             : -1;
    }
  if (first == end) return;
  const auto all = static_cast<float>((end - first) * s.choices);
  for (std::int64_t e = 0; e < s.experts; ++e)
    load[first * s.experts + e] = static_cast<float>(taken[e]) / all;
  for (std::int64_t t = first + 1; t < end; ++t)
    std::copy_n(load + first * s.experts, s.experts, load + t * s.experts);
}

PreparedKernel prepare_route(const PrepareContext& c) {
  const ExpertSlots s = slots_of(c, c.inputs[0].shape);
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(s.groups * s.experts) * sizeof(std::int64_t);
  kernel.run = [s, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
    const auto* choices = a.in<std::int32_t>(0);
    for (std::int64_t i = 0; i < s.tokens * s.choices; ++i)
      if (choices[i] < 0 || choices[i] >= s.experts)
        throw InvalidArgument(
            fmt::format("{}: choice {} is none of {} experts", place, choices[i], s.experts));
    pool->parallel_range(s.groups, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = begin; g < end; ++g)
        route_group(s, g, choices, a.out<std::int32_t>(0), a.out<float>(1),
                    static_cast<std::int64_t*>(a.scratch) + g * s.experts);
    });
  };
  return kernel;
}

void check_slots(const std::string& place, const std::int32_t* slots, std::int64_t count, std::int64_t all) {
  for (std::int64_t i = 0; i < count; ++i)
    if (slots[i] >= all)
      throw InvalidArgument(fmt::format("{}: slot {} is none of {}", place, slots[i], all));
}

template <class T>
BRAID_VECTOR_CLONES void scale_row(const T* from, T weight, T* to, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] * weight;
}
template <class T>
BRAID_VECTOR_CLONES void add_scaled_row(const T* from, T weight, T* to, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) to[i] += from[i] * weight;
}

PreparedKernel prepare_dispatch(const PrepareContext& c) {
  const ExpertSlots s = slots_of(c, c.inputs[1].shape);
  const std::int64_t width = c.inputs[0].shape[1];
  const bool weighs = c.inputs.size() > 2;
  return with_float("braid.DispatchTokens", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const auto* slots = a.in<std::int32_t>(1);
      check_slots(place, slots, s.tokens * s.choices, s.slots());
      pool->parallel_range(s.slots(), row_grain(width), [&](std::int64_t begin, std::int64_t end) {
        std::fill(a.out<T>(0) + begin * width, a.out<T>(0) + end * width, T{});
      });
      pool->parallel_range(s.tokens, row_grain(width * s.choices), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin * s.choices; i < end * s.choices; ++i)
          if (slots[i] >= 0)
            scale_row(a.in<T>(0) + i / s.choices * width, weighs ? a.in<T>(2)[i] : T{1},
                      a.out<T>(0) + slots[i] * width, width);
      });
    });
  });
}

PreparedKernel prepare_combine(const PrepareContext& c) {
  const Shape& y = c.inputs[0].shape;
  const std::int64_t tokens = c.inputs[1].shape[0], choices = c.inputs[1].shape[1], width = y[2];
  const std::int64_t slots_of_y = y[0] * y[1];
  const bool weighs = c.inputs.size() > 2;
  return with_float("braid.CombineTokens", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const auto* slots = a.in<std::int32_t>(1);
      check_slots(place, slots, tokens * choices, slots_of_y);
      pool->parallel_range(tokens, row_grain(width * choices), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          T* const out = a.out<T>(0) + t * width;
          std::fill(out, out + width, T{});
          for (std::int64_t i = t * choices; i < (t + 1) * choices; ++i)
            if (slots[i] >= 0)
              add_scaled_row(a.in<T>(0) + slots[i] * width, weighs ? a.in<T>(2)[i] : T{1}, out, width);
        }
      });
    });
  });
}

template <class T>
T dot(const T* a, const T* b, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<T>(sum);
}

PreparedKernel prepare_dots(const PrepareContext& c) {
  const Shape& y = c.inputs[1].shape;
  const std::int64_t tokens = c.inputs[2].shape[0], choices = c.inputs[2].shape[1], width = y[2];
  const std::int64_t slots_of_y = y[0] * y[1];
  return with_float("braid.SlotDots", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
      const auto* slots = a.in<std::int32_t>(2);
      check_slots(place, slots, tokens * choices, slots_of_y);
      pool->parallel_range(tokens, row_grain(width * choices), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin * choices; i < end * choices; ++i)
          a.out<T>(0)[i] = slots[i] < 0
                               ? T{}
                               : dot(a.in<T>(0) + i / choices * width, a.in<T>(1) + slots[i] * width, width);
      });
    });
  });
}

AttrMap layer_attrs(const GradContext& c) {
  const AttrMap& own = c.node().attrs;
  return {{"experts", own.get("experts", std::int64_t{0})},
          {"groups", own.get("groups", std::int64_t{1})},
          {"capacity_factor", own.get("capacity_factor", 1.25)}};
}

void dispatch_gradient(GradContext& c) {
  if (!c.grad().valid()) return;
  const bool weighs = c.node().inputs.size() > 2;
  std::vector<ValueRef> back{c.grad(), c.input(1)};
  if (weighs) back.push_back(c.input(2));
  c.set_grad(0, c.op("braid.CombineTokens", std::move(back), layer_attrs(c)));
  if (weighs) c.set_grad(2, c.op("braid.SlotDots", {c.input(0), c.grad(), c.input(1)}, layer_attrs(c)));
}

void combine_gradient(GradContext& c) {
  if (!c.grad().valid()) return;
  const bool weighs = c.node().inputs.size() > 2;
  std::vector<ValueRef> back{c.grad(), c.input(1)};
  if (weighs) back.push_back(c.input(2));
  c.set_grad(0, c.op("braid.DispatchTokens", std::move(back), layer_attrs(c)));
  if (weighs) c.set_grad(2, c.op("braid.SlotDots", {c.grad(), c.input(0), c.input(1)}, layer_attrs(c)));
}

void dots_gradient(GradContext& c) {
  if (!c.grad().valid()) return;
  c.set_grad(0, c.op("braid.CombineTokens", {c.input(1), c.input(2), c.grad()}, layer_attrs(c)));
  c.set_grad(1, c.op("braid.DispatchTokens", {c.input(0), c.input(2), c.grad()}, layer_attrs(c)));
}

}  // namespace

void register_experts(OpRegistry& registry) {
  registry.add({.name = "braid.RouteToExperts",
                .traits = computes().data_outputs(0).names({"slots", "load"}).type_attrs({}),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_route,
                .no_gradient_reason = "choices are whole numbers",
                .cost = cost_per_input(4),
                .cpu = prepare_route,
                .in_files = true});
  registry.add({.name = "braid.DispatchTokens",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 3,
                .infer = infer_dispatch,
                .gradient = dispatch_gradient,
                .cost = cost_per_output(1),
                .cpu = prepare_dispatch,
                .in_files = true});
  registry.add({.name = "braid.CombineTokens",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 3,
                .infer = infer_combine,
                .gradient = combine_gradient,
                .cost = cost_per_input(2),
                .cpu = prepare_combine,
                .in_files = true});
  registry.add({.name = "braid.SlotDots",
                .traits = computes(),
                .min_inputs = 3,
                .max_inputs = 3,
                .infer = infer_dots,
                .gradient = dots_gradient,
                .cost = cost_per_input(2),
                .cpu = prepare_dots,
                .in_files = true});
}

}  // namespace braid
