// What HSTU (hstu.cc) reads of a batch: ragged columns of the history and, for each, one of the candidate
// with the same table; actions and ages of the history; columns of context; numbers of the candidate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/id_columns.h"

namespace braid {

/// Values side by side, row by row of the batch: values [n, ...], offsets [B + 1].
struct Ragged {
  Output values, offsets;
};

/// a's rows of the batch, each with one row of `candidates` [B, ...] behind it. `are_ids`: the last one is
/// repeated in the room behind them.
Ragged with_candidates(GraphBuilder& builder, const Ragged& a, const Output& candidates,
                       bool are_ids = false);

class HstuColumns {
 public:
  /// Makes the placeholders. `dim`: the width of all tables; `buckets`: rows of those of columns that do not
  /// say it. Throws: InvalidArgument where columns do not go together, naming them.
  HstuColumns(GraphBuilder& builder, const ModelConfig& config, std::int64_t dim, std::int64_t buckets);

  /// Input columns, as finish_model() takes them.
  const std::vector<std::string>& read() const { return read_; }
  std::size_t tables() const { return history_.size(); }
  const std::vector<IdColumn>& context() const { return context_; }
  const IdColumn* action() const { return action_.empty() ? nullptr : &action_.front(); }
  const std::optional<Output>& dense() const { return dense_; }
  std::int64_t dense_width() const;

  /// Ones [B, 1], to make as many rows of.
  Output ones();
  /// Offsets of the history; a step fails where its columns differ in length.
  Output offsets();
  /// The longest sequence of these rows over that of all workers' rows of the batch, [1]; reads a column for
  /// it. `more`: tokens of a sequence beside its history.
  Output longest_share(std::int64_t more);
  /// Values of a column of the history, in the room of its first column.
  Output in_room(const Output& values);
  /// Ids of table t: of the history, the candidate's behind it.
  Ragged ids(std::size_t t);
  /// Their rows of the table: [n, dim].
  Output rows(std::size_t t, const Output& ids);
  /// A value for each token of the sequences, with the context in front of `ids`: what says where tokens lie
  /// and hangs on no lookup.
  Ragged layout(const Ragged& ids);
  /// Rows of the table of context column c: [B, dim].
  Output context_rows(std::size_t c);

 private:
  bool known(const char* column) const;
  void read_action();
  void read_context(std::int64_t buckets);
  void check_history();
  /// The column's table, cut to model.max_rows, and the rows of `ids` in it.
  Output lookup(IdColumn column, const Output& table_ids);

  GraphBuilder& builder_;
  const ModelConfig& config_;
  const std::int64_t dim_;
  std::vector<IdColumn> history_, candidates_, context_, action_;
  std::optional<Output> dense_, offsets_;
  std::string history_input_;  // column of the first of history_
  std::vector<std::string> read_;
};

}  // namespace braid
