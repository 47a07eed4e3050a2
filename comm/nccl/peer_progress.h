// How far the ranks of a communicator are, told to each other through the rendezvous: which step, how many
// collectives, whether a rank gave up, and that it is alive at all. NCCL's kernels only wait; by this the
// rank that is waited for gets its name. Thread rule: any thread; post() from one. Nothing here throws when
// the rendezvous does not answer: that is part of the answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

class PeerProgress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `names` by rank: "rank 2 (host-a, cuda:2)". `key` begins the members' names.
  PeerProgress(Rendezvous& rendezvous, std::string key, int rank, std::vector<std::string> names);

  const std::string& name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  void begin_step(std::uint64_t step);
  void begin_collective(std::string_view operation);
  void give_up(const std::string& why);
  /// Number of the collective begun last, from 1.
  std::uint64_t collectives() const;

  /// Tells the others when there is news, and that this rank lives. Called several times a second.
  void post();
  /// "rank 2 (host-a, cuda:2) gave up: why" when one did, or "... is gone: ..." when one has ended.
  std::optional<std::string> who_is_lost();
  /// "rank 0 (...) did not take part: ..." in words, from what the others posted last. Takes a moment, in
  /// which they can.
  std::string who_is_missing();

 private:
  std::string member_of(int rank) const { return key_ + "/rank " + std::to_string(rank); }
  void post_now();
  /// Has the rendezvous see it when this process ends.
  void stay();
  std::optional<std::string> who_gave_up(const WaitContext& wait);
  std::optional<std::string> who_is_gone(const WaitContext& wait);
  bool host_is_gone();

  Rendezvous& rendezvous_;
  const std::string key_;
  const int rank_;
  const std::vector<std::string> names_;
  mutable std::mutex mu_;
  RankProgress mine_;  // guarded by mu_, as what follows
  bool news_ = true;
  bool member_ = false;  // added to the rendezvous
  Clock::time_point posted_{};
  Clock::time_point answered_{};  // by the rendezvous, last
  std::mutex presence_mu_;
  std::unique_ptr<Presence> presence_;  // guarded by presence_mu_
};

}  // namespace braid::comm
