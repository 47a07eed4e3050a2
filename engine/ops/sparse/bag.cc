// braid.Bag(table handle, ids, [offsets], [weights]) -> [B, dim]: the rows of each bag's ids, pooled
// (engine/ops/sparse/bag_args.h). Rows are read and sums written: no row of a single id is in memory between.
// The variable's gradient is rows (braid.BagRows), which the compiler does not make where an optimizer's
// update can read the sums' gradient itself (engine/rewrite/bag_updates.cc).
// Sums are of the table's type; mixed precision has those of float32 rounded once to 16 bits
// (common/halves.h). braid.BagMany(the same for any number of tables, one after another) has an output for
// each, or for some of them a common one, of which they write columns (kJoinOffsets). The compiler makes it
// (engine/rewrite/group_gathers.cc, join_bags.cc). An id out of range is InvalidArgument.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_sums.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/sparse/bag_parts.h"

namespace braid {

std::int64_t check_bag_inputs(InferContext& c, const BagInputs& in, int first) {
  const int ids = in.ids(0, first);
  require_index_dtype(c, ids);
  c.require_rank(ids, in.ragged ? 1 : 2);
  std::int64_t bags = c.shape(ids).has_rank() && !in.ragged ? c.shape(ids)[0] : Shape::kUnknown;
  if (in.ragged) {
    const int offsets = in.offsets(0, first);
    require_index_dtype(c, offsets);
    c.require_rank(offsets, 1);
    const std::int64_t n = c.shape(offsets).has_rank() ? c.shape(offsets)[0] : Shape::kUnknown;
    if (n == 0) c.fail("offsets must have one element more than there are bags, got none");
    bags = n < 0 ? n : n - 1;
  }
  if (in.weighted && in.pooling == Pooling::Max) c.fail("pooling max has no weights");
  if (in.weighted) {
    require_floating(c, in.weights(0, first));
    merged_shape(c, ids, in.weights(0, first));
  }
  return bags;
}

namespace {

void infer(InferContext& c) {
  const BagInputs in = bag_inputs(c.node().attrs, true);
  const DType dtype = c.node().attrs.require<DType>("dtype");
  if (c.inputs() % in.stride() != 0 || (c.inputs() != in.stride() && c.node().op->max_inputs >= 0))
    c.fail("inputs must be table, ids" + std::string(in.ragged ? ", offsets" : "") +
           (in.weighted ? ", weights" : "") + ", got " + std::to_string(c.inputs()));
  const BagPlaces places(c.node().attrs, c.inputs() / in.stride());
  std::int64_t joined_bags = Shape::kUnknown;
  for (int t = 0; in.table(t) < c.inputs(); ++t) {
    const int table = in.table(t);
    if (c.dtype(table) != DType::Resource)
      c.fail("input " + std::to_string(table) + " must be a variable's handle");
    c.require_rank(table, 2);
    const std::int64_t bags = check_bag_inputs(c, in, table);
    if (in.weighted && c.dtype(in.weights(t)) != dtype) c.fail("weights must be of the table's type");
    const std::int64_t width = c.shape(table).has_rank() ? c.shape(table)[1] : Shape::kUnknown;
    if (!places.joins(t)) {
      c.output(dtype, {bags, width});
      continue;
    }
    if (places.offset(t) + std::max<std::int64_t>(width, 0) > places.width)
      c.fail("columns of table " + std::to_string(t) + " are not among " + std::to_string(places.width));
    if (joined_bags >= 0 && bags >= 0 && bags != joined_bags)
      c.fail("joined tables have " + std::to_string(joined_bags) + " and " + std::to_string(bags) + " bags");
    joined_bags = std::max(joined_bags, bags);
  }
  if (!places.offsets.empty()) c.output(dtype, {joined_bags, places.width});
}

template <class T>
BRAID_VECTOR_CLONES void add_rows(T* sum, const T* const* rows, std::int64_t n, std::int64_t width) {
  for (std::int64_t k = 0; k < n; ++k) add_row(sum, rows[k], width);
}
template <class T>
BRAID_VECTOR_CLONES void add_weighted_row(T* sum, const T* row, T weight, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) sum[i] += weight * row[i];
}
template <class T>
BRAID_VECTOR_CLONES void raise_to_row(T* most, const T* row, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) most[i] = row[i] > most[i] ? row[i] : most[i];
}
template <class T>
BRAID_VECTOR_CLONES void multiply_row(T* row, T by, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) row[i] *= by;
}

