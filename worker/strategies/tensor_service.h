// Slices of variables under strategy TENSOR, outside of steps: where they begin, and how the leader has the
// variables whole, for evaluations and checkpoints. Requests are broadcasts on the job's communicator, so
// they are collectives in one order like those of steps.
//
//   gather   the workers of the leader's group send it their slices of the variables, of which it keeps the
//            whole under the model's names
//   save     the same, of slots too, one after another; the leader writes them into a file of the checkpoint
//   release  the end
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/exec/runtime.h"
#include "worker/strategies/rank_service.h"
#include "worker/strategies/tensor_plan.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// A variable, or a slot of one, of which the store has a slice.
struct StoredSlice {
  std::string local, model;  // names
  TensorSlice slice;
  bool is_slot = false;
  float initial = 0;  // of a slot's elements
};

/// The slice that worker `place` of a group has of `whole`, and the inverse.
Tensor slice_of(const Tensor& whole, const TensorSlice& slice, int place);
void put_slice(const Tensor& part, const TensorSlice& slice, int place, Tensor& whole);

class TensorService : public RankService {
 public:
  /// `slices`: the same list on all ranks; `place`: of this one in its group. The store has the slices, and
  /// outlives it.
  TensorService(std::vector<StoredSlice> slices, int place, std::shared_ptr<comm::Communicator> communicator,
                VariableStore& store)
      : slices_(std::move(slices)), place_(place), communicator_(std::move(communicator)), store_(store) {}

  const StoredSlice* find_local(const std::string& name) const;
  /// Whether the leader may have it whole beside its slice.
  bool is_copy(const std::string& name) const;

  /// Gives all slices their first values: `whole` is asked on the leader alone. It fills the value of a
  /// variable or slot, which has a slot's initial elements, or says that these are all.
  using WholeValue = std::function<bool(const StoredSlice& slice, Tensor& whole)>;
  void begin(const WholeValue& whole, const WaitContext& wait);

  // On the leader.
  void gather(const WaitContext& wait);
  std::vector<ShardInfo> save(const std::filesystem::path& directory, const WaitContext& wait) override;
  void release(const WaitContext& wait) override;

  // On the others.
  void serve(std::chrono::nanoseconds patience) override;

 private:
  enum class Request : std::int64_t { Gather = 1, Save = 2, Release = 3 };
  Request ask(Request request, const WaitContext& wait);
  Tensor gather_one(const StoredSlice& slice, const WaitContext& wait);
  void hand_over(bool slots, const WaitContext& wait);

  const std::vector<StoredSlice> slices_;
  const int place_;
  const std::shared_ptr<comm::Communicator> communicator_;
  VariableStore& store_;
};

}  // namespace braid::worker
