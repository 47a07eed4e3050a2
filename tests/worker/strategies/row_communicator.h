// A communicator of hosts that says it exchanges rows as GPUs of one host do, so that strategies plan for
// those. Thread rule: as the one within.
#pragma once

#include <memory>
#include <utility>

#include "comm/communicator.h"

namespace braid::worker {

class RowCommunicator final : public comm::Communicator {
 public:
  explicit RowCommunicator(std::unique_ptr<comm::Communicator> within) : within_(std::move(within)) {}

  bool exchanges_rows(const WaitContext&) override { return true; }

  int rank() const override { return within_->rank(); }
  int size() const override { return within_->size(); }
  std::string_view backend() const override { return within_->backend(); }
  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, comm::ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    within_->all_reduce(input, output, count, dtype, op, stream, wait);
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, comm::ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    within_->reduce_scatter(input, output, count, dtype, op, stream, wait);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    within_->all_gather(input, output, count, dtype, stream, wait);
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    within_->broadcast(data, count, dtype, root, stream, wait);
  }
  void all_to_all(const void* input, void* output, std::int64_t count, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    within_->all_to_all(input, output, count, dtype, stream, wait);
  }
  void all_to_all(const void* input, std::span<const std::int64_t> sent, void* output,
                  std::span<const std::int64_t> received, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    within_->all_to_all(input, sent, output, received, dtype, stream, wait);
  }
  void send(const void* data, std::int64_t count, DType dtype, int to, StreamRef stream,
            const WaitContext& wait) override {
    within_->send(data, count, dtype, to, stream, wait);
  }
  void recv(void* data, std::int64_t count, DType dtype, int from, StreamRef stream,
            const WaitContext& wait) override {
    within_->recv(data, count, dtype, from, stream, wait);
  }
  void barrier(const WaitContext& wait) override { within_->barrier(wait); }
  void abort() override { within_->abort(); }

 private:
  const std::unique_ptr<comm::Communicator> within_;
};

}  // namespace braid::worker