/// `out`, a bag's sum of `table` [rows, width].
template <class T, class Parts>
void pool_bag(const Parts& parts, std::int64_t bag, const T* table, std::int64_t width, T* out) {
  constexpr std::int64_t kAtOnce = 16;
  std::fill(out, out + width, T{});
  const std::int64_t end = parts.end(bag);
  if (parts.pooling == Pooling::Max) {
    for (std::int64_t k = parts.begin(bag); k < end; ++k) {
      const T* const row = table + static_cast<std::int64_t>(parts.ids[k]) * width;
      if (k == parts.begin(bag))
        std::copy_n(row, width, out);
      else
        raise_to_row(out, row, width);
    }
    return;
  }
  if (parts.weights) {
    for (std::int64_t k = parts.begin(bag); k < end; ++k)
      add_weighted_row(out, table + static_cast<std::int64_t>(parts.ids[k]) * width, parts.weights[k], width);
  } else {
    const T* rows[kAtOnce];
    for (std::int64_t k = parts.begin(bag); k < end; k += kAtOnce) {
      const std::int64_t n = std::min(kAtOnce, end - k);
      for (std::int64_t i = 0; i < n; ++i)
        rows[i] = table + static_cast<std::int64_t>(parts.ids[k + i]) * width;
      add_rows(out, rows, n, width);
    }
  }
  if (parts.pooling != Pooling::Sum) multiply_row(out, parts.scale(bag), width);
}

struct TableBags {
  BagSizes sizes;
  std::int64_t rows, width;
  DType ids, offsets;
  // Of the output.
  int output;
  std::int64_t offset, stride;
};

std::vector<TableBags> tables_of(const PrepareContext& c, const BagInputs& in) {
  std::vector<TableBags> tables;
  const BagPlaces places(c.node.attrs, static_cast<int>(c.inputs.size()) / in.stride());
  for (int t = 0; in.table(t) < static_cast<int>(c.inputs.size()); ++t) {
    const auto info = [&](int i) -> const OutputInfo& { return c.inputs[static_cast<std::size_t>(i)]; };
    const OutputInfo* offsets = in.ragged ? &info(in.offsets(t)) : nullptr;
    const Shape& table = info(in.table(t)).shape;
    tables.push_back({bag_sizes(in, info(in.ids(t)).shape, offsets ? &offsets->shape : nullptr), table[0],
                      table[1], info(in.ids(t)).dtype, offsets ? offsets->dtype : DType::Int64,
                      places.output(t), places.offset(t), places.stride(t, table[1])});
  }
  return tables;
}

template <class T, class I, class O>
void pool(const TableBags& b, const BagInputs& in, int t, const std::string& place, ThreadPool& pool,
          const KernelArgs& a) {
  const BagParts<T, I, O> parts{a.in<I>(in.ids(t)), in.ragged ? a.in<O>(in.offsets(t)) : nullptr,
                                in.weighted ? a.in<T>(in.weights(t)) : nullptr, b.sizes, in.pooling};
  parts.check_offsets(place);
  check_indices(place, parts.ids, parts.used(), b.rows);
  const std::int64_t of_bag = b.sizes.bags == 0 ? 1 : b.sizes.ids / b.sizes.bags + 1;
  pool.parallel_range(b.sizes.bags, row_grain(b.width * of_bag), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t bag = begin; bag < end; ++bag)
      pool_bag(parts, bag, a.in<T>(in.table(t)), b.width, a.out<T>(b.output) + bag * b.stride + b.offset);
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  const BagInputs in = bag_inputs(c.node.attrs, true);
  const std::string& name = c.node.op->name;
  return with_float(name, c.attr("dtype", DType::Invalid), [&]<class T>() {
    return serial_kernel([in, name, tables = tables_of(c, in), place = place_of(c.node),
                          threads = &c.pool](const KernelArgs& a) {
      for (std::size_t t = 0; t < tables.size(); ++t)
        with_index(name, tables[t].ids, [&]<class I>() {
          with_index(name, tables[t].offsets, [&]<class O>() {
            pool<T, I, O>(tables[t], in, static_cast<int>(t), place, *threads, a);
          });
        });
    });
  });
}

