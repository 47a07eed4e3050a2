// How braid.GroupAllToAll's parts travel: as many elements to each member of the group, and none to other
// ranks. Thread rule: run() as the communicator's operations.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/group_ops.h"

namespace braid::worker {

class GroupAllToAll {
 public:
  /// Throws: InvalidArgument with the node.
  GroupAllToAll(const PrepareContext& context, const comm::Communicator& communicator)
      : dtype_(context.inputs[0].dtype), counts_(static_cast<std::size_t>(communicator.size()), 0) {
    const auto members = context.attr<std::vector<std::int64_t>>(kMembers, {});
    if (dtype_size(dtype_) == 0) context.fail("no exchange of " + std::string(dtype_name(dtype_)));
    part_ = members.empty() ? 0 : context.inputs[0].shape.elements() / std::ssize(members);
    is_all_ = members.size() == counts_.size();
    for (const std::int64_t member : members) {
      if (member < 0 || member >= communicator.size())
        context.fail("member " + std::to_string(member) + " is none of " +
                     std::to_string(communicator.size()) + " ranks");
      counts_[static_cast<std::size_t>(member)] = part_;
    }
  }

  void run(comm::Communicator& communicator, const KernelArgs& args, const WaitContext& wait) const {
    if (is_all_)
      communicator.all_to_all(args.inputs[0], args.outputs[0], part_, dtype_, args.stream, wait);
    else
      communicator.all_to_all(args.inputs[0], counts_, args.outputs[0], counts_, dtype_, args.stream, wait);
  }

 private:
  DType dtype_;
  std::vector<std::int64_t> counts_;  // by rank
  std::int64_t part_ = 0;             // elements for a member
  bool is_all_ = false;
};

}  // namespace braid::worker
