// Crosses of sparse columns, and sparse tensors that are merged, cut and spread into dense ones, as feature
// columns with weights and indicators do it (bounded_values.h).
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ir/op.h"
#include "worker/model/bounded_values.h"

namespace braid::worker {
namespace {

using Kind = Bounded::Kind;

// ------------------------------------------------------------------------------------------------
// fingerprints

constexpr std::uint64_t kMul = 0xc6a4a7935bd1e995;  // of TensorFlow's FingerprintCat64

/// v ^ v >> 47, without sign.
ValueRef shift_mix(BoundedGraph& g, ValueRef v) {
  const ValueRef high = g.op("BitwiseAnd", {g.op("RightShift", {v, g.number(47)}), g.number((1 << 17) - 1)});
  return g.op("BitwiseXor", {v, high});
}

/// The fingerprint of two.
ValueRef chained(BoundedGraph& g, ValueRef first, ValueRef second) {
  const auto times = [&](ValueRef v) { return g.op("Mul", {v, g.number(static_cast<std::int64_t>(kMul))}); };
  ValueRef result = g.op("BitwiseXor", {first, g.number(static_cast<std::int64_t>(kMul))});
  result = g.op("BitwiseXor", {result, times(shift_mix(g, times(second)))});
  return shift_mix(g, times(shift_mix(g, times(result))));
}

/// hash modulo buckets, of 64 bits without sign that an int64 holds.
ValueRef bucket_of(BoundedGraph& g, ValueRef hash, std::int64_t buckets) {
  const auto count = static_cast<std::uint64_t>(buckets);
  const auto turn = (std::numeric_limits<std::uint64_t>::max() % count + 1) % count;  // 2^64 modulo buckets
  const ValueRef is_negative = g.op("Less", {hash, g.number(0)});
  const ValueRef more =
      g.op("SelectV2", {is_negative, g.number(static_cast<std::int64_t>(turn)), g.number(0)});
  const ValueRef part = g.op("FloorMod", {hash, g.number(buckets)});
  return g.op("FloorMod", {g.op("Add", {part, more}), g.number(buckets)});
}

// ------------------------------------------------------------------------------------------------
// crosses

struct CrossColumn {
  ValueRef ids, valid;  // [rows, elements]; which elements count, or none where all do
};

ValueRef vector_of(BoundedGraph& g, ValueRef number, std::vector<std::int64_t> behind) {
  const ValueRef first = g.op("ExpandDims", {number, g.number(0, DType::Int32)});
  return g.op("ConcatV2", {first, g.numbers(std::move(behind)), g.number(0, DType::Int32)},
              {{"N", std::int64_t{2}}});
}

ValueRef shaped(BoundedGraph& g, ValueRef value, ValueRef rows, std::vector<std::int64_t> behind) {
  return g.op("Reshape", {value, vector_of(g, rows, std::move(behind))}, {{"Tshape", DType::Int64}});
}

/// Whether these are all places of a dense value, row by row, as bucketized columns number them.
bool are_all_places(const BoundedGraph& g, ValueRef indices) {
  const auto maker = [&](ValueRef value) -> const Node& { return g.graph.node(value.node); };
  while (maker(indices).op->name == "Cast" || maker(indices).op->role == OpRole::Identity)
    indices = maker(indices).inputs[0];
  return maker(indices).op->name == "Transpose" && maker(maker(indices).inputs[0]).op->name == "Pack";
}

/// A sparse input whose elements are all places of a dense value, row by row.
std::optional<CrossColumn> sparse_column(BoundedGraph& g, ValueRef indices, ValueRef values, ValueRef rows) {
  const Bounded *at = g.find(indices), *found = g.find(values);
  if (g.graph.info(values).dtype != DType::Int64 || (at == nullptr) != (found == nullptr))
    return std::nullopt;
  if (!at && !are_all_places(g, indices)) return std::nullopt;
  if (!at) return CrossColumn{shaped(g, values, rows, {-1}), {}};
  if (at->kind != Kind::Rows || found->kind != Kind::Rows || found->set != at->set || at->set->all)
    return std::nullopt;
  if (!at->set->coordinates.valid() || at->padded != at->set->coordinates || g.rank(found->padded) != 1)
    return std::nullopt;
  const ValueRef ids = found->padded, valid = at->set->valid;  // nodes that are added move them
  return CrossColumn{shaped(g, ids, rows, {-1}), shaped(g, valid, rows, {-1})};
}

/// All pairs of what two values have in a row: [rows, n] and [rows, m] -> [rows, n, 1] and [rows, 1, m].
std::pair<ValueRef, ValueRef> facing(BoundedGraph& g, ValueRef first, ValueRef second) {
  return {g.op("ExpandDims", {first, g.number(2, DType::Int32)}),
          g.op("ExpandDims", {second, g.number(1, DType::Int32)})};
}

ValueRef both(BoundedGraph& g, ValueRef first, ValueRef second) {
  const auto [a, b] = facing(g, first, second);
  return g.op("LogicalAnd", {a, b});
}

/// Combinations of one element each of a row's columns, for all places of the columns.
CrossColumn crossed(BoundedGraph& g, const std::vector<CrossColumn>& columns, std::int64_t key,
                    ValueRef rows) {
  CrossColumn result{chained(g, g.number(key), columns[0].ids), columns[0].valid};
  for (std::size_t i = 1; i < columns.size(); ++i) {
    const CrossColumn& next = columns[i];
    if (result.valid.valid() || next.valid.valid()) {
      const auto mask = [&](const CrossColumn& c) {
        return c.valid.valid() ? c.valid : g.op("Equal", {c.ids, c.ids});  // all of them
      };
      result.valid = shaped(g, both(g, mask(result), mask(next)), rows, {-1});
    }
    const auto [a, b] = facing(g, result.ids, next.ids);
    result.ids = shaped(g, chained(g, a, b), rows, {-1});
  }
  return result;
}

bool sparse_cross(BoundedGraph& g) {
  const AttrMap& attrs = g.node().attrs;
  const auto buckets = attrs.get("num_buckets", std::int64_t{0});
  const auto key = attrs.get("hash_key", std::int64_t{0});
  constexpr std::int64_t kMostBuckets = std::int64_t{1} << 62;
  if (!attrs.get("hashed_output", false) || buckets < 1 || buckets > kMostBuckets) return false;
  const auto sparse = static_cast<std::size_t>(attrs.require<std::int64_t>("N"));
  const std::vector<ValueRef> inputs = g.node().inputs;
  if (inputs.empty()) return false;
  for (std::size_t i = 2 * sparse; i < inputs.size(); ++i)
    if (g.find(inputs[i])) return false;
  const ValueRef rows = g.element(sparse > 0 ? g.cast(inputs[2 * sparse], DType::Int64)
                                             : g.op("Shape", {inputs[0]}, {{"out_type", DType::Int64}}),
                                  0);
  std::vector<CrossColumn> columns;
  for (std::size_t i = 0; i < sparse; ++i) {
    const auto column = sparse_column(g, inputs[i], inputs[sparse + i], rows);
    if (!column) return false;
    columns.push_back(*column);
  }
  for (std::size_t i = 3 * sparse; i < inputs.size(); ++i) {
    if (g.graph.info(inputs[i]).dtype != DType::Int64 || g.rank(inputs[i]) != 2) return false;
    columns.push_back({inputs[i], {}});
  }
  const CrossColumn result = crossed(g, columns, key, rows);
  const ValueRef shape = g.op("Shape", {result.ids}, {{"out_type", DType::Int64}});
  const ValueRef count = g.op("Size", {result.ids}, {{"out_type", DType::Int64}});
  const ValueRef places = g.coordinates(g.op("Range", {g.number(0), count, g.number(1)}), shape);
  const ValueRef ids = g.flat(bucket_of(g, result.ids, buckets));
  if (result.valid.valid()) {
    auto set = std::make_shared<PlaceSet>(PlaceSet{g.flat(result.valid), places, false});
    g.set(g.output(0), {Kind::Rows, set, places, shape});
    g.set(g.output(1), {Kind::Rows, set, ids});
  } else {
    g.replace(g.output(0), places);
    g.replace(g.output(1), ids);
  }
  g.replace(g.output(2), shape);
  return true;
}

// ------------------------------------------------------------------------------------------------
// merged and spread tensors

/// Whether these are the indices and values of one sparse tensor.
bool are_of_one(const Bounded* at, const Bounded* values) {
  return at && values && at->kind == Kind::Rows && values->kind == Kind::Rows && at->set == values->set;
}

/// The order of elements counts for nobody who reads bounded ones.
bool sparse_reorder(BoundedGraph& g) {
  const Bounded *at = g.find(g.input(0)), *values = g.find(g.input(1));
  if (!are_of_one(at, values)) return false;
  const Bounded indices = *at, elements = *values;
  g.set(g.output(0), indices);
  g.set(g.output(1), elements);
  return true;
}

/// From the first place on: elements behind the end do not count.
bool sparse_slice(BoundedGraph& g) {
  const Bounded *at = g.find(g.input(0)), *values = g.find(g.input(1));
  const Tensor* start = g.graph.known_value(g.input(3));
  if (!are_of_one(at, values) || !start) return false;
  for (const std::int64_t first : tensor_to_int64s(*start))
    if (first != 0) return false;
  const Bounded indices = *at, elements = *values;
  const ValueRef shape =
      g.op("Minimum", {g.cast(g.input(2), DType::Int64), g.cast(g.input(4), DType::Int64)});
  const ValueRef inside =
      g.op("All", {g.op("Less", {indices.padded, shape}), g.numbers({1})}, {{"keep_dims", false}});
  auto set = std::make_shared<PlaceSet>(
      PlaceSet{g.op("LogicalAnd", {indices.set->valid, inside}), indices.set->coordinates, false});
  g.set(g.output(0), {Kind::Rows, set, indices.padded, shape});
  g.set(g.output(1), {Kind::Rows, set, elements.padded});
  g.replace(g.output(2), shape);
  return true;
}

/// Elements that do not count are zeros at the first place.
bool scatter_nd(BoundedGraph& g) {
  const Bounded *at = g.find(g.input(0)), *values = g.find(g.input(1));
  if (!are_of_one(at, values) || g.find(g.input(2)) || g.rank(at->padded) != 2) return false;
  const Bounded indices = *at, elements = *values;
  const ValueRef places = g.masked(*indices.set, indices.padded, 0);
  const ValueRef updates = g.masked(*elements.set, elements.padded, 0);
  g.replace(g.output(),
            g.op("ScatterNd", {g.cast(places, g.graph.info(indices.padded).dtype), updates, g.input(2)}));
  return true;
}

/// ids >= 0, and as many values that are true or weights above 0: what prunes ids that have weights. The
/// elements of two sparse tensors side by side.
bool logical_and(BoundedGraph& g) {
  const Bounded *a = g.find(g.input(0)), *b = g.find(g.input(1));
  // The comparisons have been replaced by padded ones, but their nodes are still there.
  const std::string first = g.graph.node(g.input(0).node).op->name,
                    second = g.graph.node(g.input(1).node).op->name;
  const bool prunes =
      first == "GreaterEqual" && (second == "Greater" || second == "Fill" || second == "OnesLike");
  if (a && b && prunes && a->kind == Kind::Rows && b->kind == Kind::Rows && a->set != b->set &&
      a->set->coordinates.valid() && b->set->coordinates.valid())
    g.merge(a->set, b->set);
  return bound_pointwise(g);
}

}  // namespace

void add_cross_rules(std::map<std::string, BoundedRule>& rules) {
  rules.insert({{"SparseCross", sparse_cross},
                {"SparseReorder", sparse_reorder},
                {"SparseSlice", sparse_slice},
                {"ScatterNd", scatter_nd},
                {"LogicalAnd", logical_and}});
}

}  // namespace braid::worker
