#include "worker/strategies/group_ops.h"

#include <cstring>

#include "comm/communicator.h"
#include "comm/reduce.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/group_all_to_all.h"
#include "worker/strategies/group_gather.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

/// Each member adds up a part of the elements and sends the sums to all.
class GroupSum {
 public:
  GroupSum(const PrepareContext& context, const comm::Communicator& communicator)
      : members_(context.attr<std::vector<std::int64_t>>(kMembers, {})),
        world_(static_cast<std::size_t>(communicator.size())) {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      if (members_[m] < 0 || members_[m] >= communicator.size())
        context.fail("member " + std::to_string(members_[m]) + " is none of " +
                     std::to_string(communicator.size()) + " ranks");
      if (members_[m] == communicator.rank()) own_ = m;
    }
    if (members_.empty() || members_[own_] != communicator.rank()) context.fail("this rank is no member");
    for (const OutputInfo& input : context.inputs) {
      if (input.dtype != DType::Float32) context.fail("values must be float32");
      counts_.push_back(input.shape.elements());
      total_ += counts_.back();
    }
  }

  bool is_all() const { return members_.size() == world_; }
  std::size_t scratch_bytes() const {
    return sizeof(float) * static_cast<std::size_t>(total_ + 2 * std::ssize(members_) * part());
  }

  void run(comm::Communicator& communicator, const KernelArgs& args, const WaitContext& wait) const {
    auto* all = static_cast<float*>(args.scratch);
    float* const received = all + total_;
    float* const sent = received + std::ssize(members_) * part();
    std::int64_t at = 0;
    for (std::size_t i = 0; i < counts_.size(); at += counts_[i++])
      copy(all + at, args.inputs[i], counts_[i]);
    const Counts counts = exchanged();
    const std::int64_t count = add_up(communicator, all, received, counts, args.stream, wait);
    for (std::ptrdiff_t m = 0; m < std::ssize(members_); ++m) copy(sent + m * count, received, count);
    communicator.all_to_all(sent, counts.own, all, counts.parts, DType::Float32, args.stream, wait);
    at = 0;
    for (std::size_t i = 0; i < counts_.size(); at += counts_[i++])
      copy(args.outputs[i], all + at, counts_[i]);
  }

  /// The part of this rank alone, of one value.
  void run_part(comm::Communicator& communicator, const KernelArgs& args, const WaitContext& wait) const {
    auto* const received = static_cast<float*>(args.scratch);
    const std::int64_t count = add_up(communicator, static_cast<const float*>(args.inputs[0]), received,
                                      exchanged(), args.stream, wait);
    copy(args.outputs[0], received, count);
  }

 private:
  /// Elements by rank: what goes to it of all, and what comes from it of this rank's part.
  struct Counts {
    std::vector<std::int64_t> parts, own;
  };
  Counts exchanged() const {
    Counts counts{std::vector<std::int64_t>(world_, 0), std::vector<std::int64_t>(world_, 0)};
    for (std::size_t m = 0; m < members_.size(); ++m) {
      counts.parts[static_cast<std::size_t>(members_[m])] = begin(m + 1) - begin(m);
      counts.own[static_cast<std::size_t>(members_[m])] = begin(own_ + 1) - begin(own_);
    }
    return counts;
  }

  /// Leaves the sums of this rank's part at the begin of `received`. Result: how many.
  std::int64_t add_up(comm::Communicator& communicator, const float* all, float* received,
                      const Counts& counts, StreamRef stream, const WaitContext& wait) const {
    const std::int64_t count = begin(own_ + 1) - begin(own_);
    communicator.all_to_all(all, counts.parts, received, counts.own, DType::Float32, stream, wait);
    for (std::ptrdiff_t m = 1; m < std::ssize(members_); ++m)
      comm::reduce_pair(received, received, received + m * count, count, DType::Float32, comm::ReduceOp::Sum);
    return count;
  }

  static void copy(void* to, const void* from, std::int64_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
  std::int64_t begin(std::size_t member) const {
    return total_ * static_cast<std::int64_t>(member) / std::ssize(members_);
  }
  std::int64_t part() const { return total_ / std::ssize(members_) + 1; }

  const std::vector<std::int64_t> members_;
  const std::size_t world_;
  std::size_t own_ = 0;  // this rank among them
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
};

