// One table thread's part of a sparse table: rows by int64 key, made when first asked for, from key and
// seed. A row is dim values, then the slots (base/table_row.h).
//
// Calls take the keys of a whole request and the positions of those that this part holds.
// Thread rule: one thread, the owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/table_row.h"
#include "ps/table/float_run.h"
#include "ps/table/key_index.h"
#include "ps/table/row_store.h"
#include "ps/table_set.h"

namespace braid::ps {

/// One worker's gradient: row p of `rows` ([keys, dim] f32, row-major) belongs to keys[p], for each p of
/// `positions`. Its keys are distinct: the client adds the rows of repeated ones.
struct SparseGradient {
  std::span<const std::int64_t> keys;
  std::span<const std::uint32_t> positions;
  const float* rows = nullptr;
  std::int32_t worker = 0;
};

/// Rows as a checkpoint has them: row i is keys[i], values [i * dim, (i + 1) * dim), the same of each slot,
/// or of a row-wise one number i. A table tells steps of last use apart that lie less than 2^32 behind the
/// newest.
struct SparseRows {
  std::vector<std::int64_t> keys;
  std::vector<std::uint64_t> last_use;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
};

class SparseTable {
 public:
  /// `writers`: it knows who has changed a row last, for changed().
  SparseTable(const SparseTableSpec& spec, const OptimizerSpec& optimizer, bool writers = false);

  std::int64_t rows() const { return static_cast<std::int64_t>(index_.size()); }
  std::int64_t dim() const { return dim_; }
  /// Of a row: its values, or these and its slots.
  std::size_t floats(bool slots) const { return slots ? row_floats() : static_cast<std::size_t>(dim_); }

  /// Row p of `out` ([keys, floats(slots)] f32) becomes the value of keys[p], for each p of `positions`. A
  /// key without a row gets one when `insert`; else its initial value is returned and the table stays as it
  /// is. Result: rows made.
  std::int64_t pull(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions, bool insert,
                    std::uint64_t step, float* out, bool slots = false);

  /// What pull() with `insert` does, and the rows that were used in step `since` or later, or are new to the
  /// table since, are appended: first + p to `where`, its values to `rows`. The others are as a pull without
  /// `insert` gave them when no step from `since` on had used the table. Result: rows made.
  std::int64_t repair(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                      std::uint64_t since, std::uint64_t step, std::uint32_t first,
                      std::vector<std::uint32_t>& where, std::vector<float>& rows, bool slots = false);

  /// The same for a worker that has the rows, with their slots, as it has updated them itself in step
  /// known[p] - 1 (modulo 2^32), or has not where that is 0: appended are those that it has not, and that
  /// others have changed in that step too, or since.
  /// REQUIRES: it knows writers.
  std::int64_t changed(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                       std::span<const std::uint32_t> known, std::int32_t worker, std::uint64_t step,
                       std::uint32_t first, std::vector<std::uint32_t>& where, std::vector<float>& rows);

  /// One update of every key that occurs, by the sum of its gradients, added in order of `gradients`.
  /// REQUIRES: not empty. Result: rows made.
  std::int64_t apply(const PreparedUpdate& update, std::uint64_t step,
                     std::span<const SparseGradient> gradients);

  /// The row of keys[p] becomes rows[p] ([keys, floats(true) + 1]: values, slots, and the low half of the
  /// step that used it last), for each p of `positions`. Result: rows made.
  std::int64_t write(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                     const float* rows);

  /// Appends all rows, in the order in which they were made.
  void append_to(SparseRows& out) const;

  /// Makes or replaces the row of source.keys[i]; slots that `source` does not have start at their initial
  /// values.
  void restore_row(const SparseRows& source, std::size_t i);

 private:
  struct Touched {
    std::uint32_t row;
    const float* gradient;  // the caller's row, or a sum in sums_
    bool summed;
  };

  /// Who has changed a row last.
  struct Writer {
    std::uint32_t round = 0;  // the low half
    std::int32_t worker = kNobody;
  };
  static constexpr std::int32_t kNobody = -1, kSeveral = -2;

  void initial_values(std::int64_t key, float* out) const;
  void initial_slots(float* row) const;
  void write(std::uint32_t row, std::int32_t worker);
  std::size_t row_floats() const {
    return static_cast<std::size_t>(dim_) + slot_initial_.size() * slot_width_;
  }
  void begin(std::uint64_t step);
  std::uint32_t make(std::int64_t key, std::uint64_t hash);
  std::uint32_t used_row(std::int64_t key);
  template <class Find, class Use>
  void walk(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions, Find find, Use use);
  void collect(std::uint32_t row, const float* gradient, std::size_t most_sums);
  void update_row(const PreparedUpdate& update, std::uint32_t row, const float* gradient);
  void apply_sums(const PreparedUpdate& update, std::span<const SparseGradient> gradients);

  SparseTableSpec spec_;
  std::int64_t dim_;
  std::size_t slot_width_;  // numbers of a row's slot
  std::vector<float> slot_initial_;
  KeyIndex index_;  // a key's stamp: the low half of the step of its last use
  RowStore store_;
  const bool knows_writers_;
  std::vector<Writer> writers_;  // by row, where they are known
  std::uint64_t newest_step_ = 0;

  // Of the call under way:
  std::uint32_t stamp_ = 0;
  std::vector<Touched> touched_;  // a row's mark is its place here, once it has one
  AlignedFloats sums_;            // [sums_used_, dim]: of the keys that occur more than once
  std::size_t sums_used_ = 0;
};

}  // namespace braid::ps
