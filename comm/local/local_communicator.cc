#include "comm/local/local_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "comm/reduce.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {
namespace {

constexpr std::int64_t kBlockBytes = 4096;  // of a reduction: what is reduced stays in the first-level cache

/// What a rank brings to a collective. Ranks must agree in all but the pointers.
struct Offer {
  std::string_view operation = "";
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::Invalid;
  int argument = 0;                               // the reduction or the root
  std::span<const std::int64_t> sends, receives;  // of an exchange with counts

  bool agrees(const Offer& other) const {
    return operation == other.operation && count == other.count && dtype == other.dtype &&
           argument == other.argument;
  }
  std::string text() const {
    return fmt::format("{} of {} {} ({})", operation, count, dtype_name(dtype), argument);
  }
};

/// What a sender leaves for a receiver.
struct Letter {
  enum class State { Waiting, BeingRead, Read } state = State::Waiting;
  const void* data;
  std::int64_t count;
  DType dtype;
};

struct Group {
  explicit Group(int size) : offers(size), arrived(size), gone(size), letters(size * size) {}

  std::mutex mutex;
  std::condition_variable_any changed;
  // Guarded by mutex. Offers are also read without it, between the two meetings of an operation, when nobody
  // writes them.
  std::vector<Offer> offers;
  std::vector<bool> arrived;
  int arrivals = 0;
  std::uint64_t meetings = 0;
  std::vector<bool> gone;
  std::vector<std::optional<Letter>> letters;  // [from * size + to]
  ErrorPtr broken;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), size_(static_cast<int>(group_->offers.size())) {}

  ~LocalCommunicator() override {
    std::lock_guard lock(group_->mutex);
    group_->gone[rank_] = true;
    group_->changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "local"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    auto offer = make_offer("all_reduce", input, output, count, dtype, static_cast<int>(op), stream, true);
    collective(offer, wait, [&] {
      // Nobody else reads or writes the elements that this rank makes for everybody, so input may be output.
      auto first = count * rank_ / size_, last = count * (rank_ + 1) / size_;
      reduce_range(first, last, dtype, op,
                   [&](std::size_t offset, const std::byte* block, std::size_t bytes) {
                     for (auto& other : group_->offers) std::memcpy(other.output + offset, block, bytes);
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
      reduce_range(first, first + count_per_rank, dtype, op,
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
        copy(offer.output + from * bytes, group_->offers[from].input, bytes);
    });
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    check_first([&] { check_rank(backend(), "broadcast", "root", root, size_); });
    auto offer = make_offer("broadcast", data, data, count, dtype, root, stream);
    collective(offer, wait, [&] { copy(offer.output, group_->offers[root].input, bytes_of(count, dtype)); });
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    auto offer = make_offer("all_to_all", input, output, count_per_rank, dtype, 0, stream);
    auto bytes = bytes_of(count_per_rank, dtype);
    collective(offer, wait, [&] {
      for (int from = 0; from < size_; ++from)
        copy(offer.output + from * bytes, group_->offers[from].input + rank_ * bytes, bytes);
    });
  }

  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check_first([&] {
      const auto sent = check_counts(backend(), "all_to_all", "send", send_counts, size_);
      check_buffer(backend(), "all_to_all", input, sent, dtype);
      const auto received = check_counts(backend(), "all_to_all", "receive", recv_counts, size_);
      check_buffer(backend(), "all_to_all", output, received, dtype);
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
        const Offer& other = group_->offers[static_cast<std::size_t>(from)];
        auto* source = other.input;
        for (int to = 0; to < rank_; ++to)
          source += bytes_of(other.sends[static_cast<std::size_t>(to)], dtype);
        const auto bytes = bytes_of(recv_counts[static_cast<std::size_t>(from)], dtype);
        copy(target, source, bytes);
        target += bytes;
      }
    });
    if (!differs) return;
    std::lock_guard lock(group_->mutex);
    break_group(differs->code, differs->message);
    throw_error(*differs);
  }

  void barrier(const WaitContext& wait) override {
    Offer offer;
    offer.operation = "barrier";
    collective(offer, wait, [] {});
  }

  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    check_peer("send", "destination", data, count, dtype, destination, stream);
    std::unique_lock lock(group_->mutex);
    throw_if_broken();
    auto& letter = group_->letters[rank_ * size_ + destination];
    auto what = fmt::format("[local] rank {}: send: rank {} (a thread of this process) did not receive",
                            rank_, destination);
    letter = Letter{Letter::State::Waiting, data, count, dtype};
    group_->changed.notify_all();
    wait_for(lock, wait, what, destination, [&] { return letter->state != Letter::State::Waiting; });
    // No deadline here: the receiver only copies, and returning earlier would take away the memory that it
    // copies.
    group_->changed.wait(lock, [&] { return letter->state == Letter::State::Read; });
    letter.reset();
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    check_peer("recv", "source", data, count, dtype, source, stream);
    std::unique_lock lock(group_->mutex);
    throw_if_broken();
    auto& letter = group_->letters[source * size_ + rank_];
    auto what =
        fmt::format("[local] rank {}: recv: rank {} (a thread of this process) did not send", rank_, source);
    wait_for(lock, wait, what, source, [&] { return letter && letter->state == Letter::State::Waiting; });
    if (letter->count != count || letter->dtype != dtype) {
      break_group(ErrorCode::InvalidArgument,
                  fmt::format("[local] rank {} sends {} {} and rank {} receives {} {}", source, letter->count,
                              dtype_name(letter->dtype), rank_, count, dtype_name(dtype)));
      throw_error(*group_->broken);
    }
    letter->state = Letter::State::BeingRead;
    auto* from = letter->data;
    lock.unlock();
    copy(data, from, bytes_of(count, dtype));
    lock.lock();
    letter->state = Letter::State::Read;
    group_->changed.notify_all();
  }

