#include "worker/strategies/owner_exchange.h"

#include <fmt/format.h>

#include "worker/strategies/owner_ops.h"

namespace braid::worker {
namespace {

/// Places in a message: multiples of the largest unit that kernels copy.
std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

BoxPlan::Part bytes_copy(int input, std::int64_t from, int output, std::int64_t to, std::int64_t bytes) {
  return {BoxCopy({{bytes, 1, 1}}, from, to, 1), input, output};
}

std::int64_t bytes_of(const OutputInfo& info) {
  return info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype));
}

}  // namespace

OwnerExchange::OwnerExchange(const PrepareContext& c, Direction direction) {
  const auto owners = c.attr<std::vector<std::int64_t>>(kOwners, {});
  const auto world = c.attr("world", std::int64_t{1}), rank = c.attr("rank", std::int64_t{0});
  const bool leaves = direction == Direction::ToOwners;
  for (const std::int64_t owner : owners)
    if (owner < 0 || owner >= world) c.fail(fmt::format("owner {} of {} ranks", owner, world));

  const auto scratch_in = static_cast<int>(c.inputs.size()), scratch_out = static_cast<int>(c.outputs.size());
  sent_.assign(static_cast<std::size_t>(world), 0);
  received_ = sent_;
  // A block is one rank's part of a tensor. The rank itself has one of each; of its own tensors it has all
  // ranks'.
  const auto block_bytes = [&](std::size_t t) { return bytes_of(leaves ? c.inputs[t] : c.outputs[t]); };
  const auto message = [&](std::vector<std::int64_t>& sizes, std::size_t& all, auto&& for_each) {
    std::int64_t at = static_cast<std::int64_t>(all);
    for (std::int64_t peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      const std::int64_t first = at;
      for (std::size_t t = 0; t < owners.size(); ++t)
        if (for_each(t, peer, at)) at += aligned(block_bytes(t));
      sizes[static_cast<std::size_t>(peer)] = at - first;
    }
    all = static_cast<std::size_t>((at + 63) / 64 * 64);
  };

  for (std::size_t t = 0; t < owners.size(); ++t) {
    const std::int64_t bytes = block_bytes(t);
    const int tensor = static_cast<int>(t);
    if (owners[t] != rank || bytes == 0) continue;
    before_.parts.push_back(leaves ? bytes_copy(tensor, 0, tensor, rank * bytes, bytes)
                                   : bytes_copy(tensor, rank * bytes, tensor, 0, bytes));
  }
  message(sent_, outgoing_bytes_, [&](std::size_t t, std::int64_t peer, std::int64_t at) {
    if (owners[t] != (leaves ? peer : rank)) return false;
    const std::int64_t bytes = block_bytes(t);
    if (bytes > 0)
      before_.parts.push_back(
          bytes_copy(static_cast<int>(t), leaves ? 0 : peer * bytes, scratch_out, at, bytes));
    return true;
  });
  incoming_bytes_ = outgoing_bytes_;
  message(received_, incoming_bytes_, [&](std::size_t t, std::int64_t peer, std::int64_t at) {
    if (owners[t] != (leaves ? rank : peer)) return false;
    const std::int64_t bytes = block_bytes(t);
    if (bytes > 0)
      after_.parts.push_back(
          bytes_copy(scratch_in, at, static_cast<int>(t), leaves ? peer * bytes : 0, bytes));
    return true;
  });
  incoming_bytes_ -= outgoing_bytes_;
}

}  // namespace braid::worker
