// What the ranks of a local group share: where they meet for a collective, and the letters of send and recv.
// It copies nothing but letters; local_communicator.cc has the operations. Thread rule: any thread.
//
// What breaks the group is kept, and every rank is told: a wait that failed, a rank that is gone or gave up,
// offers that differ.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/wait_context.h"

namespace braid::comm {

/// What a rank brings to a collective. Ranks must agree in all but the pointers and the counts for each pair.
struct LocalOffer {
  std::string_view operation = "";
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::Invalid;
  int argument = 0;                               // the reduction or the root
  std::span<const std::int64_t> sends, receives;  // of an exchange with counts

  bool agrees(const LocalOffer& other) const;
  std::string text() const;
};

class LocalGroup {
 public:
  explicit LocalGroup(int size);

  int size() const { return size_; }

  /// Returns when all ranks have brought an offer, and all agree. Throws: InvalidArgument where they differ,
  /// DeadlineExceeded with the ranks that are missing, Cancelled, Unavailable.
  void meet(int rank, const LocalOffer& offer, const WaitContext& wait);
  /// Of rank `from`. REQUIRES: between this rank's meet() and part(), when nobody writes offers.
  const LocalOffer& offer(int from) const { return offers_[static_cast<std::size_t>(from)]; }
  /// Returns when all ranks have called it. No deadline: the others only copy, and returning earlier would
  /// take away the memory that they copy.
  void part();

  /// Returns when the receiver has copied `count` elements. Throws: as meet() does.
  void send(int rank, int destination, const void* data, std::int64_t count, DType dtype,
            const WaitContext& wait);
  void recv(int rank, int source, void* data, std::int64_t count, DType dtype, const WaitContext& wait);

  /// The rank's communicator is destroyed.
  void leave(int rank);
  /// Every wait and every later operation ends. The first reason is kept.
  void break_off(ErrorCode code, const std::string& text);
  /// Throws: Unavailable with what broke the group.
  void throw_if_broken(int rank) const;

 private:
  /// What a sender leaves for a receiver.
  struct Letter {
    enum class State { Waiting, BeingRead, Read } state = State::Waiting;
    const void* data;
    std::int64_t count;
    DType dtype;
  };

  // All of these under mutex_.
  void arrive(std::unique_lock<std::mutex>& lock, int rank, const LocalOffer& offer, const WaitContext& wait);
  bool count_arrival();
  void break_locked(ErrorCode code, const std::string& text);
  void throw_if_broken_locked(int rank) const;
  std::optional<Letter>& letter(int from, int to) { return letters_[at(from * size_ + to)]; }
  /// Waits for `done`, or until the group is broken. A wait that fails breaks the group. `peer`: the only one
  /// who is waited for; without, all who have not arrived are.
  template <class Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const WaitContext& wait, const std::string& what,
                std::optional<int> peer, Done done);

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_, but for offers_ between the two meetings of an operation.
  std::vector<LocalOffer> offers_;
  std::vector<bool> arrived_;
  int arrivals_ = 0;
  std::uint64_t meetings_ = 0;
  std::vector<bool> gone_;
  std::vector<std::optional<Letter>> letters_;  // [from * size + to]
  ErrorPtr broken_;
};

}  // namespace braid::comm