PreparedKernel prepare_host_sum(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupSum sum(context, communicator);
  PreparedKernel kernel;
  kernel.scratch_bytes = sum.scratch_bytes();
  kernel.run = [&communicator, deadline, sum](const KernelArgs& args) {
    sum.run(communicator, args, args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_host_scatter(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupSum sum(context, communicator);
  PreparedKernel kernel;
  if (sum.is_all()) {
    kernel.run = [&communicator, deadline,
                  count = context.outputs[0].shape.elements()](const KernelArgs& args) {
      communicator.reduce_scatter(args.inputs[0], args.outputs[0], count, DType::Float32, comm::ReduceOp::Sum,
                                  args.stream, args.wait->at_most(deadline));
    };
    return kernel;
  }
  kernel.scratch_bytes = sum.scratch_bytes();
  kernel.run = [&communicator, deadline, sum](const KernelArgs& args) {
    sum.run_part(communicator, args, args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_host_gather(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupGather gather(context, communicator);
  PreparedKernel kernel;
  kernel.scratch_bytes = gather.scratch_bytes();
  kernel.run = [&communicator, deadline, gather](const KernelArgs& args) {
    const auto copy = [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); };
    gather.run(communicator, args, copy, args.wait->at_most(deadline));
  };
  return kernel;
}

PreparedKernel prepare_host_all_to_all(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const GroupAllToAll exchange(context, communicator);
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, exchange](const KernelArgs& args) {
    exchange.run(communicator, args, args.wait->at_most(deadline));
  };
  return kernel;
}

void infer_all_to_all(InferContext& context) {
  const auto members = std::ssize(context.attr<std::vector<std::int64_t>>(kMembers, {}));
  const Shape& shape = context.shape(0);
  if (shape.has_rank() &&
      (shape.rank() == 0 || members == 0 || (shape[0] != Shape::kUnknown && shape[0] % members != 0)))
    context.fail("shape " + shape.to_string() + " has no equal parts for " + std::to_string(members) +
                 " members");
  context.output(context.dtype(0), shape);
}

}  // namespace

void register_group_ops(OpRegistry& registry) {
  OpDef sum = exchange_op("braid.GroupAllReduce", Lane::Comm);
  sum.traits = computes().output_list();
  sum.min_inputs = 1;
  sum.infer = [](InferContext& context) {
    for (int i = 0; i < context.inputs(); ++i) context.output(context.dtype(i), context.shape(i));
  };
  sum.cpu = prepare_host_sum;
  registry.add(std::move(sum));

  OpDef scatter = exchange_op("braid.GroupReduceScatter", Lane::Comm);
  scatter.traits = computes();
  scatter.min_inputs = scatter.max_inputs = 1;
  scatter.infer = [](InferContext& context) {
    const auto members = std::ssize(context.attr<std::vector<std::int64_t>>(kMembers, {}));
    Shape shape = context.shape(0);
    if (shape.has_rank() && shape.rank() == 0) context.fail("a scalar has no rows");
    if (shape.has_rank() && shape[0] != Shape::kUnknown) {
      if (members == 0 || shape[0] % members != 0)
        context.fail("shape " + shape.to_string() + " has no equal slices of rows for " +
                     std::to_string(members) + " members");
      shape.set_dim(0, shape[0] / members);
    }
    context.output(context.dtype(0), shape);
  };
  scatter.cpu = prepare_host_scatter;
  registry.add(std::move(scatter));

  OpDef all_to_all = exchange_op("braid.GroupAllToAll", Lane::Comm);
  all_to_all.min_inputs = all_to_all.max_inputs = 1;
  all_to_all.infer = infer_all_to_all;
  all_to_all.cpu = prepare_host_all_to_all;
  registry.add(std::move(all_to_all));

  OpDef gather = exchange_op("braid.GroupGather", Lane::Comm);
  gather.min_inputs = 1;
  gather.infer = [](InferContext& context) {
    const auto members = std::ssize(context.attr<std::vector<std::int64_t>>(kMembers, {}));
    for (int i = 0; i < context.inputs(); ++i) {
      const Shape& one = context.shape(i);
      if (!one.has_rank()) {
        context.output(context.dtype(i), one);
        continue;
      }
      std::vector<std::int64_t> dims{members};
      dims.insert(dims.end(), one.dims().begin(), one.dims().end());
      context.output(context.dtype(i), Shape(std::move(dims)));
    }
  };
  gather.cpu = prepare_host_gather;
  registry.add(std::move(gather));
  register_group_device_kernels(registry);
}

}  // namespace braid::worker
