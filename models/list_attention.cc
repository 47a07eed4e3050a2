#include "models/list_attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/input/schema/column_spec.h"

namespace braid {
namespace {

constexpr double kFarBelow = 1e9;  // what a filled place's score is less

[[noreturn]] void refuse(const IdColumn& column, const std::string& why) {
  throw InvalidArgument("column '" + column.name + "': pooling ATTENTION " + why);
}

Output ints(GraphBuilder& b, std::vector<std::int32_t> values, const std::string& name) {
  const auto count = static_cast<std::int64_t>(values.size());
  return b.constant(Tensor::from<std::int32_t>(Shape{count}, values), name);
}

/// Zeros for each row of the batch, [B, 1].
Output zeros_of_rows(GraphBuilder& b, const IdColumn& column) {
  const Output first =
      column.ragged
          ? b.op("StridedSlice",
                 {column.offsets, ints(b, {1}, "begin"), ints(b, {0}, "end"), ints(b, {1}, "strides")},
                 {{"end_mask", 1}}, "ends")
          : b.op("Max", {column.ids, ints(b, {1}, "axes")});
  const DType type = column.ragged ? DType::Int32 : column.id_type;
  const Output numbers = b.op("Cast", {first}, {{"SrcT", type}, {"DstT", DType::Float32}});
  return b.reshape(b.mul(numbers, b.constant(Tensor::scalar(0.0F), "zero")), {-1, 1});
}

/// The query of each row of the batch, [B, dim].
Output query_rows(GraphBuilder& b, const IdColumn& column, std::int64_t dim,
                  const std::optional<Output>& queries) {
  if (column.query) return b.gather(*queries, b.reshape(column.query->ids, {-1}));
  const double range = 1 / std::sqrt(static_cast<double>(dim));
  const Output learned = b.read(b.variable("query", Shape{dim}, {.init = uniform_init(range)}));
  return b.add(b.reshape(learned, {1, dim}), zeros_of_rows(b, column));
}

Output of_ragged(GraphBuilder& b, const IdColumn& column, const Output& table, const Output& query,
                 std::int64_t dim) {
  const Output rows = b.reshape(b.gather(table, column.ids), {-1, 1, dim});
  const Output pooled =
      b.op("braid.QueryAttention", {b.reshape(query, {-1, 1, dim}), rows, rows, column.offsets},
           {{"activation", "softmax"}}, "attention");
  return b.reshape(pooled, {-1, dim});
}

Output of_list(GraphBuilder& b, const IdColumn& column, const Output& table, const Output& query,
               std::int64_t dim) {
  const Output rows =
      b.reshape(b.gather(table, b.reshape(column.ids, {-1})), {-1, column.length, dim});  // [B, L, dim]
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  const Output scaled = b.reshape(b.mul(query, b.constant(Tensor::scalar(scale), "scale")), {-1, 1, dim});
  Output scores = b.op("BatchMatMulV2", {scaled, rows}, {{"adj_y", true}}, "scores");  // [B, 1, L]
  if (!column.filled) return b.reshape(b.op("BatchMatMulV2", {b.op("Softmax", {scores}), rows}), {-1, dim});
  const Output mask = list_mask(b, column.ids, column.length, column.id_type);
  const Output one = b.constant(Tensor::scalar(1.0F), "one");
  const Output below =
      b.mul(b.op("Sub", {mask, one}), b.constant(Tensor::scalar(static_cast<float>(kFarBelow)), "far_below"));
  scores = b.add(scores, below);
  const Output weights = b.mul(b.op("Softmax", {scores}), mask);  // of a list without ids all are 0
  return b.reshape(b.op("BatchMatMulV2", {weights, rows}), {-1, dim});
}

}  // namespace

IdColumn& query_of(const std::string& model, std::vector<IdColumn>& columns, const IdColumn& column) {
  const std::string name = plain_name(column.table.query);
  const auto found = std::ranges::find_if(columns, [&](const IdColumn& c) { return c.name == name; });
  if (found == columns.end())
    refuse(column, "has query '" + column.table.query + "', but beside it model '" + model +
                       "' reads no categorical column of that name");
  if (found->ragged || found->length != 1)
    refuse(column, "has query '" + column.table.query + "', which is a list: it must be a single id");
  if (found->table.dim != column.table.dim)
    refuse(column,
           "has query '" + column.table.query + "' of another embedding_dim: give both columns the same");
  return *found;
}

bool pools_by_attention(const IdColumn& column, std::int64_t dim) {
  return column.table.pooling == ListPooling::Attention && (column.ragged || column.length > 1) && dim > 1;
}

Output attended(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
                const InitSpec& init) {
  if (column.weights) refuse(column, "has no weights");
  const Output table = column_table(builder, config, column, dim, init);
  std::optional<Output> queries;
  if (column.query) queries = column_table(builder, config, *column.query, dim, init);
  const NameScope scope(builder, column.name);
  const Output query = query_rows(builder, column, dim, queries);
  return column.ragged ? of_ragged(builder, column, table, query, dim)
                       : of_list(builder, column, table, query, dim);
}

}  // namespace braid
