// Vector clocks over a program's ops: what is known to be complete at a point. A clock has one component for
// each stream, the number of its ops that have started and, unless asynchronous, completed, and one bit for
// each asynchronous op, which completes on its own. Order by streams and events is all there is to know
// (Lamport 1978; Fidge, Mattern 1988).
//
// A table holds one clock for each op: what is complete when the op starts. Memory: ops x (streams + async /
// 32) words. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/program/program.h"

namespace braid {

class Clocks {
 public:
  using Word = std::uint32_t;
  using Row = std::vector<Word>;

  Clocks() = default;
  /// REQUIRES: the program's ops are in issue order and have their streams.
  explicit Clocks(const Program& program);

  Row empty() const { return Row(width_, 0); }
  const Word* of(int op) const { return table_.data() + static_cast<std::size_t>(op) * width_; }
  void set(int op, const Row& row);

  /// Whether a clock says that `op` is complete.
  bool knows(const Word* row, int op) const {
    const Place& p = places_[static_cast<std::size_t>(op)];
    return p.async_bit < 0 ? row[p.stream] > p.position : (row[p.bit_word] >> (p.async_bit & 31)) & 1;
  }
  bool knows(const Row& row, int op) const { return knows(row.data(), op); }

  /// Adds all that `other` knows.
  void join(Row& row, const Word* other) const;
  /// Adds that `op` is complete, and with it all that was when it started.
  void complete(Row& row, int op) const;
  /// Adds that the stream of `op` has gone past it.
  void pass(Row& row, int op) const;

  int streams() const { return streams_; }
  /// The op's place in its stream, counted in ops.
  Word position(int op) const { return places_[static_cast<std::size_t>(op)].position; }
  bool is_async(int op) const { return places_[static_cast<std::size_t>(op)].async_bit >= 0; }

 private:
  struct Place {
    Word stream, position;
    std::int32_t async_bit = -1;
    Word bit_word = 0;
  };
  int streams_ = 0;
  std::size_t width_ = 0;
  std::vector<Place> places_;
  std::vector<Word> table_;
};

}  // namespace braid
