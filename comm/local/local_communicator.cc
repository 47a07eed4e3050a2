#include "comm/local/local_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "base/error.h"
#include "comm/local/local_group.h"
#include "comm/reduce.h"
#include "comm/sum_order.h"

namespace braid::comm {
namespace {

constexpr std::int64_t kBlockBytes = 4096;  // of a reduction: what is reduced stays in the first-level cache

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(group_->size()) {}

  ~LocalCommunicator() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "local"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    auto offer = make_offer("all_reduce", input, output, count, dtype, static_cast<int>(op), stream, true);
    collective(offer, wait, [&] {
      // Nobody else reads or writes the elements that this rank makes for everybody, so input may be output.
      auto first = count * rank_ / size_, last = count * (rank_ + 1) / size_;
      const bool direct = is_summed_directly(static_cast<std::int64_t>(bytes_of(count, dtype)), size_);
      reduce_range(first, last, direct ? 0 : rank_, dtype, op,
                   [&](std::size_t offset, const std::byte* block, std::size_t bytes) {
                     for (int to = 0; to < size_; ++to)
                       std::memcpy(group_->offer(to).output + offset, block, bytes);
                   });
    });
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype, ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    auto offer = make_offer("reduce_scatter", input, output, count_per_rank, dtype, static_cast<int>(op),
                            stream, true);
    collective(offer, wait, [&] {
      auto first = rank_ * count_per_rank;
      auto start = bytes_of(first, dtype);
      reduce_range(first, first + count_per_rank, rank_ + 1, dtype, op,
                   [&](std::size_t offset, const std::byte* block, std::size_t bytes) {
                     std::memcpy(offer.output + (offset - start), block, bytes);
                   });
    });
  }

  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    auto offer = make_offer("all_gather", input, output, count_per_rank, dtype, 0, stream);
    auto bytes = bytes_of(count_per_rank, dtype);
    collective(offer, wait, [&] {
      for (int from = 0; from < size_; ++from)
        copy(offer.output + from * bytes, group_->offer(from).input, bytes);
    });
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    check_first([&] { check_rank(backend(), "broadcast", "root", root, size_); });
    auto offer = make_offer("broadcast", data, data, count, dtype, root, stream);
    collective(offer, wait, [&] { copy(offer.output, group_->offer(root).input, bytes_of(count, dtype)); });
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    auto offer = make_offer("all_to_all", input, output, count_per_rank, dtype, 0, stream);
    auto bytes = bytes_of(count_per_rank, dtype);
    collective(offer, wait, [&] {
      for (int from = 0; from < size_; ++from)
        copy(offer.output + from * bytes, group_->offer(from).input + rank_ * bytes, bytes);
    });
  }

  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check_first([&] {
      check_host_exchange(backend(), input, send_counts, output, recv_counts, dtype, size_, stream);
    });
    auto offer = make_offer("all_to_all with counts", input, output, 0, dtype, 0, stream);
    offer.sends = send_counts;
    offer.receives = recv_counts;
    ErrorPtr differs;
    collective(offer, wait, [&] {
      // All look at all pairs, so that all find the same.
      for (int from = 0; from < size_ && !differs; ++from)
        for (int to = 0; to < size_ && !differs; ++to) differs = differing_counts(from, to, dtype);
      if (differs) return;
      auto* target = offer.output;
      for (int from = 0; from < size_; ++from) {
        const LocalOffer& other = group_->offer(from);
        auto* source = other.input;
        for (int to = 0; to < rank_; ++to)
          source += bytes_of(other.sends[static_cast<std::size_t>(to)], dtype);
        const auto bytes = bytes_of(recv_counts[static_cast<std::size_t>(from)], dtype);
        copy(target, source, bytes);
        target += bytes;
      }
    });
    if (!differs) return;
    group_->break_off(differs->code, differs->message);
    throw_error(*differs);
  }

  void barrier(const WaitContext& wait) override {
    LocalOffer offer;
    offer.operation = "barrier";
    collective(offer, wait, [] {});
  }

  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    check_letter("send", "destination", data, count, dtype, destination, stream);
    group_->send(rank_, destination, data, count, dtype, wait);
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    check_letter("recv", "source", data, count, dtype, source, stream);
    group_->recv(rank_, source, data, count, dtype, wait);
  }

  void abort() override {
    group_->break_off(ErrorCode::Unavailable,
                      fmt::format("[local] rank {} (a thread of this process) gave up", rank_));
  }

 private:
  static std::size_t bytes_of(std::int64_t count, DType dtype) {
    return static_cast<std::size_t>(count) * dtype_size(dtype);
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  /// Checks arguments. A rank that cannot take part breaks the group, since the others would wait for it.
  template <class Checks>
  void check_first(Checks checks) {
    group_->throw_if_broken(rank_);
    try {
      checks();
    } catch (const Error& error) {
      group_->break_off(error.code(), fmt::format("rank {} (a thread of this process) gave up: {}", rank_,
                                                  error.message()));
      throw;
    }
  }

  /// What is wrong with the counts that two ranks of the operation have for each other; null: nothing.
  ErrorPtr differing_counts(int from, int to, DType dtype) const {
    const std::int64_t sent = group_->offer(from).sends[static_cast<std::size_t>(to)];
    const std::int64_t taken = group_->offer(to).receives[static_cast<std::size_t>(from)];
    if (sent == taken) return nullptr;
    return make_error(ErrorCode::InvalidArgument,
                      fmt::format("[local] rank {} calls all_to_all of {} {} for rank {}, which takes {}",
                                  from, sent, dtype_name(dtype), to, taken));
  }

  LocalOffer make_offer(std::string_view operation, const void* input, void* output, std::int64_t count,
                        DType dtype, int argument, StreamRef stream, bool reduces = false) {
    check_first([&] {
      check_host_arrays(backend(), operation, input, output, count, dtype, stream);
      if (reduces) check_reduction(backend(), operation, dtype);
    });
    LocalOffer offer;
    offer.operation = operation;
    offer.input = static_cast<const std::byte*>(input);
    offer.output = static_cast<std::byte*>(output);
    offer.count = count;
    offer.dtype = dtype;
    offer.argument = argument;
    return offer;
  }

  void check_letter(std::string_view operation, std::string_view role, const void* data, std::int64_t count,
                    DType dtype, int peer, StreamRef stream) {
    check_first([&] {
      check_host_arrays(backend(), operation, data, data, count, dtype, stream);
      check_peer(backend(), operation, role, peer, rank_, size_);
    });
  }

  /// Runs `body` while all ranks are in the operation and their offers agree.
  void collective(const LocalOffer& offer, const WaitContext& wait, const std::function<void()>& body) {
    group_->meet(rank_, offer, wait);
    body();
    group_->part();
  }

  /// Reduces elements [first, last) of all inputs, in the order of ranks from `begin` on (mod size), a block
  /// at a time: put(offset_bytes, block, bytes).
  template <class Put>
  void reduce_range(std::int64_t first, std::int64_t last, int begin, DType dtype, ReduceOp op,
                    Put put) const {
    alignas(64) std::array<std::byte, kBlockBytes> block;
    auto block_count = kBlockBytes / static_cast<std::int64_t>(dtype_size(dtype));
    for (auto at = first; at < last; at += block_count) {
      auto count = std::min(block_count, last - at);
      auto offset = bytes_of(at, dtype), bytes = bytes_of(count, dtype);
      std::memcpy(block.data(), group_->offer(begin % size_).input + offset, bytes);
      for (int next = 1; next < size_; ++next)
        reduce_pair(block.data(), block.data(), group_->offer((begin + next) % size_).input + offset, count,
                    dtype, op);
      put(offset, block.data(), bytes);
    }
  }

  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  const int size_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int size) {
  if (size < 1) throw InvalidArgument(fmt::format("[local] a group needs at least 1 rank, got {}", size));
  auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<LocalCommunicator>(group, rank));
  return ranks;
}

}  // namespace braid::comm
