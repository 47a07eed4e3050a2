#include "worker/strategies/pipeline_ops.h"

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/mailbox.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

struct Piece {
  std::int64_t count;
  DType dtype;
};

std::vector<Piece> pieces_of(std::span<const OutputInfo> values) {
  std::vector<Piece> pieces;
  for (const OutputInfo& value : values) pieces.push_back({value.shape.elements(), value.dtype});
  return pieces;
}

WaitContext wait_of(const KernelArgs& args, std::chrono::nanoseconds deadline) {
  return args.wait ? args.wait->at_most(deadline) : WaitContext::with_timeout(deadline);
}

int peer_of(const PrepareContext& context, const comm::Communicator& communicator) {
  const auto peer = context.node.attrs.require<std::int64_t>(kPeer);
  if (peer < 0 || peer >= communicator.size() || peer == communicator.rank())
    context.fail("rank " + std::to_string(peer) + " is no other rank of " +
                 std::to_string(communicator.size()));
  return static_cast<int>(peer);
}

/// What a message is of, in the memory of a device.
class MailParts {
 public:
  explicit MailParts(std::span<const OutputInfo> values) {
    for (const OutputInfo& value : values)
      parts_.push_back(
          {nullptr, value.shape.elements() * static_cast<std::int64_t>(dtype_size(value.dtype))});
  }
  template <class Pointers>
  std::span<const comm::MailPart> at(const Pointers& data) {
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].data = const_cast<void*>(data[i]);
    return parts_;
  }

 private:
  std::vector<comm::MailPart> parts_;
};

PreparedKernel prepare_send(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, peer = peer_of(context, communicator),
                pieces = pieces_of(context.inputs)](const KernelArgs& args) {
    const WaitContext wait = wait_of(args, deadline);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      communicator.send(args.inputs[i], pieces[i].count, pieces[i].dtype, peer, args.stream, wait);
  };
  return kernel;
}

PreparedKernel prepare_recv(const PrepareContext& context) {
  auto& communicator = require_service<comm::Communicator>(context, "communicator");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  PreparedKernel kernel;
  kernel.run = [&communicator, deadline, peer = peer_of(context, communicator),
                pieces = pieces_of(context.outputs)](const KernelArgs& args) {
    const WaitContext wait = wait_of(args, deadline);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      communicator.recv(args.outputs[i], pieces[i].count, pieces[i].dtype, peer, args.stream, wait);
  };
  return kernel;
}

/// `messages`: the kernel that does without a mailbox.
PreparedKernel through_mailbox(const PrepareContext& context, PreparedKernel messages, bool sends) {
  const auto* const mail = context.services.find<StageMail>();
  const auto slot = static_cast<int>(context.attr(kSlot, std::int64_t{-1}));
  if (!mail || slot < 0) return messages;
  PreparedKernel kernel;
  kernel.run = [mail, slot, sends, parts = MailParts(sends ? context.inputs : context.outputs),
                messages = std::move(messages.run)](const KernelArgs& args) mutable {
    if (!mail->mailbox) return messages(args);
    if (sends)
      mail->mailbox->send(slot, parts.at(args.inputs), args.stream);
    else
      mail->mailbox->recv(slot, parts.at(args.outputs), args.stream);
  };
  return kernel;
}

PreparedKernel prepare_send_on_device(const PrepareContext& context) {
  return through_mailbox(context, prepare_send(context), true);
}

PreparedKernel prepare_recv_on_device(const PrepareContext& context) {
  return through_mailbox(context, prepare_recv(context), false);
}

}  // namespace

void register_pipeline_ops(OpRegistry& registry) {
  OpDef send = exchange_op(kSendOp, Lane::Comm);
  send.min_inputs = 1;
  send.infer = [](InferContext&) {};
  send.cpu = prepare_send;
  registry.add(std::move(send));

  OpDef recv = exchange_op(kRecvOp, Lane::Comm);
  recv.min_inputs = recv.max_inputs = 0;
  recv.infer = [](InferContext& context) {
    const auto dtypes = context.attr<std::vector<DType>>(kDtypes, {});
    const auto shapes = context.attr<std::vector<Shape>>(kShapes, {});
    if (dtypes.size() != shapes.size()) context.fail("needs a shape for each type");
    for (std::size_t i = 0; i < dtypes.size(); ++i) context.output(dtypes[i], shapes[i]);
  };
  recv.cpu = prepare_recv;
  registry.add(std::move(recv));

  registry.add_cuda(kSendOp, prepare_send_on_device, on_device);
  registry.add_cuda(kRecvOp, prepare_recv_on_device, on_device);
}

}  // namespace braid::worker
