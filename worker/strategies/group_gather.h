// How braid.GroupGather's values travel: an all-gather where the group is the whole job, else an exchange
// with its members alone. Thread rule: run() as the communicator's operations.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/group_ops.h"

namespace braid::worker {

class GroupGather {
 public:
  /// Throws: InvalidArgument with the node.
  GroupGather(const PrepareContext& context, const comm::Communicator& communicator)
      : members_(context.attr<std::vector<std::int64_t>>(kMembers, {})), world_(communicator.size()) {
    for (const std::int64_t member : members_)
      if (member < 0 || member >= world_)
        context.fail("member " + std::to_string(member) + " is none of " + std::to_string(world_) + " ranks");
    for (const OutputInfo& input : context.inputs) {
      if (dtype_size(input.dtype) == 0)
        context.fail("no exchange of " + std::string(dtype_name(input.dtype)));
      pieces_.push_back({input.dtype, input.shape.elements()});
      most_ = std::max(most_, input.shape.elements() * static_cast<std::int64_t>(dtype_size(input.dtype)));
    }
  }

  bool is_all() const { return std::ssize(members_) == world_; }
  /// Of what is sent to each member by itself.
  std::size_t scratch_bytes() const {
    return is_all() ? 0 : static_cast<std::size_t>(most_) * members_.size();
  }

  /// `copy(to, from, bytes)` copies on the stream.
  template <class Copy>
  void run(comm::Communicator& communicator, const KernelArgs& args, Copy copy,
           const WaitContext& wait) const {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto& [dtype, count] = pieces_[i];
      if (is_all()) {
        communicator.all_gather(args.inputs[i], args.outputs[i], count, dtype, args.stream, wait);
        continue;
      }
      const std::size_t bytes = static_cast<std::size_t>(count) * dtype_size(dtype);
      std::vector<std::int64_t> counts(static_cast<std::size_t>(world_), 0);
      for (std::size_t m = 0; m < members_.size(); ++m) {
        counts[static_cast<std::size_t>(members_[m])] = count;
        copy(static_cast<char*>(args.scratch) + m * bytes, args.inputs[i], bytes);
      }
      communicator.all_to_all(args.scratch, counts, args.outputs[i], counts, dtype, args.stream, wait);
    }
  }

 private:
  struct Piece {
    DType dtype;
    std::int64_t count;
  };
  const std::vector<std::int64_t> members_;
  const int world_;
  std::vector<Piece> pieces_;
  std::int64_t most_ = 0;  // bytes
};

}  // namespace braid::worker
