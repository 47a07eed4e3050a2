#include "worker/strategies/hybrid_ops.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/allreduce_ops.h"
#include "worker/strategies/exchange_op.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/table_service.h"

namespace braid::worker {
namespace {

using Counts = std::vector<std::int64_t>;

/// One x of an exchange.
struct Part {
  std::int64_t capacity = 0;
  std::size_t row_bytes = 0;

  std::size_t block_bytes() const { return static_cast<std::size_t>(capacity) * row_bytes; }
};

/// How many numbers a padded block begins with that are not negative.
std::int64_t used(const std::int64_t* block, std::int64_t capacity) {
  return std::partition_point(block, block + capacity, [](std::int64_t row) { return row >= 0; }) - block;
}

/// The exchange of all parts on the host: what is of use, rank by rank, in one message for each pair.
class HostExchange {
 public:
  HostExchange(const PrepareContext& c, comm::Communicator& communicator, std::chrono::nanoseconds deadline)
      : communicator_(communicator),
        deadline_(deadline),
        counted_(c.inputs.size() > c.outputs.size()),
        fills_(c.attr("fill", false)),
        fill_byte_(static_cast<int>(c.attr(kFillByte, std::int64_t{0}))) {
    for (std::size_t i = 0; i < c.outputs.size(); ++i) {
      const Shape& shape = c.inputs[i].shape;
      ranks_ = shape[0];
      std::size_t row = dtype_size(c.inputs[i].dtype);
      for (int axis = 2; axis < shape.rank(); ++axis) row *= static_cast<std::size_t>(shape[axis]);
      if (row % sizeof(float) != 0) c.fail("rows must be of whole 4 bytes");
      parts_.push_back({shape[1], row});
      bytes_ += parts_.back().block_bytes() * static_cast<std::size_t>(ranks_);
    }
    if (!counted_ && (c.inputs[0].dtype != DType::Int64 || c.inputs[0].shape.rank() != 2))
      c.fail("lists of rows must be int64 of rank 2");
    if (ranks_ != communicator.size())
      c.fail("blocks for " + std::to_string(ranks_) + " ranks, but there are " +
             std::to_string(communicator.size()));
  }

  /// For what is sent and what comes.
  std::size_t scratch_bytes() const { return ranks_ == 1 ? 0 : 2 * ((bytes_ + 63) / 64 * 64); }

  void run(const KernelArgs& a) const {
    if (ranks_ == 1) {
      for (std::size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].block_bytes() > 0) std::memcpy(a.outputs[i], a.inputs[i], parts_[i].block_bytes());
      return;
    }
    const WaitContext wait = a.wait->at_most(deadline_);
    const auto count = parts_.size();
    const Counts sent = counts(a, counted_ ? count : 0);
    Counts received;
    if (counted_) {
      received = counts(a, 2 * count);
    } else {
      received.resize(sent.size());
      communicator_.all_to_all(sent.data(), received.data(), static_cast<std::int64_t>(count), DType::Int64,
                               a.stream, wait);
      check(received);
    }
    auto* const out = static_cast<char*>(a.scratch);
    char* const in = out + scratch_bytes() / 2;
    move(sent, out, a.inputs,
         [](char* packed, char* block, std::size_t bytes) { std::memcpy(packed, block, bytes); });
    communicator_.all_to_all(out, words(sent), in, words(received), DType::Float32, a.stream, wait);
    move(received, in, a.outputs,
         [](char* packed, char* block, std::size_t bytes) { std::memcpy(block, packed, bytes); });
    if (!counted_)
      pad(received, a, 0xff);
    else if (fills_)
      pad(received, a, fill_byte_);
  }

