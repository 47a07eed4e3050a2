// Unique(x [n]) -> y, idx: the distinct elements in the order of their first occurrence, and x[i] =
// y[idx[i]]; UniqueWithCounts adds how often each occurs; UniqueV2 and UniqueWithCountsV2 take the (only)
// axis. Every NaN is distinct. How many there are must be known before the program runs, from the value of x.
// Where(condition): the indices [n, rank] of elements that are not zero, in row-major order; likewise.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

/// first[i]: where x[i] occurs first. `order` is scratch of n.
template <class T>
void find_first(const T* x, std::int64_t n, std::int64_t* order, std::int64_t* first) {
  std::iota(order, order + n, std::int64_t{0});
  std::sort(order, order + n, [x](std::int64_t a, std::int64_t b) {
    if (x[a] < x[b]) return true;
    if (x[b] < x[a]) return false;
    const bool nan_a = x[a] != x[a], nan_b = x[b] != x[b];
    return nan_a != nan_b ? nan_b : a < b;
  });
  for (std::int64_t k = 0; k < n; ++k) {
    const bool repeats = k > 0 && x[order[k]] == x[order[k - 1]];
    first[order[k]] = repeats ? first[order[k - 1]] : order[k];
  }
}

/// Which distinct element each of the n is.
template <class I>
void number_distinct(const std::int64_t* first, std::int64_t n, I* ids) {
  I count = 0;
  for (std::int64_t i = 0; i < n; ++i) ids[i] = first[i] == i ? count++ : ids[first[i]];
}

std::int64_t count_distinct(const Tensor& x) {
  if (x.dtype() == DType::String) {
    std::unordered_set<std::string_view> distinct;
    for (std::int64_t i = 0; i < x.elements(); ++i) distinct.insert(x.string_at(i));
    return static_cast<std::int64_t>(distinct.size());
  }
  return with_number_or_bool("Unique", x.dtype(), [&]<class T>() {
    const auto n = static_cast<std::size_t>(x.elements());
    std::vector<std::int64_t> order(n), first(n);
    find_first(reinterpret_cast<const T*>(x.raw()), x.elements(), order.data(), first.data());
    std::int64_t count = 0;
    for (std::size_t i = 0; i < n; ++i) count += first[i] == static_cast<std::int64_t>(i);
    return count;
  });
}

void infer_unique(InferContext& c, bool counts) {
  c.require_rank(0, 1);
  const bool is_text = c.dtype(0) == DType::String;  // at compile time: engine/ir/string_ids.h
  if ((dtype_size(c.dtype(0)) == 0 && !is_text) || c.dtype(0) == DType::Float16 ||
      c.dtype(0) == DType::BFloat16)
    c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  if (c.inputs() > 1) {
    require_index_dtype(c, 1);
    if (c.value(1))
      for (const std::int64_t axis : tensor_to_int64s(*c.value(1))) normalized_axis(c, axis, 1);
  }
  const DType index = c.attr("out_idx", DType::Int32);
  if (index != DType::Int32 && index != DType::Int64) c.fail("out_idx must be int32 or int64");
  const std::int64_t distinct = c.value(0) ? count_distinct(*c.value(0)) : Shape::kUnknown;
  c.output(c.dtype(0), Shape{distinct});
  c.output(index, Shape{c.shape(0).has_rank() ? c.shape(0)[0] : Shape::kUnknown});
  if (counts) c.output(index, Shape{distinct});
}

PreparedKernel prepare_unique(const PrepareContext& c) {
  const std::int64_t n = c.inputs[0].shape[0], distinct = c.outputs[0].shape[0];
  const bool counts = c.outputs.size() > 2;
  return with_number_or_bool("Unique", c.inputs[0].dtype, [&]<class T>() {
    return with_index("Unique", c.outputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = 2 * static_cast<std::size_t>(n) * sizeof(std::int64_t);
      kernel.run = [=](const KernelArgs& a) {
        auto* order = static_cast<std::int64_t*>(a.scratch);
        const T* x = a.in<T>(0);
        I* ids = a.out<I>(1);
        find_first(x, n, order, order + n);
        number_distinct(order + n, n, ids);
        if (counts) std::fill(a.out<I>(2), a.out<I>(2) + distinct, I(0));
        for (std::int64_t i = n; i-- > 0;) {  // backwards: the first occurrence stays
          a.out<T>(0)[ids[i]] = x[i];
          if (counts) ++a.out<I>(2)[ids[i]];
        }
      };
      return kernel;
    });
  });
}

template <class T>
bool is_set(T x) {
  return x != T(0);
}

void infer_where(InferContext& c) {
  if (dtype_size(c.dtype(0)) == 0 || c.dtype(0) == DType::Float16 || c.dtype(0) == DType::BFloat16)
    c.fail("does not take " + std::string(dtype_name(c.dtype(0))));
  std::int64_t count = Shape::kUnknown;
  if (const Tensor* value = c.value(0))
    count = with_number_or_bool("Where", value->dtype(), [&]<class T>() {
      const T* x = reinterpret_cast<const T*>(value->raw());
      return static_cast<std::int64_t>(std::count_if(x, x + value->elements(), is_set<T>));
    });
  c.output(DType::Int64, Shape{count, c.shape(0).has_rank() ? c.shape(0).rank() : Shape::kUnknown});
}

PreparedKernel prepare_where(const PrepareContext& c) {
  const Shape shape = c.inputs[0].shape;
  return with_number_or_bool("Where", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([shape, elements = shape.elements()](const KernelArgs& a) {
      std::int64_t* y = a.out<std::int64_t>(0);
      for (std::int64_t i = 0; i < elements; ++i) {
        if (!is_set(a.in<T>(0)[i])) continue;
        std::int64_t rest = i;
        for (int axis = shape.rank(); axis-- > 0; rest /= shape[axis]) y[axis] = rest % shape[axis];
        y += shape.rank();
      }
    });
  });
}

}  // namespace

void register_unique(OpRegistry& registry) {
  const OpTraits unique = computes().on_string_ids().data_outputs(1);
  for (const bool counts : {false, true})
    for (const bool v2 : {false, true}) {
      OpDef def;
      def.name = std::string(counts ? "UniqueWithCounts" : "Unique") + (v2 ? "V2" : "");
      def.traits = counts ? unique.names({"y", "idx", "count"}) : unique.names({"y", "idx"});
      def.min_inputs = def.max_inputs = v2 ? 2 : 1;
      def.infer = [counts](InferContext& c) { infer_unique(c, counts); };
      def.no_gradient_reason = "which elements are equal decides its shape";
      def.cpu = prepare_unique;
      def.shape_values = v2 ? std::vector<int>{0, 1} : std::vector<int>{0};
      registry.add(std::move(def));
    }
  registry.add({.name = "Where",
                .traits = computes().data_outputs(0),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_where,
                .no_gradient_reason = "the output is indices",
                .cpu = prepare_where,
                .shape_values = {0}});
}

}  // namespace braid
