// Segment ops beside the sums of segment_sum.cc: UnsortedSegmentMean, Max, Min, Prod and SegmentMean, Max,
// Min, Prod. Rows are taken in the order of their positions. An empty segment is the operation's neutral
// element (the lowest or largest number, 1), of a sorted Mean, Max or Min 0. Gradients: Mean spreads dy /
// count; Max and Min give it in equal shares to the elements that equal the result; Prod gives dy times the
// product of the others, by division where no element is 0.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/segment_rules.h"

namespace braid {
namespace {

using Kind = SegmentKind;

template <Kind kKind, class T>
BRAID_VECTOR_CLONES void add_row(T* result, const T* row, std::int64_t width) {
  using W = wrapping_t<T>;
  for (std::int64_t i = 0; i < width; ++i) {
    if constexpr (kKind == Kind::Mean)
      result[i] = static_cast<T>(W(result[i]) + W(row[i]));
    else if constexpr (kKind == Kind::Prod)
      result[i] = static_cast<T>(W(result[i]) * W(row[i]));
    else if constexpr (kKind == Kind::Max)
      reduce::Max::apply(result[i], row[i]);
    else
      reduce::Min::apply(result[i], row[i]);
  }
}

template <Kind kKind>
PreparedKernel prepare(const PrepareContext& c) {
  const bool sorted = c.inputs.size() == 2;
  const std::int64_t n = c.inputs[1].shape.elements();
  const std::int64_t segments = c.outputs[0].shape[0];
  const std::int64_t width = segments == 0 ? 0 : c.outputs[0].shape.elements() / segments;
  return with_number(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    return with_index(c.node.op->name, c.inputs[1].dtype, [&]<class I>() {
      PreparedKernel kernel;
      kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
      kernel.run = [=, pool = &c.pool, place = place_of(c.node)](const KernelArgs& a) {
        check_segment_ids(place, a.in<I>(1), n, segments);
        const IndexGroups groups(a.in<I>(1), n, segments, a.scratch);
        T* out = a.out<T>(0);
        pool->parallel_range(segments * width, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
          std::fill(out + begin, out + end, value_of_empty_segment<T>(kKind, sorted));
        });
        pool->parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t g = first; g < last; ++g) {
            T* row = out + groups.index(g) * width;
            const std::int64_t begin = groups.begin(g), end = groups.end(g);
            std::copy_n(a.in<T>(0) + groups.position(begin) * width, width, row);
            for (std::int64_t e = begin + 1; e < end; ++e)
              add_row<kKind>(row, a.in<T>(0) + groups.position(e) * width, width);
            if constexpr (kKind == Kind::Mean)
              for (std::int64_t i = 0; i < width; ++i) row[i] /= static_cast<T>(end - begin);
          }
        });
      };
      return kernel;
    });
  });
}

// -------------------------------------------------------------------------------------------------------
// gradients

bool is_sorted_form(GradContext& c) { return c.node().inputs.size() == 2; }

/// Each element gets its segment's; 0 where the id is negative.
ValueRef spread(GradContext& c, ValueRef of_segments) {
  return c.op(is_sorted_form(c) ? "Gather" : "braid.GatherOrZero", {of_segments, c.input(1)});
}

ValueRef reduce(GradContext& c, const std::string& operation, ValueRef data) {
  if (is_sorted_form(c)) return c.op("Segment" + operation, {data, c.input(1)});
  return c.op("UnsortedSegment" + operation, {data, c.input(1), c.input(2)});
}

ValueRef as_number(GradContext& c, ValueRef condition) {
  return c.op("Cast", {condition}, {{"DstT", c.input_info(0).dtype}, {"SrcT", DType::Bool}});
}

void gradient_mean(GradContext& c) {
  const ValueRef counts = reduce(c, "Sum", c.op("OnesLike", {c.input(0)}));
  c.set_grad(0, spread(c, c.op("DivNoNan", {c.grad(), counts})));
}

void gradient_extreme(GradContext& c) {
  const ValueRef hit = as_number(c, c.op("Equal", {c.input(0), spread(c, c.output())}));
  const ValueRef hits = reduce(c, "Sum", hit);
  c.set_grad(0, grad::mul(c, hit, spread(c, c.op("DivNoNan", {c.grad(), hits}))));
}

void gradient_product(GradContext& c) {
  const ValueRef x = c.input(0), zero = c.op("ZerosLike", {x}), one = c.op("OnesLike", {x});
  const ValueRef is_zero = c.op("Equal", {x, zero});
  const ValueRef zeros = reduce(c, "Sum", as_number(c, is_zero));
  const ValueRef others = reduce(c, "Prod", c.op("Select", {is_zero, one, x}));  // without the zeros
  const ValueRef quotient = c.op("DivNoNan", {spread(c, c.output()), x});
  const ValueRef slope = c.op("Select", {is_zero, spread(c, others), quotient});
  // Two zeros in a segment: nothing changes its product.
  const ValueRef flows = as_number(c, c.op("LessEqual", {zeros, grad::scalar(c, 1)}));
  c.set_grad(0, grad::mul(c, slope, spread(c, grad::mul(c, c.grad(), flows))));
}

struct Row {
  const char* name;
  PreparedKernel (*prepare)(const PrepareContext&);
  void (*gradient)(GradContext&);
};

constexpr Row kRows[] = {
    {"UnsortedSegmentMean", prepare<Kind::Mean>, gradient_mean},
    {"UnsortedSegmentMax", prepare<Kind::Max>, gradient_extreme},
    {"UnsortedSegmentMin", prepare<Kind::Min>, gradient_extreme},
    {"UnsortedSegmentProd", prepare<Kind::Prod>, gradient_product},
    {"SegmentMean", prepare<Kind::Mean>, gradient_mean},
    {"SegmentMax", prepare<Kind::Max>, gradient_extreme},
    {"SegmentMin", prepare<Kind::Min>, gradient_extreme},
    {"SegmentProd", prepare<Kind::Prod>, gradient_product},
};

}  // namespace

void register_segment_reduce(OpRegistry& registry) {
  for (const Row& row : kRows) {
    const bool sorted = std::string_view(row.name).starts_with("Segment");
    OpDef def;
    def.name = row.name;
    if (sorted)
      def.traits = computes();
    else
      def.traits = computes().type_attrs({{"T", 0}, {"Tindices", 1}, {"Tnumsegments", 2}});
    if (row.gradient == gradient_extreme && !sorted) def.traits = def.traits.keeps_range();
    def.min_inputs = def.max_inputs = sorted ? 2 : 3;
    def.infer = sorted ? infer_sorted_segments : infer_unsorted_segments;
    def.gradient = row.gradient;
    def.cpu = row.prepare;
    def.shape_values = {sorted ? 1 : 2};
    registry.add(std::move(def));
  }
}

}  // namespace braid
