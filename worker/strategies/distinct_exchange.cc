#include "worker/strategies/distinct_exchange.h"

#include <fmt/format.h>

#include "worker/strategies/owner_ops.h"

namespace braid::worker {
namespace {

/// Places in a message.
std::int64_t in_whole_steps(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

DistinctExchange::DistinctExchange(const PrepareContext& c, Direction direction)
    : from_owners_(direction == Direction::FromOwners),
      owners_(c.attr<std::vector<std::int64_t>>(kOwners, {})),
      world_(c.attr("world", std::int64_t{1})),
      rank_(c.attr("rank", std::int64_t{0})) {
  const std::size_t count = owners_.size();
  for (std::size_t t = 0; t < count; ++t) {
    if (owners_[t] < 0 || owners_[t] >= world_)
      c.fail(fmt::format("owner {} of {} ranks", owners_[t], world_));
    const Shape& rows = c.inputs[t].shape;
    const std::int64_t ids = from_owners_ ? c.inputs[2 * count + t].shape.elements() : rows[0];
    tables_.push_back({rows[0], ids, rows[1] * static_cast<std::int64_t>(sizeof(float))});
    const std::int64_t wanted = c.inputs[(from_owners_ ? 1 : 2) * count + t].shape.elements();
    if (wanted != (owners_[t] == rank_ ? world_ * ids : 0))
      c.fail(fmt::format("{} wanted rows of {} ids on each of {} ranks", wanted, ids, world_));
  }
  layout_.named = from_owners_;
  for (std::int64_t to = 0; to < world_; ++to) {
    std::int64_t bytes = 0;
    for (std::int64_t from = 0; from < world_; ++from) bytes += message(from, to);
    layout_.window_bytes.push_back(bytes);
  }
  add_own();
  std::int64_t incoming = 0;
  for (std::int64_t peer = 0; peer < world_; ++peer) {
    std::int64_t window = 0;
    for (std::int64_t from = 0; from < rank_; ++from) window += message(from, peer);
    sent_.push_back(message(rank_, peer));
    add_sent(peer, window);
    received_.push_back(message(peer, rank_));
    add_received(peer, incoming);
    incoming += received_.back();
  }
}

std::int64_t DistinctExchange::message(std::int64_t from, std::int64_t to) const {
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < owners_.size(); ++t)
    if (from != to && owners_[t] == owner_of_travel(from, to))
      bytes += in_whole_steps(tables_[t].ids * tables_[t].row_bytes);
  return bytes;
}

void DistinctExchange::add_own() {
  for (int t = 0; t < tables(); ++t) {
    const Table& table = tables_[static_cast<std::size_t>(t)];
    if (owners_[static_cast<std::size_t>(t)] != rank_ || table.ids * table.row_bytes == 0) continue;
    comm::RowMove move{.from = t, .to = t, .count = table.ids, .row_bytes = table.row_bytes};
    if (from_owners_) {
      move.numbers = 2 * tables() + t;
      move.via = tables() + t;
      move.via_first = rank_ * table.ids;
      move.bound = table.rows;
    } else {
      move.numbers = tables() + t;
      move.bound = table.ids;
      move.to_row = rank_ * table.ids;
    }
    layout_.own.push_back(move);
  }
}

void DistinctExchange::add_sent(std::int64_t peer, std::int64_t window) {
  for (int t = 0; t < tables(); ++t) {
    const Table& table = tables_[static_cast<std::size_t>(t)];
    const std::int64_t bytes = table.ids * table.row_bytes;
    if (peer == rank_ || owners_[static_cast<std::size_t>(t)] != owner_of_travel(rank_, peer)) continue;
    if (bytes == 0) continue;
    layout_.sent.push_back({.from = t,
                            .to = -1,
                            .peer = static_cast<int>(peer),
                            .numbers = tables() + t,
                            .first = from_owners_ ? peer * table.ids : 0,
                            .count = table.ids,
                            .bound = from_owners_ ? table.rows : table.ids,
                            .row_bytes = table.row_bytes,
                            .window = window});
    window += in_whole_steps(bytes);
    outgoing_places_.push_back(outgoing_bytes_);
    outgoing_bytes_ += in_whole_steps(bytes);
  }
}

void DistinctExchange::add_received(std::int64_t peer, std::int64_t window) {
  for (int t = 0; t < tables(); ++t) {
    const Table& table = tables_[static_cast<std::size_t>(t)];
    const std::int64_t bytes = table.ids * table.row_bytes;
    if (peer == rank_ || owners_[static_cast<std::size_t>(t)] != owner_of_travel(peer, rank_)) continue;
    if (bytes == 0) continue;
    layout_.received.push_back({.from = -1,
                                .to = t,
                                .peer = static_cast<int>(peer),
                                .numbers = 2 * tables() + t,
                                .first = from_owners_ ? 0 : peer * table.ids,
                                .count = table.ids,
                                .bound = table.ids,
                                .row_bytes = table.row_bytes,
                                .to_row = from_owners_ ? 0 : peer * table.ids,
                                .window = window});
    window += in_whole_steps(bytes);
  }
}

}  // namespace braid::worker
