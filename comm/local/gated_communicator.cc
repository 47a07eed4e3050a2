#include "comm/local/gated_communicator.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/error.h"

namespace braid::comm {
namespace {

class GatedCommunicator final : public Communicator {
 public:
  GatedCommunicator(std::unique_ptr<Communicator> communicator, std::shared_ptr<Gate> gate, int place)
      : within_(std::move(communicator)), gate_(std::move(gate)), place_(place) {}
  ~GatedCommunicator() override {
    gate_->break_off(ErrorCode::Unavailable, fmt::format("rank {} of this process is gone", place_));
  }

  int rank() const override { return within_->rank(); }
  int size() const override { return within_->size(); }
  std::string_view backend() const override { return within_->backend(); }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    gated("all_reduce", stream, wait,
          [&] { within_->all_reduce(input, output, count, dtype, op, stream, wait); });
  }
  void all_reduce(std::span<const ReducePiece> pieces, DType dtype, ReduceOp op, StreamRef stream,
                  const WaitContext& wait) override {
    gated("all_reduce", stream, wait, [&] { within_->all_reduce(pieces, dtype, op, stream, wait); });
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype, ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    gated("reduce_scatter", stream, wait,
          [&] { within_->reduce_scatter(input, output, count_per_rank, dtype, op, stream, wait); });
  }
  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    gated("all_gather", stream, wait,
          [&] { within_->all_gather(input, output, count_per_rank, dtype, stream, wait); });
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    gated("broadcast", stream, wait, [&] { within_->broadcast(data, count, dtype, root, stream, wait); });
  }
  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    gated("all_to_all", stream, wait,
          [&] { within_->all_to_all(input, output, count_per_rank, dtype, stream, wait); });
  }
  void all_to_all(std::span<const ReducePiece> pieces, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    gated("all_to_all", stream, wait, [&] { within_->all_to_all(pieces, dtype, stream, wait); });
  }
  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    gated("all_to_all", stream, wait,
          [&] { within_->all_to_all(input, send_counts, output, recv_counts, dtype, stream, wait); });
  }
  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    within_->send(data, count, dtype, destination, stream, wait);
  }
  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    within_->recv(data, count, dtype, source, stream, wait);
  }
  void barrier(const WaitContext& wait) override {
    gated("barrier", StreamRef::host(), wait, [&] { within_->barrier(wait); });
  }
  std::shared_ptr<PieceExchange> open_exchange(const std::string& name, const PieceLayout& layout,
                                               const WaitContext& wait) override {
    return within_->open_exchange(name, layout, wait);
  }
  bool exchanges_rows(const WaitContext& wait) override { return within_->exchanges_rows(wait); }
  std::shared_ptr<PieceExchange> open_exchange(const std::string& name, const RowLayout& layout,
                                               const WaitContext& wait) override {
    return within_->open_exchange(name, layout, wait);
  }
  std::shared_ptr<Mailbox> open_mailbox(const std::string& name, const std::vector<MailSlot>& slots,
                                        const WaitContext& wait) override {
    return within_->open_mailbox(name, slots, wait);
  }
  void begin_step(std::uint64_t step, const WaitContext& wait) override {
    gate_->pass(place_, fmt::format("step {}", step), wait);
    within_->begin_step(step, wait);
  }
  void end_step(std::uint64_t step) override { within_->end_step(step); }

  void abort() override {
    gate_->break_off(ErrorCode::Unavailable, fmt::format("rank {} of this process gave up", place_));
    within_->abort();
  }

 private:
  /// Runs the operation when all of the process have come to it; on a GPU's stream it returns when all have
  /// enqueued it. Who does not run it is missed by the others of the process, too.
  template <class Operation>
  void gated(std::string_view name, StreamRef stream, const WaitContext& wait, Operation operation) {
    gate_->pass(place_, name, wait);
    try {
      operation();
    } catch (const Error& error) {
      gate_->break_off(error.code(), error.message());
      throw;
    }
    if (stream.kind == StreamKind::Cuda) gate_->pass(place_, name, wait);
  }

  const std::unique_ptr<Communicator> within_;
  const std::shared_ptr<Gate> gate_;
  const int place_;
};

}  // namespace

std::unique_ptr<Communicator> make_gated_communicator(std::unique_ptr<Communicator> communicator,
                                                      std::shared_ptr<Gate> gate, int place) {
  return std::make_unique<GatedCommunicator>(std::move(communicator), std::move(gate), place);
}

}  // namespace braid::comm
