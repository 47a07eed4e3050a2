// Which rows of an exchange of braid.RowsFromOwners or braid.SumsToOwners go where. Thread rule: const after
// construction.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/piece_exchange.h"
#include "engine/ir/op.h"

namespace braid::worker {

class DistinctExchange {
 public:
  enum class Direction { FromOwners, ToOwners };

  /// Of a node whose shapes are known. Fails where an owner is no rank.
  DistinctExchange(const PrepareContext& context, Direction direction);

  const comm::RowLayout& layout() const { return layout_; }
  int tables() const { return static_cast<int>(owners_.size()); }

  // On hosts: messages for and from each rank, in memory of their own, where windows would be.

  /// Bytes for and from each rank, in the order of ranks; 0 for this one.
  const std::vector<std::int64_t>& sent() const { return sent_; }
  const std::vector<std::int64_t>& received() const { return received_; }
  std::int64_t outgoing_bytes() const { return outgoing_bytes_; }
  std::int64_t incoming_bytes() const { return layout_.window_bytes[static_cast<std::size_t>(rank_)]; }
  /// Where a sent move has its rows in the messages for all ranks.
  std::int64_t outgoing_place(std::size_t move) const { return outgoing_places_[move]; }

 private:
  struct Table {
    std::int64_t rows, ids, row_bytes;
  };
  std::int64_t message(std::int64_t from, std::int64_t to) const;
  /// Whose tables' rows travel from one rank to another.
  std::int64_t owner_of_travel(std::int64_t from, std::int64_t to) const { return from_owners_ ? from : to; }
  void add_sent(std::int64_t peer, std::int64_t window);
  void add_received(std::int64_t peer, std::int64_t window);
  void add_own();

  const bool from_owners_;
  std::vector<std::int64_t> owners_;
  std::int64_t world_, rank_;
  std::vector<Table> tables_;
  comm::RowLayout layout_;
  std::vector<std::int64_t> sent_, received_, outgoing_places_;
  std::int64_t outgoing_bytes_ = 0;
};

}  // namespace braid::worker