  void abort() override {
    std::lock_guard lock(group_->mutex);
    break_group(ErrorCode::Unavailable,
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
    {
      std::lock_guard lock(group_->mutex);
      throw_if_broken();
    }
    try {
      checks();
    } catch (const Error& error) {
      std::lock_guard lock(group_->mutex);
      break_group(error.code(),
                  fmt::format("rank {} (a thread of this process) gave up: {}", rank_, error.message()));
      throw;
    }
  }

  /// What is wrong with the counts that two ranks of the operation have for each other; null: nothing.
  ErrorPtr differing_counts(int from, int to, DType dtype) const {
    const std::int64_t sent =
        group_->offers[static_cast<std::size_t>(from)].sends[static_cast<std::size_t>(to)];
    const std::int64_t taken =
        group_->offers[static_cast<std::size_t>(to)].receives[static_cast<std::size_t>(from)];
    if (sent == taken) return nullptr;
    return make_error(ErrorCode::InvalidArgument,
                      fmt::format("[local] rank {} calls all_to_all of {} {} for rank {}, which takes {}",
                                  from, sent, dtype_name(dtype), to, taken));
  }

  Offer make_offer(std::string_view operation, const void* input, void* output, std::int64_t count,
                   DType dtype, int argument, StreamRef stream, bool reduces = false) {
    check_first([&] {
      check_host_stream(backend(), operation, stream);
      check_buffer(backend(), operation, input, count, dtype);
      check_buffer(backend(), operation, output, count, dtype);
      if (reduces) check_reduction(backend(), operation, dtype);
    });
    return {operation,
            static_cast<const std::byte*>(input),
            static_cast<std::byte*>(output),
            count,
            dtype,
            argument,
            {},
            {}};
  }

  void check_peer(std::string_view operation, std::string_view role, const void* data, std::int64_t count,
                  DType dtype, int peer, StreamRef stream) {
    check_first([&] {
      check_host_stream(backend(), operation, stream);
      check_buffer(backend(), operation, data, count, dtype);
      check_rank(backend(), operation, role, peer, size_);
      if (peer == rank_)
        throw InvalidArgument(fmt::format("[local] {}: {} is this rank itself", operation, role));
    });
  }

  /// Runs `body` while all ranks are in the operation and their offers agree.
  void collective(const Offer& offer, const WaitContext& wait, const std::function<void()>& body) {
    {
      std::unique_lock lock(group_->mutex);
      throw_if_broken();
      group_->offers[rank_] = offer;
      arrive(lock, offer, wait);
    }
    body();
    // No deadline here: the others only copy, and returning earlier would take away the memory that they
    // copy.
    std::unique_lock lock(group_->mutex);
    auto meeting = group_->meetings;
    if (count_arrival())
      group_->changed.notify_all();
    else
      group_->changed.wait(lock, [&] { return group_->meetings != meeting; });
  }

  void arrive(std::unique_lock<std::mutex>& lock, const Offer& offer, const WaitContext& wait) {
    for (int other = 0; other < size_; ++other)
      if (group_->arrived[other] && !group_->offers[other].agrees(offer))
        break_group(ErrorCode::InvalidArgument,
                    fmt::format("[local] rank {} calls {} and rank {} calls {}", other,
                                group_->offers[other].text(), rank_, offer.text()));
    throw_if_broken();
    auto meeting = group_->meetings;
    group_->arrived[rank_] = true;
    if (count_arrival()) {
      group_->changed.notify_all();
      return;
    }
    auto met = [&] { return group_->meetings != meeting; };
    auto what = fmt::format("[local] rank {}: {}", rank_, offer.operation);
    wait_for(lock, wait, what, std::nullopt, met);
  }

  bool count_arrival() {
    if (++group_->arrivals < size_) return false;
    group_->arrivals = 0;
    group_->arrived.assign(size_, false);
    ++group_->meetings;
    return true;
  }

  /// Waits for `done`, or until the group is broken. A wait that fails breaks the group. `peer`: the only one
  /// who is waited for; without, all who have not arrived are.
  template <class Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const WaitContext& wait, const std::string& what,
                std::optional<int> peer, Done done) {
    auto lost = [&]() -> std::optional<int> {
      for (int other = 0; other < size_; ++other)
        if (group_->gone[other] && (peer ? *peer == other : !group_->arrived[other])) return other;
      return std::nullopt;
    };
    try {
      wait_on(group_->changed, lock, wait, what, [&] { return done() || group_->broken || lost(); });
    } catch (const DeadlineExceeded& error) {
      auto text = error.message();
      if (!peer) {
        std::vector<int> missing;
        for (int other = 0; other < size_; ++other)
          if (!group_->arrived[other]) missing.push_back(other);
        text += fmt::format(": {} (threads of this process) did not take part", rank_list(missing));
      }
      break_group(ErrorCode::DeadlineExceeded, text);
    } catch (const Error& error) {
      break_group(error.code(), error.message());
    }
    if (done()) return;
    if (!group_->broken)
      break_group(ErrorCode::Unavailable,
                  fmt::format("{}: rank {} (a thread of this process) is gone", what, *lost()));
    auto error = group_->broken;
    throw_error(*error);
  }

