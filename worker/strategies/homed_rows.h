// The rows of sparse tables on servers whose home this worker is (ps/client/home_rows.h): their newest values
// are in variables of this process, and of the servers alone what has no room here. A step pulls the rows
// that it lacks while the step before runs, and sends those that made room. Nobody else changes a row, so no
// step waits for the update of another. A row that is asked for again while it is on its way to the servers
// comes from the copy that is sent. Before the servers are to know all rows, as for a checkpoint, flush()
// brings them up to date.
//
// Thread rule: begin(), arrive() of one thread, leave() of one thread, in the order of steps; flush() and
// clear() between steps; the rest from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "ps/client/home_rows.h"
#include "ps/client/left_rows.h"
#include "ps/client/ps_client.h"
#include "worker/strategies/kept_rows.h"

namespace braid {
class Accelerator;
}

namespace braid::worker {

class HomedRows : public KeptRows {
 public:
  using Done = ps::PsClient::Done;
  /// The row `slot` of table `table` of that group, with its slots, to `out`.
  using Read = std::function<void(std::size_t group, std::int32_t table, std::uint32_t slot, float* out)>;

  HomedRows(std::shared_ptr<ps::PsClient> servers, std::vector<ps::HomeRows::Options> groups,
            std::chrono::nanoseconds deadline);

  const ps::HomeRows& group(std::size_t group) const { return *groups_[group]; }
  /// Of that group's blocks, made at the first call: page-locked where a device is to read it.
  std::byte* memory(std::size_t group, Accelerator* device);

  /// The step's rows are planned, and those that are not here are asked for. Those of several steps may be
  /// under way.
  void begin(std::uint64_t step, std::span<const ps::OrderedKeys> keys, const WaitContext& wait);
  /// `done`: the step's rows are in its blocks, and `vote` is as of a pull. REQUIRES: begin() of it.
  void arrive(std::uint64_t step, float* vote, Done done);
  /// The step's swaps have been made: what made room goes to the servers. `done`: the blocks are free.
  void leave(std::uint64_t step, Done done);
  /// The servers have all rows as they are before `step`. Throws: as PsClient.
  void flush(std::uint64_t step, const Read& read, const WaitContext& wait);
  /// No row is here, and nothing has been counted.
  void clear();

  ps::CacheCounts counts() const override;
  std::string text() const override;

 private:
  /// What left in a step, until the servers have it.
  struct Left {
    explicit Left(std::size_t groups) : rows(groups) {}
    std::vector<ps::LeftRows> rows;  // by group
    bool again = false;              // some are in one before it, too: the servers get them in that order
    // Guarded by mutex_.
    std::vector<std::shared_ptr<ps::HomeRows::Written>> written = {};  // by group, once the step has swapped
    bool waits = false, arrived = false;
  };
  /// A row that a step needs and that left in one before it.
  struct Return {
    std::shared_ptr<Left> from;
    std::size_t group, swap_from, swap;
  };
  class Coming;
  /// A step that waits for the swaps of steps before to give it rows, or for its own end: one that has failed
  /// swaps nothing.
  struct Parked {
    std::vector<Return> returns;
    Done ended;
    std::optional<std::stop_callback<std::function<void()>>> on_stop = {};
  };

  std::vector<std::shared_ptr<Left>> under_way() const;
  ps::PullRequest plan(std::uint64_t step, std::span<const ps::OrderedKeys> keys, Left& left,
                       std::vector<Return>& returns);
  void pull(std::uint64_t step, ps::PullRequest request, std::vector<Return> returns, ErrorPtr failed,
            Done done, const WaitContext& wait);
  void take_back(std::uint64_t step, const std::vector<Return>& returns) const;
  void send(const std::shared_ptr<Left>& left);
  void arrived(const std::shared_ptr<Left>& left, ErrorPtr error);
  void give_up(std::uint64_t step);
  void write(const std::vector<std::shared_ptr<ps::HomeRows::Written>>& rows, Done done,
             const WaitContext& wait);

  const std::shared_ptr<ps::PsClient> servers_;
  const std::chrono::nanoseconds deadline_;
  std::vector<std::unique_ptr<ps::HomeRows>> groups_;
  std::vector<std::shared_ptr<std::byte[]>> memories_;  // by group; guarded by mutex_
  mutable std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::map<std::uint64_t, std::shared_ptr<Coming>> coming_;  // by step; guarded by mutex_
  std::deque<std::shared_ptr<Left>> left_;                   // in the order of steps; guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<Left>> to_swap_;   // by step; guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<Parked>> parked_;  // by step; guarded by mutex_
  ErrorPtr failed_;          // of a row that did not arrive; guarded by mutex_
  std::uint64_t asked_ = 0;  // when servers were last asked for their votes; of begin()
};

}  // namespace braid::worker
