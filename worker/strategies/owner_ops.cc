#include "worker/strategies/owner_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/ops/common/device_boxes.h"
#include "engine/ops/common/halves.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/keep_op.h"
#include "worker/strategies/owner_exchange.h"
#include "worker/strategies/owner_parts.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Direction = OwnerExchange::Direction;

std::vector<std::int64_t> owners_of(const InferContext& c, int tensors) {
  auto owners = c.attr(kOwners, std::vector<std::int64_t>{});
  if (owners.empty() || static_cast<int>(owners.size()) != tensors)
    c.fail(fmt::format("{} owners for {} tensors", owners.size(), tensors));
  return owners;
}

void infer_to_owners(InferContext& c) {
  const std::vector<std::int64_t> owners = owners_of(c, c.inputs());
  const auto world = c.attr("world", std::int64_t{1}), rank = c.attr("rank", std::int64_t{0});
  for (int i = 0; i < c.inputs(); ++i) {
    Shape shape = c.shape(i);
    if (shape.has_rank() && shape.rank() < 1) c.fail("a scalar has no rows");
    if (shape.has_rank()) {
      const std::int64_t rows = shape[0];
      const bool here = owners[static_cast<std::size_t>(i)] == rank;
      shape.set_dim(0, !here ? 0 : rows == Shape::kUnknown ? rows : rows * world);
    }
    c.output(c.dtype(i), shape);
  }
}

/// Of ids that are no inputs.
std::vector<Shape> like_shapes(const InferContext& c) {
  const auto list = c.attr(kLikeDims, std::vector<std::int64_t>{});
  std::vector<Shape> shapes;
  for (auto at = list.begin(); at != list.end();) {
    const std::int64_t rank = *at++;
    if (rank < 0 || rank > list.end() - at) c.fail("like_dims are no shapes");
    shapes.emplace_back(std::vector<std::int64_t>(at, at + rank));
    at += rank;
  }
  return shapes;
}

void infer_from_owners(InferContext& c) {
  std::vector<Shape> likes = like_shapes(c);
  const int tensors = likes.empty() ? c.inputs() / 2 : static_cast<int>(likes.size());
  if (c.inputs() != (likes.empty() ? 2 : 1) * tensors) c.fail("as many tensors as shapes are needed");
  for (int i = tensors; i < c.inputs(); ++i) likes.push_back(c.shape(i));
  owners_of(c, tensors);
  const auto like_axes = c.attr(kLikeAxes, std::vector<std::int64_t>{});
  for (int i = 0; i < tensors; ++i) {
    const Shape &rows = c.shape(i), &like = likes[static_cast<std::size_t>(i)];
    if (!rows.has_rank() || !like.has_rank()) {
      c.output(c.dtype(i), Shape::unknown_rank());
      continue;
    }
    if (rows.rank() < like.rank() && like_axes.empty())
      c.fail(fmt::format("rows {} are not of ids {}", rows.to_string(), like.to_string()));
    const std::int64_t said = like_axes.empty() ? -1 : like_axes[static_cast<std::size_t>(i)];
    const int axes = said < 0 ? like.rank() : static_cast<int>(said);
    std::vector<std::int64_t> dims(like.dims().begin(), like.dims().begin() + axes);
    for (int axis = axes; axis < rows.rank(); ++axis) dims.push_back(rows[axis]);
    c.output(c.dtype(i), Shape(std::move(dims)));
  }
}

/// One node's exchange on a device: opened by the first run, which all ranks make in the same order.
struct Opened {
  bool asked = false;
  std::shared_ptr<comm::PieceExchange> exchange;
};