 private:
  /// [ranks, parts], from the lists that begin at input `first`.
  Counts counts(const KernelArgs& a, std::size_t first) const {
    Counts all;
    for (std::int64_t r = 0; r < ranks_; ++r)
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        const std::int64_t capacity = parts_[i].capacity;
        all.push_back(used(a.in<std::int64_t>(static_cast<int>(first + i)) + r * capacity, capacity));
      }
    return all;
  }
  void check(const Counts& received) const {
    for (std::size_t i = 0; i < received.size(); ++i)
      if (received[i] < 0 || received[i] > parts_[i % parts_.size()].capacity)
        throw InvalidArgument("a rank sends " + std::to_string(received[i]) +
                              " rows where there is room for " +
                              std::to_string(parts_[i % parts_.size()].capacity));
  }
  /// Words of 4 bytes for each rank.
  Counts words(const Counts& counts) const {
    Counts all(static_cast<std::size_t>(ranks_));
    for (std::size_t i = 0; i < counts.size(); ++i)
      all[i / parts_.size()] +=
          counts[i] * static_cast<std::int64_t>(parts_[i % parts_.size()].row_bytes / sizeof(float));
    return all;
  }
  template <class Move>
  void move(const Counts& counts, char* packed, void* const* blocks, const Move& one) const {
    std::size_t at = 0;
    for (std::int64_t r = 0; r < ranks_; ++r)
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        const std::size_t bytes = static_cast<std::size_t>(counts[at++]) * parts_[i].row_bytes;
        if (bytes > 0)
          one(packed, static_cast<char*>(blocks[i]) + static_cast<std::size_t>(r) * parts_[i].block_bytes(),
              bytes);
        packed += bytes;
      }
  }
  /// Behind what came.
  void pad(const Counts& received, const KernelArgs& a, int byte) const {
    std::size_t at = 0;
    for (std::int64_t r = 0; r < ranks_; ++r)
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        const std::size_t bytes = static_cast<std::size_t>(received[at++]) * parts_[i].row_bytes;
        char* const block =
            static_cast<char*>(a.outputs[i]) + static_cast<std::size_t>(r) * parts_[i].block_bytes();
        std::memset(block + bytes, byte, parts_[i].block_bytes() - bytes);
      }
  }

  comm::Communicator& communicator_;
  const std::chrono::nanoseconds deadline_;
  const bool counted_, fills_;
  const int fill_byte_;
  std::int64_t ranks_ = 1;
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;  // of all parts
};

PreparedKernel prepare_host_exchange(const PrepareContext& context) {
  const auto exchange =
      std::make_shared<HostExchange>(context, require_service<comm::Communicator>(context, "communicator"),
                                     require_service<StepServices>(context, "worker").peer_deadline);
  PreparedKernel kernel;
  kernel.scratch_bytes = exchange->scratch_bytes();
  kernel.run = [exchange](const KernelArgs& args) { exchange->run(args); };
  return kernel;
}

void infer_exchange(InferContext& c) {
  const auto parts = static_cast<int>(c.attr("parts", std::int64_t{0}));
  if (parts < 1 || (c.inputs() != parts && c.inputs() != 3 * parts))
    c.fail("attribute parts is " + std::to_string(parts) + ", but there are " + std::to_string(c.inputs()) +
           " inputs");
  for (int i = 0; i < parts; ++i) c.output(c.dtype(i), c.shape(i));
}

PreparedKernel prepare_served_rows(const PrepareContext& context) {
  auto& tables = require_service<TableService>(context, "sharded tables");
  const auto deadline = require_service<StepServices>(context, "worker").peer_deadline;
  const auto table = static_cast<int>(context.attr("table", std::int64_t{0}));
  const std::int64_t n = context.inputs[0].shape.elements();
  const bool is_wide = context.inputs[0].dtype == DType::Int64;
  PreparedKernel kernel;
  kernel.scratch_bytes = is_wide ? 0 : static_cast<std::size_t>(n) * sizeof(std::int64_t);
  kernel.run = [&tables, deadline, table, n, is_wide](const KernelArgs& args) {
    const auto* ids = args.in<std::int64_t>(0);
    if (!is_wide) {
      std::copy_n(args.in<std::int32_t>(0), n, static_cast<std::int64_t*>(args.scratch));
      ids = static_cast<const std::int64_t*>(args.scratch);
    }
    tables.look_up(table, {ids, static_cast<std::size_t>(n)}, args.out<float>(0),
                   args.wait->at_most(deadline));
  };
  return kernel;
}

}  // namespace

void register_hybrid_ops(OpRegistry& registry) {
  OpDef exchange = exchange_op("braid.AllToAll", Lane::Comm);
  exchange.min_inputs = 1;
  exchange.infer = infer_exchange;
  exchange.cpu = prepare_host_exchange;
  registry.add(std::move(exchange));

  OpDef served;
  served.name = "braid.ServedRows";
  served.traits = moves();
  served.min_inputs = served.max_inputs = 1;
  served.infer = [](InferContext& c) {
    if (!c.shape(0).has_rank()) return c.output(DType::Float32, Shape::unknown_rank());
    std::vector<std::int64_t> dims(c.shape(0).dims().begin(), c.shape(0).dims().end());
    dims.push_back(c.attr("dim", std::int64_t{1}));
    c.output(DType::Float32, Shape(std::move(dims)));
  };
  served.no_gradient_reason = "is for evaluations";
  served.cpu = prepare_served_rows;
  served.stateful = true;
  served.lane = Lane::Pull;
  registry.add(std::move(served));
  register_hybrid_device_kernels(registry);
}

}  // namespace braid::worker
