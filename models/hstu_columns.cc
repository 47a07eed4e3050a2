#include "models/hstu_columns.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace braid {
namespace {

constexpr const char* kHstu = "hstu";

[[noreturn]] void refuse_columns(const std::string& why) { throw InvalidArgument("model 'hstu': " + why); }

void add_all(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

Ragged with_candidates(GraphBuilder& b, const Ragged& a, const Output& candidates, bool are_ids) {
  const Output both = b.op("braid.RaggedConcat", {a.values, candidates, a.offsets},
                           {{"b_width", 1}, {"repeat_last", are_ids}}, "with_candidates");
  return {both, {both.node, 1}};
}

HstuColumns::HstuColumns(GraphBuilder& builder, const ModelConfig& config, std::int64_t dim,
                         std::int64_t buckets)
    : builder_(builder), config_(config), dim_(dim) {
  const IdInputs history = id_inputs(builder, config, kHstu, "history");
  const IdInputs candidate = id_inputs(builder, config, kHstu, "candidate");
  add_all(read_, history.columns);
  add_all(read_, candidate.columns);
  history_ = id_columns(builder, config, kHstu, "history", history, buckets);
  candidates_ = id_columns(builder, config, kHstu, "candidate", candidate, buckets);
  check_history();
  history_input_ = history.ragged.front().field.input;
  if (known("action")) read_action();
  if (known("sparse")) read_context(buckets);
  if (known("dense")) {
    dense_ = column_placeholder(builder, config, kHstu, "dense", DType::Float32);
    read_.push_back("dense");
  }
}

bool HstuColumns::known(const char* column) const {
  return config_.columns.contains(column) || config_.fields.contains(column);
}

/// Tables are shared by name and have a row for each id of both.
void HstuColumns::check_history() {
  for (const IdColumn& column : history_)
    if (!column.ragged) refuse_columns("column '" + column.name + "' of the history must be ragged");
  if (history_.empty() || history_.size() != candidates_.size())
    refuse_columns("the history has " + std::to_string(history_.size()) + " columns, the candidate " +
                   std::to_string(candidates_.size()) + "; each table needs one of both");
  for (std::size_t t = 0; t < history_.size(); ++t) {
    IdColumn &h = history_[t], &c = candidates_[t];
    if (c.ragged || c.length != 1)
      refuse_columns("column '" + c.name + "' of the candidate must have one id a row");
    if (h.table.shared.empty() || h.table.shared != c.table.shared)
      refuse_columns("columns '" + h.name + "' and '" + c.name +
                     "' look up the same items: give both the same `table`");
    h.rows = std::max(h.rows, c.rows);
  }
  require_one_width(kHstu, history_, dim_);
}

void HstuColumns::read_action() {
  const IdInputs inputs = id_inputs(builder_, config_, kHstu, "action");
  add_all(read_, inputs.columns);
  action_ = id_columns(builder_, config_, kHstu, "action", inputs, 0);
  if (action_.size() != 1 || !action_[0].ragged)
    refuse_columns("'action' must be one ragged column, got " + std::to_string(action_.size()));
  const std::int64_t ids = action_[0].rows;
  if (ids < 2 || ids > 256 || (ids & (ids - 1)) != 0)
    refuse_columns("column '" + action_[0].name +
                   "' of actions must have 2, 4, ... 256 ids, one for each set of bits, got " +
                   std::to_string(ids));
}

void HstuColumns::read_context(std::int64_t buckets) {
  const IdInputs inputs = id_inputs(builder_, config_, kHstu, "sparse");
  add_all(read_, inputs.columns);
  context_ = id_columns(builder_, config_, kHstu, "sparse", inputs, buckets);
  for (const IdColumn& column : context_) {
    if (column.ragged || column.length != 1)
      refuse_columns("column '" + column.name + "' of the context must have one id a row");
    for (const IdColumn& of_history : history_)
      if (column.table.shared == of_history.table.shared)
        refuse_columns("columns '" + column.name + "' of the context and '" + of_history.name +
                       "' of the history cannot share a table");
  }
  require_one_width(kHstu, context_, dim_);
}

std::int64_t HstuColumns::dense_width() const { return dense_ ? row_shape(config_, kHstu, "dense")[0] : 0; }

Output HstuColumns::ones() {
  const Output ids = builder_.reshape(candidates_.front().ids, {-1, 1});
  return builder_.op("OnesLike",
                     {builder_.op("Cast", {ids}, {{"SrcT", DType::Int64}, {"DstT", DType::Float32}})});
}

Output HstuColumns::offsets() {
  if (offsets_) return *offsets_;
  offsets_ = history_.front().offsets;
  std::vector<IdColumn> others(history_.begin() + 1, history_.end());
  others.insert(others.end(), action_.begin(), action_.end());
  for (const IdColumn& column : others)
    offsets_ = builder_.op("braid.SameOffsets", {*offsets_, column.offsets}, {}, "same_offsets");
  return *offsets_;
}

Output HstuColumns::longest_share(std::int64_t more) {
  const std::string column = history_input_ + "/longest";
  const Output both = builder_.placeholder(column, DType::Int32, Shape{2});
  read_.push_back(column);
  const NameScope scope(builder_, "longest");
  const Output numbers = builder_.op("Cast", {both}, {{"SrcT", DType::Int32}, {"DstT", DType::Float32}});
  const Output tokens =
      builder_.add(numbers, builder_.constant(Tensor::scalar(static_cast<float>(more)), "more"));
  const Output parts =
      builder_.op("Split", {builder_.constant(Tensor::scalar<std::int32_t>(0), "axis"), tokens},
                  {{"num_split", 2}}, "parts");
  return builder_.op("RealDiv", {{parts.node, 0}, {parts.node, 1}}, {}, "share");
}

Output HstuColumns::in_room(const Output& values) {
  return builder_.op("braid.RowsLike", {values, history_.front().ids}, {}, "in_room");
}

Output HstuColumns::lookup(IdColumn column, const Output& ids) {
  const bool is_cut = config_.max_rows > 0 && column.rows > config_.max_rows;
  if (is_cut) column.rows = config_.max_rows;
  const double bound = 1 / std::sqrt(static_cast<double>(column.rows));
  const Output table =
      column_table(builder_, config_, column, dim_, table_init(config_, uniform_init(bound)));
  const NameScope scope(builder_, column.name);
  if (!is_cut) return builder_.gather(table, ids);
  const Output rows = builder_.constant(Tensor::scalar<std::int64_t>(column.rows), "rows");
  return builder_.gather(table, builder_.op("FloorMod", {ids, rows}));
}

Ragged HstuColumns::ids(std::size_t t) {
  const NameScope scope(builder_, history_[t].name);
  const Output history = t == 0 ? history_[t].ids : in_room(history_[t].ids);
  return with_candidates(builder_, {history, offsets()}, candidates_[t].ids, true);
}

Output HstuColumns::rows(std::size_t t, const Output& ids) { return lookup(history_[t], ids); }

Ragged HstuColumns::layout(const Ragged& ids) {
  if (context_.empty()) return ids;
  std::vector<Output> columns;
  for (const IdColumn& column : context_) columns.push_back(builder_.reshape(column.ids, {-1, 1}));
  const Output context =
      builder_.reshape(columns.size() == 1 ? columns[0] : builder_.concat(columns, 1), {-1});
  const Output both = builder_.op("braid.RaggedConcat", {context, ids.values, ids.offsets},
                                  {{"a_width", std::ssize(context_)}}, "layout");
  return {both, {both.node, 1}};
}

Output HstuColumns::context_rows(std::size_t c) { return lookup(context_[c], context_[c].ids); }

}  // namespace braid
