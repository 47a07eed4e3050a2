// What the ranks of an all-reduce job hold that differs from rank to rank, and belongs into checkpoints: the
// errors of compressed gradients, and parts of optimizer slots. At a checkpoint the leader asks for them and
// writes them; the others serve it at each border until it releases them. Requests are broadcasts on the
// job's communicator, so they are collectives in one order like those of steps. In a checkpoint
//
//   a rank's own value of <variable>        is <variable>/0, <variable>/1, ... by rank. Where it is read by
//                                           another number of ranks, each begins with its share of their sum.
//   a part of values that lie in a row      is cut into these, which have the names and shapes that they
//                                           have where no rank holds parts.
//
// Thread rule: one thread at a time, no step in flight. Throws: what the communicator throws.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "base/wait_context.h"
#include "engine/exec/runtime.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

struct RankState {
  /// A value that the parts of all ranks, one behind another, contain.
  struct Piece {
    std::string name;
    Shape shape;
    float initial_value = 0;
  };
  std::string variable;            // of the local store, float32, as many elements on all ranks
  std::vector<Piece> pieces = {};  // none: each rank's own; else what lies in a row, and zeros behind it
};

class RankStates {
 public:
  /// `store` has the variables, and outlives it. All ranks give the same list.
  RankStates(std::vector<RankState> states, std::shared_ptr<comm::Communicator> communicator,
             VariableStore& store)
      : states_(std::move(states)), communicator_(std::move(communicator)), store_(store) {}

  bool empty() const { return states_.empty(); }
  bool has(const std::string& variable) const;

  /// All ranks: fills the variables from what the leader has restored, which need not be there on the others.
  /// REQUIRES: the variables have their initial values.
  void restore(const CheckpointInfo* restored, const WaitContext& wait);

  // On the leader.
  /// Writes one file.
  ShardInfo save(const std::filesystem::path& directory, const WaitContext& wait);
  void release(const WaitContext& wait);

  // On the others.
  /// Until the leader has released them. `patience`: how long it may let them wait for its next request.
  void serve(std::chrono::nanoseconds patience);

 private:
  enum class Request : std::int64_t { Save = 1, Release = 2 };
  Request ask(Request request, const WaitContext& wait);
  /// The ranks' parts, one behind another, on the leader.
  std::vector<float> collect(const RankState& state, const WaitContext& wait) const;

  const std::vector<RankState> states_;
  const std::shared_ptr<comm::Communicator> communicator_;
  VariableStore& store_;
};

}  // namespace braid::worker