/// Copies, one exchange, copies: `boxes` makes the kernels that copy. On a device whose peers it can write,
/// the device does it all by itself.
template <class Boxes>
PreparedKernel prepare(const PrepareContext& c, Direction direction, bool is_device, const Boxes& boxes) {
  auto* const communicator = &require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto exchange = std::make_shared<OwnerExchange>(c, direction, c.outputs);
  if (std::ssize(exchange->sent()) != communicator->size())
    c.fail(fmt::format("for {} ranks, but there are {}", exchange->sent().size(), communicator->size()));
  PreparedKernel kernel;
  kernel.scratch_bytes = exchange->outgoing_bytes() + exchange->incoming_bytes();
  const auto scratch_in = static_cast<int>(c.inputs.size()), scratch_out = static_cast<int>(c.outputs.size());
  BoxPlan before = exchange->own();
  std::ranges::move(exchange->packed(scratch_out).parts, std::back_inserter(before.parts));
  kernel.run = [=, with_scratch = WithScratch(c.inputs.size(), c.outputs.size()), name = c.node.name,
                opened = std::make_shared<Opened>(), before = boxes(c, std::move(before)),
                after = boxes(c, exchange->unpacked(scratch_in, exchange->outgoing_bytes()))](
                   const KernelArgs& a) mutable {
    const WaitContext wait = is_device ? WaitContext::with_timeout(deadline) : a.wait->at_most(deadline);
    if (is_device && communicator->size() > 1 && !std::exchange(opened->asked, true))
      opened->exchange = communicator->open_exchange(name, exchange->layout(), wait);
    if (opened->exchange) return opened->exchange->run(a.inputs, a.outputs, a.stream);
    const KernelArgs all = with_scratch.of(a);
    before.run(all);
    if (communicator->size() == 1) return;
    auto* const out = static_cast<std::byte*>(a.scratch);
    communicator->all_to_all(out, exchange->sent(), out + exchange->outgoing_bytes(), exchange->received(),
                             DType::UInt8, a.stream, wait);
    after.run(all);
  };
  return kernel;
}

template <Direction kDirection>
PreparedKernel prepare_on_host(const PrepareContext& c) {
  return prepare(c, kDirection, false, host_box_kernel);
}

template <Direction kDirection>
PreparedKernel prepare_on_device(const PrepareContext& c) {
  return prepare(c, kDirection, true, device_box_kernel);
}

bool copies_on_device(const Node& node, std::span<const OutputInfo> inputs) {
  return on_device(node, inputs) &&
         std::ranges::all_of(inputs, [](const OutputInfo& input) { return dtype_size(input.dtype) != 0; });
}

double bytes_of(DType dtype, const Shape& shape) {
  return shape.is_static() ? static_cast<double>(shape.elements()) * static_cast<double>(dtype_size(dtype))
                           : 0;
}

/// What a rank sends or receives, where tables are dealt out evenly: `bytes` are those of its own batch.
Cost of_travel(const InferContext& c, double bytes) {
  const auto world = static_cast<double>(c.attr("world", std::int64_t{1}));
  return {0, bytes * (world - 1) / world};
}

Cost to_owners_cost(const InferContext& c, std::span<const OutputInfo>) {
  double bytes = 0;
  for (int i = 0; i < c.inputs(); ++i) bytes += bytes_of(c.dtype(i), c.shape(i));
  return of_travel(c, bytes);
}

Cost from_owners_cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  double bytes = 0;
  for (const OutputInfo& output : outputs) bytes += bytes_of(output.dtype, output.shape);
  return of_travel(c, bytes);
}

using CostFn = Cost (*)(const InferContext&, std::span<const OutputInfo>);

/// What travels, without inputs that only give shapes.
std::vector<int> travelling(const Node& node) {
  std::vector<int> inputs(node.outputs.size());
  std::iota(inputs.begin(), inputs.end(), 0);
  return inputs;
}

/// Sums, rows and gradients travel as halves where they are read or made so. Which do must not depend on what
/// a rank owns: so the op is no move, as these look at sizes.
OpDef owner_op(const char* name, void (*infer)(InferContext&), CostFn cost, PrepareFn cpu) {
  OpDef def = exchange_op(name, Lane::Comm);
  def.min_inputs = 1;
  def.infer = infer;
  def.cost = cost;
  def = takes_halves(std::move(def), {.kind = HalfKind::Follower, .outputs = {-1}, .inputs_of = travelling});
  def.cpu = std::move(cpu);  // copies bytes, whatever they are
  return def;
}

}  // namespace

void register_owner_ops(OpRegistry& registry) {
  registry.add(
      owner_op("braid.ToOwners", infer_to_owners, to_owners_cost, prepare_on_host<Direction::ToOwners>));
  registry.add(owner_op("braid.FromOwners", infer_from_owners, from_owners_cost,
                        prepare_on_host<Direction::FromOwners>));
  registry.add_cuda("braid.ToOwners", prepare_on_device<Direction::ToOwners>, copies_on_device);
  registry.add_cuda("braid.FromOwners", prepare_on_device<Direction::FromOwners>, copies_on_device);
  cuda_takes_halves({"braid.ToOwners", "braid.FromOwners"});
  register_owner_parts(registry);
  register_keep_op(registry);
}

}  // namespace braid::worker
