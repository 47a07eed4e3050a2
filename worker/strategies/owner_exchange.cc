#include "worker/strategies/owner_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/strategies/owner_ops.h"

namespace braid::worker {
namespace {

using comm::PieceMove;

/// Places in a message: multiples of the largest unit that kernels copy.
std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }
std::size_t aligned_message(std::int64_t bytes) { return static_cast<std::size_t>((bytes + 63) / 64 * 64); }

BoxPlan::Part bytes_copy(int input, std::int64_t from, int output, std::int64_t to, std::int64_t bytes) {
  return {BoxCopy({{bytes, 1, 1}}, from, to, 1), input, output};
}

std::int64_t bytes_of(const OutputInfo& info) {
  if (!info.shape.is_static()) return -1;
  return info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype));
}

/// What travels: a block is one rank's part of a tensor. A rank has one of each; of its own tensors all
/// ranks'.
struct Blocks {
  std::vector<std::int64_t> owners, bytes;
  std::int64_t world, rank;
  bool to_owners;

  bool travels(std::size_t t, std::int64_t from, std::int64_t to) const {
    return from != to && bytes[t] > 0 && owners[t] == (to_owners ? to : from);
  }
  /// Of a message with all blocks that go from one rank to another.
  std::int64_t message(std::int64_t from, std::int64_t to) const {
    std::int64_t sum = 0;
    for (std::size_t t = 0; t < owners.size(); ++t)
      if (travels(t, from, to)) sum += aligned(bytes[t]);
    return sum;
  }
  /// Where a rank has the messages for it: one behind the other, in the order of those who send them.
  std::int64_t place(std::int64_t from, std::int64_t to) const {
    std::int64_t at = 0;
    for (std::int64_t r = 0; r < from; ++r) at += message(r, to);
    return at;
  }
  /// Calls visit(tensor, place) for the blocks from one rank to another; places count from `at`.
  template <class Visit>
  void for_each(std::int64_t from, std::int64_t to, std::int64_t at, const Visit& visit) const {
    for (std::size_t t = 0; t < owners.size(); ++t) {
      if (!travels(t, from, to)) continue;
      visit(static_cast<int>(t), at, bytes[t]);
      at += aligned(bytes[t]);
    }
  }
};

comm::PieceLayout layout_of(const Blocks& b) {
  comm::PieceLayout layout;
  for (std::int64_t r = 0; r < b.world; ++r) layout.window_bytes.push_back(b.place(b.world, r));
  for (std::size_t t = 0; t < b.owners.size(); ++t) {
    if (b.owners[t] != b.rank || b.bytes[t] == 0) continue;
    const std::int64_t of_all = b.rank * b.bytes[t];
    layout.own.push_back({.tensor = static_cast<int>(t),
                          .from = b.to_owners ? 0 : of_all,
                          .to = b.to_owners ? of_all : 0,
                          .bytes = b.bytes[t]});
  }
  for (std::int64_t peer = 0; peer < b.world; ++peer) {
    b.for_each(b.rank, peer, b.place(b.rank, peer), [&](int tensor, std::int64_t at, std::int64_t bytes) {
      layout.sent.push_back({tensor, static_cast<int>(peer), b.to_owners ? 0 : peer * bytes, at, bytes});
    });
    b.for_each(peer, b.rank, b.place(peer, b.rank), [&](int tensor, std::int64_t at, std::int64_t bytes) {
      layout.received.push_back({tensor, static_cast<int>(peer), at, b.to_owners ? peer * bytes : 0, bytes});
    });
  }
  return layout;
}

Blocks blocks_of(const Node& node, OwnerExchange::Direction direction, std::span<const OutputInfo> inputs,
                 std::span<const OutputInfo> outputs) {
  Blocks b{.owners = node.attrs.get<std::vector<std::int64_t>>(kOwners, {}),
           .bytes = {},
           .world = node.attrs.get("world", std::int64_t{1}),
           .rank = node.attrs.get("rank", std::int64_t{0}),
           .to_owners = direction == OwnerExchange::Direction::ToOwners};
  for (std::size_t t = 0; t < b.owners.size(); ++t)
    b.bytes.push_back(bytes_of(b.to_owners ? inputs[t] : outputs[t]));
  return b;
}

}  // namespace

std::int64_t OwnerExchange::incoming_bytes(const Node& node, Direction direction,
                                           std::span<const OutputInfo> inputs,
                                           std::span<const OutputInfo> outputs) {
  const Blocks b = blocks_of(node, direction, inputs, outputs);
  if (std::ranges::any_of(b.bytes, [](std::int64_t bytes) { return bytes < 0; })) return Shape::kUnknown;
  return std::max<std::int64_t>(static_cast<std::int64_t>(aligned_message(b.place(b.world, b.rank))), 64);
}

OwnerExchange::OwnerExchange(const PrepareContext& c, Direction direction,
                             std::span<const OutputInfo> outputs) {
  const Blocks b = blocks_of(c.node, direction, c.inputs, outputs);
  for (const std::int64_t owner : b.owners)
    if (owner < 0 || owner >= b.world) c.fail(fmt::format("owner {} of {} ranks", owner, b.world));
  layout_ = layout_of(b);

  for (std::int64_t peer = 0; peer < b.world; ++peer) {
    sent_.push_back(b.message(b.rank, peer));
    received_.push_back(b.message(peer, b.rank));
  }
  const std::int64_t incoming = b.place(b.world, b.rank);
  std::int64_t outgoing = 0;
  for (const PieceMove& move : layout_.own)
    own_.parts.push_back(bytes_copy(move.tensor, move.from, move.tensor, move.to, move.bytes));
  for (std::int64_t peer = 0; peer < b.world; outgoing += b.message(b.rank, peer++))
    b.for_each(b.rank, peer, outgoing, [&](int tensor, std::int64_t at, std::int64_t bytes) {
      packed_.parts.push_back(bytes_copy(tensor, b.to_owners ? 0 : peer * bytes, 0, at, bytes));
    });
  outgoing_bytes_ = aligned_message(outgoing);
  incoming_bytes_ = aligned_message(incoming);
}

BoxPlan OwnerExchange::packed(int to) const {
  BoxPlan plan = packed_;
  for (BoxPlan::Part& part : plan.parts) part.output = to;
  return plan;
}

BoxPlan OwnerExchange::unpacked(int from, std::size_t from_byte) const {
  BoxPlan plan;
  for (const PieceMove& move : layout_.received)
    plan.parts.push_back(
        bytes_copy(from, static_cast<std::int64_t>(from_byte) + move.from, move.tensor, move.to, move.bytes));
  return plan;
}

}  // namespace braid::worker
