#include "worker/strategies/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"
#include "worker/strategies/hybrid_ops.h"

namespace braid::worker {

std::int64_t used_of(const std::int64_t* block, std::int64_t capacity) {
  return std::partition_point(block, block + capacity, [](std::int64_t row) { return row >= 0; }) - block;
}

HostExchange::HostExchange(const PrepareContext& c, std::size_t parts, comm::Communicator& communicator,
                           std::chrono::nanoseconds deadline, bool pads)
    : communicator_(communicator),
      deadline_(deadline),
      counted_(c.inputs.size() > parts),
      fills_(c.attr("fill", false)),
      pads_(pads),
      fill_byte_(static_cast<int>(c.attr(kFillByte, std::int64_t{0}))) {
  for (std::size_t i = 0; i < parts; ++i) {
    const Shape& shape = c.inputs[i].shape;
    ranks_ = shape[0];
    std::size_t row = dtype_size(c.inputs[i].dtype);
    for (int axis = 2; axis < shape.rank(); ++axis) row *= static_cast<std::size_t>(shape[axis]);
    if (row % sizeof(float) != 0) c.fail("rows must be of whole 4 bytes");
    parts_.push_back({shape[1], row});
    bytes_ += parts_.back().block_bytes() * static_cast<std::size_t>(ranks_);
  }
  if (!counted_ && (c.inputs[0].dtype != DType::Int64 || c.inputs[0].shape.rank() != 2))
    c.fail("lists of rows must be int64 of rank 2");
  if (ranks_ != communicator.size())
    c.fail("blocks for " + std::to_string(ranks_) + " ranks, but there are " +
           std::to_string(communicator.size()));
}

HostExchange::Counts HostExchange::run(const KernelArgs& a) const {
  if (ranks_ == 1) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].block_bytes() > 0) std::memcpy(a.outputs[i], a.inputs[i], parts_[i].block_bytes());
    return counts(a, counted_ ? parts_.size() : 0);
  }
  const WaitContext wait = a.wait->at_most(deadline_);
  const auto count = parts_.size();
  const Counts sent = counts(a, counted_ ? count : 0);
  Counts received;
  if (counted_) {
    received = counts(a, 2 * count);
  } else {
    received.resize(sent.size());
    communicator_.all_to_all(sent.data(), received.data(), static_cast<std::int64_t>(count), DType::Int64,
                             a.stream, wait);
    check(received);
  }
  auto* const out = static_cast<char*>(a.scratch);
  char* const in = out + scratch_bytes() / 2;
  move(sent, out, a.inputs,
       [](char* packed, char* block, std::size_t bytes) { std::memcpy(packed, block, bytes); });
  communicator_.all_to_all(out, words(sent), in, words(received), DType::Float32, a.stream, wait);
  move(received, in, a.outputs,
       [](char* packed, char* block, std::size_t bytes) { std::memcpy(block, packed, bytes); });
  if (!counted_ && pads_)
    pad(received, a, 0xff);
  else if (counted_ && fills_)
    pad(received, a, fill_byte_);
  return received;
}

/// [ranks, parts], from the lists that begin at input `first`.
HostExchange::Counts HostExchange::counts(const KernelArgs& a, std::size_t first) const {
  Counts all;
  for (std::int64_t r = 0; r < ranks_; ++r)
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::int64_t capacity = parts_[i].capacity;
      all.push_back(used_of(a.in<std::int64_t>(static_cast<int>(first + i)) + r * capacity, capacity));
    }
  return all;
}

void HostExchange::check(const Counts& received) const {
  for (std::size_t i = 0; i < received.size(); ++i)
    if (received[i] < 0 || received[i] > parts_[i % parts_.size()].capacity)
      throw InvalidArgument("a rank sends " + std::to_string(received[i]) + " rows where there is room for " +
                            std::to_string(parts_[i % parts_.size()].capacity));
}

/// Words of 4 bytes for each rank.
HostExchange::Counts HostExchange::words(const Counts& counts) const {
  Counts all(static_cast<std::size_t>(ranks_));
  for (std::size_t i = 0; i < counts.size(); ++i)
    all[i / parts_.size()] +=
        counts[i] * static_cast<std::int64_t>(parts_[i % parts_.size()].row_bytes / sizeof(float));
  return all;
}

template <class Move>
void HostExchange::move(const Counts& counts, char* packed, void* const* blocks, const Move& one) const {
  std::size_t at = 0;
  for (std::int64_t r = 0; r < ranks_; ++r)
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(counts[at++]) * parts_[i].row_bytes;
      if (bytes > 0)
        one(packed, static_cast<char*>(blocks[i]) + static_cast<std::size_t>(r) * parts_[i].block_bytes(),
            bytes);
      packed += bytes;
    }
}

/// Behind what came.
void HostExchange::pad(const Counts& received, const KernelArgs& a, int byte) const {
  std::size_t at = 0;
  for (std::int64_t r = 0; r < ranks_; ++r)
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(received[at++]) * parts_[i].row_bytes;
      char* const block =
          static_cast<char*>(a.outputs[i]) + static_cast<std::size_t>(r) * parts_[i].block_bytes();
      std::memset(block + bytes, byte, parts_[i].block_bytes() - bytes);
    }
}

}  // namespace braid::worker