/// The gradient of weight k is the product of sum b's gradient with table[ids[k]] - y[b], or for sqrtn with
/// table[ids[k]] - w_k s_b y[b], times s_b. Weights are data as a rule, so it is made of ops that are there.
ValueRef weight_gradient(GradContext& c, const BagInputs& in, const AttrMap& attrs, ValueRef scaled,
                         ValueRef ids) {
  const auto vector = [&](std::initializer_list<std::int64_t> v) {
    return c.constant(Tensor::from<std::int64_t>({std::ssize(v)}, std::vector<std::int64_t>(v)));
  };
  AttrMap plain = attrs;
  plain.set(kPooling, std::string("sum"));
  plain.set(kBagWeights, false);
  std::vector<ValueRef> lists{c.input(in.ids(0))};
  if (in.ragged) lists.push_back(c.input(in.offsets(0)));
  const auto of_ids = [&](ValueRef of_bags) {
    std::vector<ValueRef> inputs{of_bags};
    inputs.insert(inputs.end(), lists.begin(), lists.end());
    return c.op("braid.BagRows", inputs, plain);
  };
  ValueRef rows =
      c.op("braid.ResourceGatherOrZero", {c.input(0), ids}, {{"dtype", attrs.get("dtype", DType::Float32)}});
  if (in.pooling == Pooling::Mean) rows = grad::sub(c, rows, of_ids(c.output()));
  if (in.pooling == Pooling::SqrtN) {
    std::vector<ValueRef> inputs{c.output(), c.input(in.ids(0))};
    if (in.ragged) inputs.push_back(c.input(in.offsets(0)));
    inputs.push_back(c.input(in.weights(0)));
    AttrMap weighted = attrs;
    std::vector<ValueRef> scale = inputs;
    const ValueRef scaled_sums = c.op("braid.BagScale", scale, weighted);
    inputs[0] = scaled_sums;
    weighted.set(kPooling, std::string("sum"));
    rows = grad::sub(c, rows, c.op("braid.BagRows", inputs, weighted));
  }
  const ValueRef products = grad::mul(c, rows, of_ids(scaled));
  const ValueRef sums = c.op("Sum", {products, vector({1})}, {{"keep_dims", false}});
  return c.reshape_like(sums, c.input(in.weights(0)));
}

/// Rows by ids [n], of which those that belong to no bag are -1.
void gradient(GradContext& c) {
  const BagInputs in = bag_inputs(c.node().attrs, true);
  AttrMap attrs;
  for (const char* name : {kPooling, kRagged, kBagWeights})
    if (const Attr* value = c.node().attrs.find(name)) attrs.set(name, *value);
  std::vector<ValueRef> inputs{c.grad(), c.input(in.ids(0))};
  if (in.ragged) inputs.push_back(c.input(in.offsets(0)));
  const ValueRef ids =
      in.ragged
          ? c.op("braid.BagIds", {c.input(in.ids(0)), c.input(in.offsets(0))}, {{kPadsIndices, true}})
          : c.op("Reshape", {c.input(in.ids(0)),
                             c.constant(Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{-1}))});
  if (in.pooling == Pooling::Max) {
    std::vector<ValueRef> lists{c.input(0), c.input(in.ids(0))};
    if (in.ragged) lists.push_back(c.input(in.offsets(0)));
    lists.insert(lists.end(), {c.grad(), c.output()});
    return c.set_grad(0, IndexedSlices{ids, c.op("braid.BagMaxRows", lists, attrs)});
  }
  if (in.weighted) inputs.push_back(c.input(in.weights(0)));
  if (in.pooling != Pooling::Sum) inputs[0] = c.op("braid.BagScale", inputs, attrs);
  AttrMap sum = attrs;
  sum.set(kPooling, std::string("sum"));
  c.set_grad(0, IndexedSlices{ids, c.op("braid.BagRows", inputs, sum)});
  if (!in.weighted) return;
  attrs.set("dtype", c.node().attrs.require<DType>("dtype"));
  c.set_grad(in.weights(0), weight_gradient(c, in, attrs, inputs[0], ids));
}

/// Only the rows of the ids are touched, not the tables.
Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const BagInputs in = bag_inputs(c.node().attrs, true);
  Cost sum;
  for (int t = 0; in.table(t) < c.inputs(); ++t) {
    const int ids = in.ids(t);
    const Shape& table = c.shape(in.table(t));
    const double width = table.has_rank() && table[1] >= 0 ? static_cast<double>(table[1]) : 1;
    const double elements = known_elements(c.shape(ids)) * width;
    sum.flops += elements;
    sum.bytes += elements * static_cast<double>(dtype_size(outputs[0].dtype)) +
                 known_bytes({c.dtype(ids), c.shape(ids)});
  }
  for (const OutputInfo& output : outputs) sum.bytes += known_bytes(output);
  return sum;
}

}  // namespace

void register_bag(OpRegistry& registry) {
  OpDef bag{.name = "braid.Bag",
            .traits = computes().any_type().type_attrs({}),
            .min_inputs = 2,
            .max_inputs = 4,
            .infer = infer,
            .gradient = gradient,
            .cost = cost,
            .cpu = prepare,
            .handles = {Access::Read},
            .in_files = true};
  registry.add(takes_halves(bag, {.kind = HalfKind::Follower, .outputs = {-1}}));
  bag.name = "braid.BagMany";
  bag.traits = bag.traits.output_list();
  bag.max_inputs = -1;
  bag.gradient = {};
  bag.no_gradient_reason = "the compiler makes it, after gradients are made";
  bag.handles = {};
  bag.further_handles = Access::Read;
  bag.in_files = false;
  registry.add(takes_halves(std::move(bag), {.kind = HalfKind::Follower, .outputs = {-1}}));
}

}  // namespace braid
