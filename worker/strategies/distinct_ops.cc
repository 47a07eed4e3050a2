#include "worker/strategies/distinct_ops.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "engine/device/accelerator.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/distinct_exchange.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/hybrid_ops.h"
#include "worker/strategies/owner_ops.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

using Travel = DistinctExchange::Direction;

int tables_of(const InferContext& c) {
  const auto owners = c.attr(kOwners, std::vector<std::int64_t>{});
  if (owners.empty() || c.inputs() != 3 * static_cast<int>(owners.size()))
    c.fail(fmt::format("{} owners for {} inputs", owners.size(), c.inputs()));
  return static_cast<int>(owners.size());
}

void infer_distinct_rows(InferContext& c) {
  const int tables = tables_of(c);
  for (int t = 0; t < tables; ++t) {
    const Shape &table = c.shape(t), &places = c.shape(2 * tables + t);
    if (!table.has_rank() || !places.has_rank()) {
      c.output(DType::Float32, Shape::unknown_rank());
      continue;
    }
    if (table.rank() != 2) c.fail("a table has rows of numbers, " + table.to_string() + " has not");
    std::vector<std::int64_t> dims(places.dims().begin(), places.dims().end());
    dims.push_back(table[1]);
    c.output(DType::Float32, Shape(std::move(dims)));
  }
}

void infer_distinct_sums(InferContext& c) {
  const int tables = tables_of(c);
  const auto owners = c.attr(kOwners, std::vector<std::int64_t>{});
  const auto world = c.attr("world", std::int64_t{1}), rank = c.attr("rank", std::int64_t{0});
  for (int t = 0; t < tables; ++t) {
    c.require_rank(t, 2);
    Shape shape = c.shape(t);
    if (shape.has_rank() && owners[static_cast<std::size_t>(t)] != rank)
      shape.set_dim(0, 0);
    else if (shape.has_rank() && shape[0] != Shape::kUnknown)
      shape.set_dim(0, shape[0] * world);
    c.output(DType::Float32, shape);
  }
}

/// Row i of a move, from `src` to `dst`, whose rows are behind each other.
void move_rows(const comm::RowMove& move, bool named, const KernelArgs& a, const char* src, char* dst) {
  const auto numbers = [&](int input, std::int64_t first) { return a.in<std::int32_t>(input) + first; };
  const std::int32_t* const own = numbers(move.numbers, move.first);
  const std::int32_t* const via = move.via < 0 ? nullptr : numbers(move.via, move.via_first);
  const auto bytes = static_cast<std::size_t>(move.row_bytes);
  for (std::int64_t i = 0; i < move.count; ++i) {
    std::int64_t from = own[i];
    if (from < 0) continue;
    if (!named) from = i;
    if (via) from = via[from];
    if (from < 0 || from >= move.bound) continue;
    std::memcpy(dst + static_cast<std::size_t>(i) * bytes, src + static_cast<std::size_t>(from) * bytes,
                bytes);
  }
}

char* output_of(const comm::RowMove& move, const KernelArgs& a) {
  return static_cast<char*>(a.outputs[move.to]) + move.to_row * move.row_bytes;
}

/// In messages that have all of the lists' room.
template <Travel kTravel>
PreparedKernel prepare_distinct_on_host(const PrepareContext& c) {
  auto* const communicator = &require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const auto exchange = std::make_shared<DistinctExchange>(c, kTravel);
  if (std::ssize(exchange->sent()) != communicator->size())
    c.fail(fmt::format("for {} ranks, but there are {}", exchange->sent().size(), communicator->size()));
  std::vector<std::size_t> filled;
  const int byte = static_cast<int>(c.attr(kFillByte, std::int64_t{0}));
  if (c.attr("fill", false))
    for (const OutputInfo& output : c.outputs)
      filled.push_back(static_cast<std::size_t>(output.shape.elements()) * sizeof(float));
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(exchange->outgoing_bytes() + exchange->incoming_bytes());
  kernel.run = [=](const KernelArgs& a) {
    const comm::RowLayout& layout = exchange->layout();
    for (std::size_t t = 0; t < filled.size(); ++t)
      if (filled[t] != 0) std::memset(a.outputs[t], byte, filled[t]);
    auto* const out = static_cast<char*>(a.scratch);
    char* const in = out + exchange->outgoing_bytes();
    for (const comm::RowMove& move : layout.own)
      move_rows(move, layout.named, a, static_cast<const char*>(a.inputs[move.from]), output_of(move, a));
    if (communicator->size() == 1) return;
    if (exchange->outgoing_bytes() > 0)
      std::memset(out, byte, static_cast<std::size_t>(exchange->outgoing_bytes()));
    for (std::size_t s = 0; s < layout.sent.size(); ++s)
      move_rows(layout.sent[s], layout.named, a, static_cast<const char*>(a.inputs[layout.sent[s].from]),
                out + exchange->outgoing_place(s));
    communicator->all_to_all(out, exchange->sent(), in, exchange->received(), DType::UInt8, a.stream,
                             a.wait->at_most(deadline));
    for (const comm::RowMove& move : layout.received)
      move_rows(move, layout.named, a, in + move.window, output_of(move, a));
  };
  return kernel;
}

