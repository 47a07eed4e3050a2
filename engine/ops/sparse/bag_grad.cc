// What the gradient of braid.Bag is made of (engine/ops/sparse/bag_args.h has the terms):
//   braid.BagScale(x [B, dim], ids, [offsets], [weights]) -> s_b x[b]
//   braid.BagRows(x [B, dim], ids, [offsets], [weights]) -> [n, dim]: w_k x[b] for id k of bag b, and zeros
//     for ids of no bag; the gradients of the rows of single ids. Its pooling is sum.
//   braid.BagMaxRows(table handle, ids, [offsets], dy [B, dim], y [B, dim]) -> [n, dim]: each element of
//   dy[b]
//     in the row of the first id of bag b whose row of the table has y[b] there, and zeros; of pooling max
//   braid.BagIds(ids [n], offsets [B + 1]) -> [n]: ids, and -1 in the place of those of no bag
//   braid.BagOf(like [n, ...], offsets [B + 1]) -> [n] int32: the bag of each of n ids, counted from the
//     attribute "first"; `first` for ids of no bag. Without offsets: of bags [B, ...] of "hot" ids each
#include <algorithm>
#include <vector>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/sparse/bag_parts.h"

namespace braid {
namespace {

constexpr const char* kNoSecondDerivative = "it is part of a gradient; second derivatives are not made";
constexpr const char* kNoIdGradient = "ids have no gradient";

BagInputs inputs_of(const Node& node) { return bag_inputs(node.attrs, false); }

/// Checks x and the bags, whose number is returned.
std::int64_t check(InferContext& c) {
  const BagInputs in = inputs_of(c.node());
  if (c.inputs() != 1 + in.stride())
    c.fail("inputs must be x, ids" + std::string(in.ragged ? ", offsets" : "") +
           (in.weighted ? ", weights" : "") + ", got " + std::to_string(c.inputs()));
  require_floating(c, 0);
  c.require_rank(0, 2);
  if (in.weighted) c.require_same_dtype(0, in.weights(0, 1));
  const std::int64_t bags = check_bag_inputs(c, in, 1);
  const std::int64_t rows = c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown;
  if (bags >= 0 && rows >= 0 && bags != rows)
    c.fail("x has " + std::to_string(rows) + " rows for " + std::to_string(bags) + " bags");
  return bags < 0 ? rows : bags;
}

void infer_scale(InferContext& c) {
  const std::int64_t bags = check(c);
  c.output(c.dtype(0), {bags, c.shape(0).has_rank() ? c.shape(0)[1] : Shape::kUnknown});
}

void infer_rows(InferContext& c) {
  const BagInputs in = inputs_of(c.node());
  if (in.pooling != Pooling::Sum) c.fail("pooling must be sum");
  check(c);
  const Shape& ids = c.shape(in.ids(0, 1));
  std::int64_t n = ids.has_rank() ? 1 : Shape::kUnknown;
  for (int axis = 0; ids.has_rank() && axis < ids.rank(); ++axis)
    n = n < 0 || ids[axis] < 0 ? Shape::kUnknown : n * ids[axis];
  c.output(c.dtype(0), {n, c.shape(0).has_rank() ? c.shape(0)[1] : Shape::kUnknown});
}

void infer_ids(InferContext& c) {
  for (const int i : {0, 1}) {
    require_index_dtype(c, i);
    c.require_rank(i, 1);
  }
  c.output(c.dtype(0), {c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown});
}

BagSizes sizes_of(const PrepareContext& c, const BagInputs& in) {
  const auto shape = [&](int i) { return &c.inputs[static_cast<std::size_t>(i)].shape; };
  return bag_sizes(in, *shape(in.ids(0, 1)), in.ragged ? shape(in.offsets(0, 1)) : nullptr);
}

template <class T>
BRAID_VECTOR_CLONES void scaled_row(const T* x, T by, T* y, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) y[i] = by * x[i];
}

/// body(parts, args) with the types of offsets and x. Ids are not looked at.
template <class Body>
PreparedKernel with_parts(const PrepareContext& c, const Body& body) {
  const BagInputs in = inputs_of(c.node);
  const std::string& name = c.node.op->name;
  const DType offsets = in.ragged ? c.inputs[static_cast<std::size_t>(in.offsets(0, 1))].dtype : DType::Int64;
  return with_float(name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(name, offsets, [&]<class O>() {
      return serial_kernel([=, sizes = sizes_of(c, in), place = place_of(c.node)](const KernelArgs& a) {
        const BagParts<T, std::int32_t, O> parts{nullptr, in.ragged ? a.in<O>(in.offsets(0, 1)) : nullptr,
                                                 in.weighted ? a.in<T>(in.weights(0, 1)) : nullptr, sizes,
                                                 in.pooling};
        parts.check_offsets(place);
        body.template operator()<T>(parts, a);
      });
    });
  });
}

