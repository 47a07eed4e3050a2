#include "comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/nccl/device_staging.h"
#include "comm/nccl/nccl_handle.h"
#include "comm/nccl/nccl_meeting.h"
#include "comm/nccl/nccl_watch.h"
#include "comm/nccl/peer_exchange.h"
#include "comm/nccl/peer_progress.h"
#include "comm/nccl/peer_window.h"
#include "comm/nccl/small_all_reduce.h"
#include "comm/reduce.h"

namespace braid::comm {
namespace {

using Clock = WaitContext::Clock;

constexpr std::chrono::microseconds kSpin{100};
constexpr std::chrono::milliseconds kYield{2};
constexpr std::chrono::microseconds kNap{50};

/// Between two looks at something that somebody else finishes: without pause at first, then less and less.
void pause_since(Clock::time_point begin) {
  const auto waited = Clock::now() - begin;
  if (waited < kSpin) return;
  if (waited < kYield)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(kNap);
}

ncclDataType_t reduction_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return ncclFloat64;
    case DType::Int32:
      return ncclInt32;
    case DType::Int64:
      return ncclInt64;
    default:
      return ncclFloat32;
  }
}

ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::Max:
      return ncclMax;
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Sum:
      break;
  }
  return ncclSum;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait)
      : rank_(options.rank),
        size_(options.size),
        device_(options.device),
        name_(options.name),
        rendezvous_(rendezvous),
        peers_(rendezvous, options.name, options.rank, meet(options, rendezvous, wait)),
        staging_(options.device),
        handle_(options.rank, options.size, options.device, share_id(options, rendezvous, wait)),
        watch_(options.device, fmt::format("[nccl] rank {}", options.rank), handle_, peers_) {
    try {
      const NcclWatch::Waiting waiting(watch_, wait);
      finish_call("connect", ncclInProgress, wait);
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
    int version = 0;
    check_nccl(ncclGetVersion(&version), "ncclGetVersion", rank_);
    log_info("[nccl] {} of {}, NCCL {}.{}.{}", peers_.name_of(rank_), size_, version / 10000,
             version / 100 % 100, version % 100);
  }

  ~NcclCommunicator() override {
    // Where another rank is beyond reach, the orderly end would wait for it.
    if (!watch_.broken() && peers_.who_gave_up()) handle_.abort();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "nccl"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    check("all_reduce", [&] {
      check_buffers("all_reduce", input, output, count, dtype, stream);
      check_reduction(backend(), "all_reduce", dtype);
    });
    const ReducePiece piece{input, output, count};
    if (reduce_small({&piece, 1}, dtype, op, stream, wait)) return;
    run("all_reduce", {input, count}, {output, count}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclAllReduce(from, to, static_cast<std::size_t>(count), reduction_type(dtype),
                                 reduction(op), comm, on);
          });
        });
  }

  void all_reduce(std::span<const ReducePiece> pieces, DType dtype, ReduceOp op, StreamRef stream,
                  const WaitContext& wait) override {
    if (stream.kind == StreamKind::Host) return Communicator::all_reduce(pieces, dtype, op, stream, wait);
    check("all_reduce", [&] {
      for (const ReducePiece& piece : pieces)
        check_buffers("all_reduce", piece.input, piece.output, piece.count, dtype, stream);
      check_reduction(backend(), "all_reduce", dtype);
    });
    if (reduce_small(pieces, dtype, op, stream, wait)) return;
    const auto on = static_cast<cudaStream_t>(stream.native);
    enqueue("all_reduce", stream, wait, [&] {
      return handle_.call([&](ncclComm_t comm) {
        return grouped([&](auto&& each) {
          for (const ReducePiece& piece : pieces)
            if (piece.count > 0)
              each(ncclAllReduce(piece.input, piece.output, static_cast<std::size_t>(piece.count),
                                 reduction_type(dtype), reduction(op), comm, on));
        });
      });
    });
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype, ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    check("reduce_scatter", [&] {
      check_buffers("reduce_scatter", input, output, count_per_rank, dtype, stream);
      check_reduction(backend(), "reduce_scatter", dtype);
    });
    run("reduce_scatter", {input, count_per_rank * size_}, {output, count_per_rank}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclReduceScatter(from, to, static_cast<std::size_t>(count_per_rank),
                                     reduction_type(dtype), reduction(op), comm, on);
          });
        });
  }

  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check("all_gather", [&] { check_buffers("all_gather", input, output, count_per_rank, dtype, stream); });
    run("all_gather", {input, count_per_rank}, {output, count_per_rank * size_}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclAllGather(from, to, bytes_of(count_per_rank, dtype), ncclUint8, comm, on);
          });
        });
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    check("broadcast", [&] {
      check_buffers("broadcast", data, data, count, dtype, stream);
      check_rank(backend(), "broadcast", "root", root, size_);
    });
    run("broadcast", {data, count}, {data, count}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclBroadcast(from, to, bytes_of(count, dtype), ncclUint8, root, comm, on);
          });
        });
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check("all_to_all", [&] { check_buffers("all_to_all", input, output, count_per_rank, dtype, stream); });
    const std::size_t block = count_per_rank > 0 ? bytes_of(count_per_rank, dtype) : 0;
    run("all_to_all", {input, count_per_rank * size_}, {output, count_per_rank * size_}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return grouped([&](auto&& each) {
              for (int peer = 0; peer < size_; ++peer) {
                const std::size_t at = block * static_cast<std::size_t>(peer);
                each(ncclSend(static_cast<const std::byte*>(from) + at, block, ncclUint8, peer, comm, on));
                each(ncclRecv(static_cast<std::byte*>(to) + at, block, ncclUint8, peer, comm, on));
              }
            });
          });
        });
  }

  void all_to_all(std::span<const ReducePiece> pieces, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    if (stream.kind == StreamKind::Host) return Communicator::all_to_all(pieces, dtype, stream, wait);
    check("all_to_all", [&] {
      for (const ReducePiece& piece : pieces)
        check_buffers("all_to_all", piece.input, piece.output, piece.count, dtype, stream);
    });
    const auto on = static_cast<cudaStream_t>(stream.native);
    enqueue("all_to_all", stream, wait, [&] {
      return handle_.call([&](ncclComm_t comm) {
        return grouped([&](auto&& each) {
          for (const ReducePiece& piece : pieces) {
            const std::size_t block = bytes_of(piece.count, dtype);
            for (int peer = 0; peer < size_ && block > 0; ++peer) {
              const std::size_t at = block * static_cast<std::size_t>(peer);
              each(ncclSend(static_cast<const std::byte*>(piece.input) + at, block, ncclUint8, peer, comm,
                            on));
              each(ncclRecv(static_cast<std::byte*>(piece.output) + at, block, ncclUint8, peer, comm, on));
            }
          }
        });
      });
    });
  }

  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    std::int64_t sent = 0, received = 0;
    check("all_to_all", [&] {
      sent = check_counts(backend(), "all_to_all", "send", send_counts, size_);
      received = check_counts(backend(), "all_to_all", "receive", recv_counts, size_);
      check_buffers("all_to_all", input, input, sent, dtype, stream);
      check_buffers("all_to_all", output, output, received, dtype, stream);
    });
    const std::vector<std::int64_t> sends(send_counts.begin(), send_counts.end()),
        receives(recv_counts.begin(), recv_counts.end());
    run("all_to_all", {input, sent}, {output, received}, dtype, stream, wait,
        [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return grouped([&](auto&& each) {
              auto* source = static_cast<const std::byte*>(from);
              auto* target = static_cast<std::byte*>(to);
              for (int peer = 0; peer < size_; ++peer) {
                const std::size_t out = bytes_of(sends[static_cast<std::size_t>(peer)], dtype),
                                  in = bytes_of(receives[static_cast<std::size_t>(peer)], dtype);
                if (out > 0) each(ncclSend(source, out, ncclUint8, peer, comm, on));
                if (in > 0) each(ncclRecv(target, in, ncclUint8, peer, comm, on));
                source += out;
                target += in;
              }
            });
          });
        });
  }

  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    check("send", [&] {
      check_buffers("send", data, data, count, dtype, stream);
      check_peer("send", "destination", destination);
    });
    run("send", {data, count}, {nullptr, 0}, dtype, stream, wait,
        [=, this](const void* from, void*, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclSend(from, bytes_of(count, dtype), ncclUint8, destination, comm, on);
          });
        });
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    check("recv", [&] {
      check_buffers("recv", data, data, count, dtype, stream);
      check_peer("recv", "source", source);
    });
    run("recv", {nullptr, 0}, {data, count}, dtype, stream, wait,
        [=, this](const void*, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return ncclRecv(to, bytes_of(count, dtype), ncclUint8, source, comm, on);
          });
        });
  }

  void barrier(const WaitContext& wait) override {
    check("barrier", [] {});
    std::int32_t one = 1, all = 0;
    run("barrier", {&one, 1}, {&all, 1}, DType::Int32, StreamRef::host(), wait,
        [this](const void* from, void* to, cudaStream_t on) {
          return handle_.call(
              [&](ncclComm_t comm) { return ncclAllReduce(from, to, 1, ncclInt32, ncclSum, comm, on); });
        });
  }

  std::shared_ptr<PieceExchange> open_exchange(const std::string& name, const PieceLayout& layout,
                                               const WaitContext& wait) override {
    check("open_exchange", [] {});
    // The kernels count a piece's elements in 32 bits.
    constexpr std::int64_t kMostPieceBytes = std::int64_t{1} << 31;
    std::string why;
    for (const auto* moves : {&layout.own, &layout.sent, &layout.received})
      for (const PieceMove& move : *moves)
        if (move.bytes >= kMostPieceBytes) why = fmt::format("a piece has {} bytes", move.bytes);
    std::unique_ptr<PeerWindow> window = open_window(name, layout.window_bytes, std::move(why), wait);
    return window ? make_peer_exchange(std::move(window), layout, handle_.aborted()) : nullptr;
  }

  void begin_step(std::uint64_t step, const WaitContext& wait) override {
    throw_if_broken();
    peers_.begin_step(step);
    watch_.begin_step(step, wait);
  }

  void end_step(std::uint64_t step) override {
    watch_.end_step(step);
    if (const ErrorPtr error = watch_.broken()) throw_error(*error);
  }

  void abort() override {
    watch_.break_off(make_error(ErrorCode::Unavailable, fmt::format("[nccl] rank {}: aborted", rank_)));
  }

 private:
  /// Collective; null on all ranks where messages have to do.
  std::unique_ptr<PeerWindow> open_window(const std::string& name, std::span<const std::int64_t> bytes,
                                          std::string why, const WaitContext& wait) {
    if (const char* off = std::getenv("NCCL_P2P_DISABLE"); off && std::string_view(off) == "1")
      why = "NCCL_P2P_DISABLE is set";
    try {
      const cuda::DeviceGuard guard(device_);
      const NcclWatch::Waiting waiting(watch_, wait);
      auto window = PeerWindow::open(rendezvous_, fmt::format("{}/window{}", name_, windows_++), rank_, bytes,
                                     wait, why);
      if (!window) log_info("[nccl] {} travels in messages: {}", name, why);
      return window;
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
  }

  /// Whether GPUs that write each other's memory did it. The first sum that is small enough asks whether they
  /// can, unless it is captured, which allows no allocation.
  bool reduce_small(std::span<const ReducePiece> pieces, DType dtype, ReduceOp op, StreamRef stream,
                    const WaitContext& wait) {
    if (stream.kind != StreamKind::Cuda || dtype != DType::Float32 || op != ReduceOp::Sum || size_ == 1 ||
        !SmallAllReduce::fits(pieces))
      return false;
    const auto on = static_cast<cudaStream_t>(stream.native);
    if (!asked_small_) {
      cudaStreamCaptureStatus capturing{};
      BRAID_CUDA_CHECK(cudaStreamIsCapturing(on, &capturing));
      if (capturing != cudaStreamCaptureStatusNone) return false;
      asked_small_ = true;
      const std::vector<std::int64_t> bytes(static_cast<std::size_t>(size_),
                                            SmallAllReduce::window_bytes(size_));
      if (auto window = open_window("small all_reduce", bytes, {}, wait))
        small_ = std::make_unique<SmallAllReduce>(std::move(window), handle_.aborted());
    }
    if (!small_) return false;
    enqueue("all_reduce", stream, wait, [&] {
      small_->run(pieces, stream);
      return Enqueue(ncclSuccess);
    });
    return true;
  }

  struct Input {
    const void* data;
    std::int64_t count;
  };
  struct Output {
    void* data;
    std::int64_t count;
  };
  using Enqueue = std::optional<ncclResult_t>;

  static std::size_t bytes_of(std::int64_t count, DType dtype) {
    return static_cast<std::size_t>(count) * dtype_size(dtype);
  }

  /// One launch for what `calls` calls; the first failure, or how the launch went.
  template <class Calls>
  static ncclResult_t grouped(Calls calls) {
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    calls([&](ncclResult_t one) {
      if (result == ncclSuccess && one != ncclInProgress) result = one;
    });
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
  }

  std::string what(std::string_view operation) const {
    return fmt::format("[nccl] rank {}: {}", rank_, operation);
  }

  void throw_if_broken() const {
    if (const ErrorPtr error = watch_.broken())
      throw Unavailable(fmt::format("[nccl] rank {}: the communicator is broken: {}", rank_, error->message));
  }

  /// Checks arguments. What they throw breaks the communicator, since the others would wait.
  template <class Checks>
  void check(std::string_view operation, Checks checks) {
    throw_if_broken();
    try {
      checks();
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
    peers_.begin_collective(operation);
  }

  void check_buffers(std::string_view operation, const void* input, const void* output, std::int64_t count,
                     DType dtype, StreamRef stream) const {
    if (stream.kind == StreamKind::Cuda && !stream.native)
      throw InvalidArgument(fmt::format("[nccl] {}: not on the default stream", operation));
    check_buffer(backend(), operation, input, count, dtype);
    check_buffer(backend(), operation, output, count, dtype);
  }

  void check_peer(std::string_view operation, std::string_view role, int peer) const {
    check_rank(backend(), operation, role, peer, size_);
    if (peer == rank_)
      throw InvalidArgument(fmt::format("[nccl] {}: {} is this rank itself", operation, role));
  }

  /// Enqueues on the caller's stream, or takes the host's arrays through device memory.
  template <class Call>
  void run(std::string_view operation, Input input, Output output, DType dtype, StreamRef stream,
           const WaitContext& wait, Call call) {
    if (input.count == 0 && output.count == 0) return;
    if (stream.kind == StreamKind::Cuda) {
      enqueue(operation, stream, wait,
              [&] { return call(input.data, output.data, static_cast<cudaStream_t>(stream.native)); });
      return;
    }
    try {
      const cuda::DeviceGuard guard(device_);
      const NcclWatch::Waiting waiting(watch_, wait);
      const void* from = staging_.bring(input.data, bytes_of(input.count, dtype));
      void* to = staging_.room(bytes_of(output.count, dtype));
      launch(operation, wait, [&] { return call(from, to, staging_.stream()); });
      staging_.mark();
      for (const auto begin = Clock::now(); !staging_.reached(); pause_since(begin))
        give_up_when_late(operation, wait);
      if (const ErrorPtr error = watch_.broken()) throw_error(*error);  // kernels that were ended
      staging_.take(output.data, bytes_of(output.count, dtype), wait);
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
  }

  template <class Call>
  void enqueue(std::string_view operation, StreamRef stream, const WaitContext& wait, Call call) {
    try {
      const cuda::DeviceGuard guard(device_);
      const NcclWatch::Waiting waiting(watch_, wait);
      launch(operation, wait, call);
      watch_.after(static_cast<cudaStream_t>(stream.native), operation, wait);
    } catch (...) {
      watch_.break_off(capture_current_exception());
      throw;
    }
  }

  template <class Call>
  void launch(std::string_view operation, const WaitContext& wait, Call call) {
    const Enqueue begun = call();
    finish_call(operation, begun.value_or(ncclInProgress), wait);
  }

  /// NCCL enqueues on a thread of its own: what follows on the stream must not overtake it.
  void finish_call(std::string_view operation, ncclResult_t state, const WaitContext& wait) {
    for (const auto begin = Clock::now(); state == ncclInProgress; pause_since(begin)) {
      give_up_when_late(operation, wait);
      state = handle_.status().value_or(ncclInProgress);
    }
    if (state == ncclSuccess) return;
    throw_error(error_code_of(state),
                fmt::format("{}: {}: {}", what(operation), ncclGetErrorString(state), handle_.last_error()));
  }

  /// Throws when the wait is over, or the communicator is broken.
  void give_up_when_late(std::string_view operation, const WaitContext& wait) {
    if (const ErrorPtr error = watch_.broken()) throw_error(*error);
    if (!wait.stopped() && !wait.expired()) return;
    const std::string place = fmt::format("{} #{}", what(operation), peers_.collectives());
    if (!wait.stopped())
      throw DeadlineExceeded(fmt::format("{}: deadline exceeded: {}", place, peers_.who_is_missing()));
    wait.check(place);
  }

  const int rank_;
  const int size_;
  const int device_;
  const std::string name_;
  Rendezvous& rendezvous_;
  int windows_ = 0;  // that were asked for
  bool asked_small_ = false;
  std::unique_ptr<SmallAllReduce> small_;  // null: through NCCL
  PeerProgress peers_;
  DeviceStaging staging_;
  NcclHandle handle_;
  NcclWatch watch_;  // last: its thread uses the rest
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait) {
  const cuda::DeviceGuard guard(options.device);
  return std::make_unique<NcclCommunicator>(options, rendezvous, wait);
}

}  // namespace braid::comm
