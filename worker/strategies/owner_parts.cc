#include "worker/strategies/owner_parts.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/ops/common/device_boxes.h"
#include "engine/ops/common/two_parts.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/owner_exchange.h"
#include "worker/strategies/sent_exchanges.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Direction = OwnerExchange::Direction;

std::vector<OutputInfo> whole_outputs(const OpDef& whole, const Node& node,
                                      std::span<const OutputInfo> inputs,
                                      std::span<const Tensor* const> values) {
  InferContext context(node, inputs, values);
  whole.infer(context);
  return context.take_outputs();
}

std::vector<OutputInfo> inputs_of(const InferContext& c, int count) {
  std::vector<OutputInfo> inputs;
  for (int i = 0; i < count; ++i) inputs.push_back({c.dtype(i), c.shape(i)});
  return inputs;
}

std::vector<const Tensor*> values_of(const InferContext& c, int count) {
  std::vector<const Tensor*> values;
  for (int i = 0; i < count; ++i) values.push_back(c.value(i));
  return values;
}

/// `boxes` makes the kernels that copy, where GPUs do not write each other's memory.
template <class Boxes>
PreparedKernel prepare_send(const PrepareContext& c, const OpDef& whole, Direction direction, bool is_device,
                            const Boxes& boxes) {
  auto* const communicator = &require_service<comm::Communicator>(c, "communicator");
  auto* const sent = &require_service<SentExchanges>(c, "exchanges in two parts");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto exchange =
      std::make_shared<OwnerExchange>(c, direction, whole_outputs(whole, c.node, c.inputs, c.values));
  PreparedKernel kernel;
  kernel.scratch_bytes = exchange->outgoing_bytes();
  kernel.run =
      [=, name = c.node.name, asked = false, opened = std::shared_ptr<comm::SplitExchange>(),
       with_scratch = WithScratch(c.inputs.size(), c.outputs.size()),
       pack = boxes(c, exchange->packed(static_cast<int>(c.outputs.size())))](const KernelArgs& a) mutable {
        const WaitContext wait = is_device ? WaitContext::with_timeout(deadline) : a.wait->at_most(deadline);
        if (communicator->size() == 1) return;
        if (is_device &&
            !std::exchange(asked, true)) {  // by the first run, which all ranks make in the same order
          const auto found = communicator->open_exchange(name, exchange->layout(), wait);
          opened = std::dynamic_pointer_cast<comm::SplitExchange>(found);
          if (found && !opened) throw Internal(name + ": the exchange has no two parts");
        }
        if (opened) {
          sent->put(a.outputs[0], opened);
          return opened->send(a.inputs, a.stream);
        }
        pack.run(with_scratch.of(a));
        communicator->all_to_all(a.scratch, exchange->sent(), a.outputs[0], exchange->received(),
                                 DType::UInt8, a.stream, wait);
      };
  return kernel;
}

template <class Boxes>
PreparedKernel prepare_take(const PrepareContext& c, Direction direction, const Boxes& boxes) {
  auto* const sent = &require_service<SentExchanges>(c, "exchanges in two parts");
  const OwnerExchange exchange(c, direction, c.outputs);
  const auto message = static_cast<int>(c.inputs.size()) - 1;
  BoxPlan copies = exchange.unpacked(message, 0);
  copies.parts.insert(copies.parts.begin(), exchange.own().parts.begin(), exchange.own().parts.end());
  PreparedKernel kernel;
  kernel.run = [=, copy = boxes(c, std::move(copies))](const KernelArgs& a) {
    if (const auto begun = sent->take(a.inputs[message])) return begun->take(a.inputs, a.outputs, a.stream);
    copy.run(a);
  };
  return kernel;
}

void infer_send(const OpDef& whole, Direction direction, InferContext& c) {
  const std::vector<OutputInfo> inputs = inputs_of(c, c.inputs());
  const std::vector<OutputInfo> outputs = whole_outputs(whole, c.node(), inputs, values_of(c, c.inputs()));
  c.output(DType::UInt8, Shape{OwnerExchange::incoming_bytes(c.node(), direction, inputs, outputs)});
}

void infer_take(const OpDef& whole, InferContext& c) {
  const int count = c.inputs() - 1;
  for (OutputInfo& output : whole_outputs(whole, c.node(), inputs_of(c, count), values_of(c, count)))
    c.output(output.dtype, std::move(output.shape));
}

void register_parts(OpRegistry& registry, const char* op, Direction direction, const TwoParts& parts) {
  const OpDef& whole = registry.require(op);
  OpDef send = exchange_op(parts.send.c_str(), Lane::Comm);
  send.min_inputs = 1;
  send.infer = [&whole, direction](InferContext& c) { infer_send(whole, direction, c); };
  send.cost = [&whole](const InferContext& c, std::span<const OutputInfo>) {
    return whole.cost(c, whole_outputs(whole, c.node(), inputs_of(c, c.inputs()), values_of(c, c.inputs())));
  };
  send.cpu = [&whole, direction](const PrepareContext& c) {
    return prepare_send(c, whole, direction, false, host_box_kernel);
  };
  OpDef take = exchange_op(parts.take.c_str(), Lane::Compute);
  take.min_inputs = 2;
  take.infer = [&whole](InferContext& c) { infer_take(whole, c); };
  take.cpu = [direction](const PrepareContext& c) { return prepare_take(c, direction, host_box_kernel); };
  registry.add(std::move(send));
  registry.add(std::move(take));
  registry.add_cuda(parts.send, [&whole, direction](const PrepareContext& c) {
    return prepare_send(c, whole, direction, true, device_box_kernel);
  });
  registry.add_cuda(parts.take, [direction](const PrepareContext& c) {
    return prepare_take(c, direction, device_box_kernel);
  });
  set_two_parts(op, parts);
}

}  // namespace

void register_owner_parts(OpRegistry& registry) {
  register_parts(registry, "braid.ToOwners", Direction::ToOwners,
                 {"braid.SendToOwners", "braid.TakeAtOwners"});
  register_parts(registry, "braid.FromOwners", Direction::FromOwners,
                 {"braid.SendFromOwners", "braid.TakeFromOwners"});
}

}  // namespace braid::worker