PreparedKernel prepare_scale(const PrepareContext& c) {
  const std::int64_t width = c.outputs[0].shape[1];
  return with_parts(c, [width, pool = &c.pool]<class T>(const auto& parts, const KernelArgs& a) {
    pool->parallel_range(parts.sizes.bags, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        scaled_row(a.in<T>(0) + b * width, parts.scale(b), a.out<T>(0) + b * width, width);
    });
  });
}

PreparedKernel prepare_rows(const PrepareContext& c) {
  const std::int64_t width = c.outputs[0].shape[1];
  return with_parts(c, [width, pool = &c.pool]<class T>(const auto& parts, const KernelArgs& a) {
    const std::int64_t bags = parts.sizes.bags;
    const std::int64_t of_bag = bags == 0 ? 1 : parts.sizes.ids / bags + 1;
    pool->parallel_range(bags, row_grain(width * of_bag), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        for (std::int64_t k = parts.begin(b); k < parts.end(b); ++k)
          scaled_row(a.in<T>(0) + b * width, parts.weight(k), a.out<T>(0) + k * width, width);
    });
    std::fill(a.out<T>(0) + parts.used() * width, a.out<T>(0) + parts.sizes.ids * width, T{});
  });
}

void infer_max_rows(InferContext& c) {
  const BagInputs in = bag_inputs(c.node().attrs, true);
  if (in.pooling != Pooling::Max) c.fail("pooling must be max");
  const int dy = in.stride();
  if (c.inputs() != dy + 2)
    c.fail("inputs must be table, ids, [offsets], dy, y, got " + std::to_string(c.inputs()));
  if (c.dtype(0) != DType::Resource) c.fail("input 0 must be a variable's handle");
  check_bag_inputs(c, in, 0);
  for (const int i : {dy, dy + 1}) {
    require_floating(c, i);
    c.require_rank(i, 2);
  }
  c.require_same_dtype(dy, dy + 1);
  const Shape& ids = c.shape(in.ids(0));
  std::int64_t n = ids.has_rank() ? 1 : Shape::kUnknown;
  for (int axis = 0; ids.has_rank() && axis < ids.rank(); ++axis)
    n = n < 0 || ids[axis] < 0 ? Shape::kUnknown : n * ids[axis];
  c.output(c.dtype(dy), {n, c.shape(dy).has_rank() ? c.shape(dy)[1] : Shape::kUnknown});
}

/// One bag: elements that no id before had are given to id k.
template <class T>
void give_to_largest(const T* row, const T* dy, const T* y, T* to, std::vector<char>& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const bool is_it = given[i] == 0 && row[i] == y[i];
    to[i] = is_it ? dy[i] : T(0);
    given[i] = static_cast<char>(given[i] | static_cast<char>(is_it));
  }
}

PreparedKernel prepare_max_rows(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, true);
  const int dy = in.stride();
  const auto shape = [&](int i) { return &c.inputs[static_cast<std::size_t>(i)].shape; };
  const BagSizes sizes = bag_sizes(in, *shape(in.ids(0)), in.ragged ? shape(in.offsets(0)) : nullptr);
  const std::int64_t width = c.outputs[0].shape[1], table_rows = (*shape(0))[0];
  const std::string& name = c.node.op->name;
  const DType ids = c.inputs[static_cast<std::size_t>(in.ids(0))].dtype;
  const DType offsets = in.ragged ? c.inputs[static_cast<std::size_t>(in.offsets(0))].dtype : DType::Int64;
  return with_float(name, c.inputs[static_cast<std::size_t>(dy)].dtype, [&]<class T>() {
    return with_index(name, ids, [&]<class I>() {
      return with_index(name, offsets, [&]<class O>() {
        return serial_kernel([=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
          const BagParts<T, I, O> parts{a.in<I>(in.ids(0)), in.ragged ? a.in<O>(in.offsets(0)) : nullptr,
                                        nullptr, sizes, in.pooling};
          parts.check_offsets(place);
          check_indices(place, parts.ids, parts.used(), table_rows);
          const std::int64_t of_bag = sizes.bags == 0 ? 1 : sizes.ids / sizes.bags + 1;
          pool->parallel_range(
              sizes.bags, row_grain(width * of_bag), [&](std::int64_t begin, std::int64_t end) {
                std::vector<char> given(static_cast<std::size_t>(width));
                for (std::int64_t b = begin; b < end; ++b) {
                  std::ranges::fill(given, 0);
                  for (std::int64_t k = parts.begin(b); k < parts.end(b); ++k)
                    give_to_largest(a.in<T>(0) + static_cast<std::int64_t>(parts.ids[k]) * width,
                                    a.in<T>(dy) + b * width, a.in<T>(dy + 1) + b * width,
                                    a.out<T>(0) + k * width, given);
                }
              });
          std::fill(a.out<T>(0) + parts.used() * width, a.out<T>(0) + sizes.ids * width, T{});
        });
      });
    });
  });
}