template <Travel kTravel>
PreparedKernel prepare_distinct_on_device(const PrepareContext& c) {
  auto* const communicator = &require_service<comm::Communicator>(c, "communicator");
  const auto deadline = require_service<StepServices>(c, "worker").peer_deadline;
  const DistinctExchange exchange(c, kTravel);
  std::vector<std::size_t> filled;
  if (c.attr("fill", false))
    for (const OutputInfo& output : c.outputs)
      filled.push_back(static_cast<std::size_t>(output.shape.elements()) * sizeof(float));
  PreparedKernel kernel;
  kernel.run = [=, layout = exchange.layout(), name = c.node.op->name + " " + c.node.name,
                device = c.accelerator,
                opened = std::shared_ptr<comm::PieceExchange>()](const KernelArgs& a) mutable {
    for (std::size_t t = 0; t < filled.size(); ++t)
      if (filled[t] != 0) device->fill_zero(a.outputs[t], filled[t], a.stream);
    // By the first run, which all ranks make in the same order.
    if (!opened) opened = communicator->open_exchange(name, layout, WaitContext::with_timeout(deadline));
    if (!opened) throw Internal(name + ": the GPUs do not reach each other's memory any more");
    opened->run(a.inputs, a.outputs, a.stream);
  };
  return kernel;
}

/// What a rank sends or receives at most, where tables are dealt out evenly.
Cost of_travel(const InferContext& c, std::span<const OutputInfo> rows) {
  const auto world = static_cast<double>(c.attr("world", std::int64_t{1}));
  double bytes = 0;
  for (const OutputInfo& info : rows)
    if (info.shape.is_static())
      bytes += static_cast<double>(info.shape.elements()) * static_cast<double>(sizeof(float));
  return {0, bytes * (world - 1) / world};
}

OpDef distinct_op(const char* name, void (*infer)(InferContext&), PrepareFn cpu) {
  OpDef def = exchange_op(name, Lane::Comm);
  def.min_inputs = 3;
  def.infer = infer;
  def.cpu = std::move(cpu);
  return def;
}

}  // namespace

void register_distinct_ops(OpRegistry& registry) {
  OpDef rows =
      distinct_op("braid.RowsFromOwners", infer_distinct_rows, prepare_distinct_on_host<Travel::FromOwners>);
  rows.further_handles = Access::Read;
  rows.cost = [](const InferContext& c, std::span<const OutputInfo> outputs) {
    return of_travel(c, outputs);
  };
  registry.add(std::move(rows));
  OpDef sums =
      distinct_op("braid.SumsToOwners", infer_distinct_sums, prepare_distinct_on_host<Travel::ToOwners>);
  sums.cost = [](const InferContext& c, std::span<const OutputInfo>) {
    std::vector<OutputInfo> sent;
    for (int i = 0; i < c.inputs() / 3; ++i) sent.push_back({c.dtype(i), c.shape(i)});
    return of_travel(c, sent);
  };
  registry.add(std::move(sums));
  registry.add_cuda("braid.RowsFromOwners", prepare_distinct_on_device<Travel::FromOwners>, on_device);
  registry.add_cuda("braid.SumsToOwners", prepare_distinct_on_device<Travel::ToOwners>, on_device);
}

}  // namespace braid::worker