  void break_group(ErrorCode code, const std::string& text) {
    if (!group_->broken) group_->broken = make_error(code, text);
    group_->changed.notify_all();
  }

  void throw_if_broken() const {
    if (group_->broken)
      throw Unavailable(
          fmt::format("[local] rank {}: the communicator is broken: {}", rank_, group_->broken->message));
  }

  /// Reduces elements [first, last) of all inputs, in the order of ranks, a block at a time:
  /// put(offset_bytes, block, bytes).
  template <class Put>
  void reduce_range(std::int64_t first, std::int64_t last, DType dtype, ReduceOp op, Put put) const {
    alignas(64) std::array<std::byte, kBlockBytes> block;
    auto block_count = kBlockBytes / static_cast<std::int64_t>(dtype_size(dtype));
    for (auto at = first; at < last; at += block_count) {
      auto count = std::min(block_count, last - at);
      auto offset = bytes_of(at, dtype), bytes = bytes_of(count, dtype);
      std::memcpy(block.data(), group_->offers[0].input + offset, bytes);
      for (int from = 1; from < size_; ++from)
        reduce_pair(block.data(), block.data(), group_->offers[from].input + offset, count, dtype, op);
      put(offset, block.data(), bytes);
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const int size_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int size) {
  if (size < 1) throw InvalidArgument(fmt::format("[local] a group needs at least 1 rank, got {}", size));
  auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<LocalCommunicator>(group, rank));
  return ranks;
}

}  // namespace braid::comm