PreparedKernel prepare_ids(const PrepareContext& c) {
  const std::string& name = c.node.op->name;
  const BagSizes sizes{c.inputs[1].shape[0] - 1, c.inputs[0].shape[0], 0};
  return with_index(name, c.inputs[0].dtype, [&]<class I>() {
    return with_index(name, c.inputs[1].dtype, [&]<class O>() {
      return serial_kernel([sizes, place = place_of(c.node)](const KernelArgs& a) {
        const BagParts<float, I, O> parts{a.in<I>(0), a.in<O>(1), nullptr, sizes, Pooling::Sum};
        parts.check_offsets(place);
        std::copy_n(parts.ids, parts.used(), a.out<I>(0));
        std::fill(a.out<I>(0) + parts.used(), a.out<I>(0) + sizes.ids, I{-1});
      });
    });
  });
}

void infer_bag_of(InferContext& c) {
  require_min_rank(c, 0, 1);
  if (c.inputs() > 1) {
    require_index_dtype(c, 1);
    c.require_rank(1, 1);
  }
  const auto hot = c.attr("hot", std::int64_t{1});
  if (hot < 1) c.fail("hot must be positive");
  const std::int64_t rows = c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown;
  c.output(DType::Int32, {rows < 0 || c.inputs() > 1 ? rows : rows * hot});
}

template <class O>
void number_bags(const BagParts<float, std::int32_t, O>& parts, std::int32_t first, std::int32_t* of) {
  for (std::int64_t b = 0; b < parts.sizes.bags; ++b)
    std::fill(of + parts.begin(b), of + parts.end(b), first + static_cast<std::int32_t>(b));
  std::fill(of + parts.used(), of + parts.sizes.ids, first);
}

PreparedKernel prepare_bag_of(const PrepareContext& c) {
  const bool ragged = c.inputs.size() > 1;
  const std::int64_t n = c.outputs[0].shape[0];
  const auto hot = c.attr("hot", std::int64_t{1});
  const BagSizes sizes{ragged ? c.inputs[1].shape[0] - 1 : c.inputs[0].shape[0], n, ragged ? 0 : hot};
  const auto first = static_cast<std::int32_t>(c.attr("first", std::int64_t{0}));
  return with_index(c.node.op->name, ragged ? c.inputs[1].dtype : DType::Int64, [&]<class O>() {
    return serial_kernel([=, place = place_of(c.node)](const KernelArgs& a) {
      const BagParts<float, std::int32_t, O> parts{nullptr, ragged ? a.in<O>(1) : nullptr, nullptr, sizes,
                                                   Pooling::Sum};
      parts.check_offsets(place);
      number_bags(parts, first, a.out<std::int32_t>(0));
    });
  });
}

OpDef of_bags(std::string name, std::function<void(InferContext&)> infer, PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = computes(),
          .min_inputs = 2,
          .max_inputs = 4,
          .infer = std::move(infer),
          .no_gradient_reason = kNoSecondDerivative,
          .cost = cost_per_output(1),
          .cpu = std::move(cpu)};
}

}  // namespace

void register_bag_grad(OpRegistry& registry) {
  registry.add(of_bags("braid.BagScale", infer_scale, prepare_scale));
  registry.add(takes_halves(of_bags("braid.BagRows", infer_rows, prepare_rows),
                            {.kind = HalfKind::Follower, .inputs = {0}}));
  OpDef max_rows = of_bags("braid.BagMaxRows", infer_max_rows, prepare_max_rows);
  max_rows.min_inputs = 4;
  max_rows.max_inputs = 5;
  max_rows.handles = {Access::Read};
  registry.add(std::move(max_rows));
  registry.add({.name = "braid.BagIds",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_ids,
                .no_gradient_reason = kNoIdGradient,
                .cpu = prepare_ids});
  registry.add({.name = "braid.BagOf",
                .traits = computes(),
                .min_inputs = 1,
                .max_inputs = 2,
                .infer = infer_bag_of,
                .no_gradient_reason = kNoIdGradient,
                .cpu = prepare_bag_of,
                .shape_only = {0}});
}

}  // namespace braid
