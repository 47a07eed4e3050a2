#include "comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>
#include <span>
#include <vector>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/nccl/nccl_session.h"
#include "comm/nccl/nccl_types.h"
#include "comm/nccl/pair_all_reduce.h"
#include "comm/nccl/peer_exchange.h"
#include "comm/nccl/peer_mailbox.h"
#include "comm/nccl/peer_window.h"
#include "comm/nccl/row_exchange.h"
#include "comm/nccl/small_all_reduce.h"
#include "comm/reduce.h"

namespace braid::comm {
namespace {

/// One launch for what `calls` calls; the first failure, or how the launch went.
template <class Calls>
ncclResult_t grouped(Calls calls) {
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  calls([&](ncclResult_t one) {
    if (result == ncclSuccess && one != ncclInProgress) result = one;
  });
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

std::size_t bytes_of(std::int64_t count, DType dtype) { return NcclSession::bytes_of(count, dtype); }

/// NCCL adds halves up in float32 within a hop, and rounds behind it.
void check_device_reduction(std::string_view operation, DType dtype) {
  if (dtype != DType::Float16 && dtype != DType::BFloat16) check_reduction("nccl", operation, dtype);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, Rendezvous& rendezvous, const WaitContext& wait)
      : name_(options.name),
        rendezvous_(rendezvous),
        session_(options, rendezvous, wait),
        handle_(session_.handle()) {}

  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  std::string_view backend() const override { return "nccl"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    session_.check("all_reduce", [&] {
      check_buffers("all_reduce", input, output, count, dtype, stream);
      check_device_reduction("all_reduce", dtype);
    });
    const ReducePiece piece{input, output, count};
    if (reduce_by_peers({&piece, 1}, dtype, op, stream, wait)) return;
    session_.run("all_reduce", {input, count}, {output, count}, dtype, stream, wait,
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
    session_.check("all_reduce", [&] {
      for (const ReducePiece& piece : pieces)
        check_buffers("all_reduce", piece.input, piece.output, piece.count, dtype, stream);
      check_device_reduction("all_reduce", dtype);
    });
    if (reduce_by_peers(pieces, dtype, op, stream, wait)) return;
    const auto on = static_cast<cudaStream_t>(stream.native);
    session_.enqueue("all_reduce", stream, wait, [&] {
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
    session_.check("reduce_scatter", [&] {
      check_buffers("reduce_scatter", input, output, count_per_rank, dtype, stream);
      check_reduction(backend(), "reduce_scatter", dtype);
    });
    session_.run("reduce_scatter", {input, count_per_rank * size()}, {output, count_per_rank}, dtype, stream,
                 wait, [=, this](const void* from, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclReduceScatter(from, to, static_cast<std::size_t>(count_per_rank),
                                              reduction_type(dtype), reduction(op), comm, on);
                   });
                 });
  }

  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    session_.check("all_gather",
                   [&] { check_buffers("all_gather", input, output, count_per_rank, dtype, stream); });
    session_.run("all_gather", {input, count_per_rank}, {output, count_per_rank * size()}, dtype, stream,
                 wait, [=, this](const void* from, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclAllGather(from, to, bytes_of(count_per_rank, dtype), ncclUint8, comm, on);
                   });
                 });
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    session_.check("broadcast", [&] {
      check_buffers("broadcast", data, data, count, dtype, stream);
      check_rank(backend(), "broadcast", "root", root, size());
    });
    session_.run("broadcast", {data, count}, {data, count}, dtype, stream, wait,
                 [=, this](const void* from, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclBroadcast(from, to, bytes_of(count, dtype), ncclUint8, root, comm, on);
                   });
                 });
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    session_.check("all_to_all",
                   [&] { check_buffers("all_to_all", input, output, count_per_rank, dtype, stream); });
    const std::size_t block = count_per_rank > 0 ? bytes_of(count_per_rank, dtype) : 0;
    session_.run(
        "all_to_all", {input, count_per_rank * size()}, {output, count_per_rank * size()}, dtype, stream,
        wait, [=, this](const void* from, void* to, cudaStream_t on) {
          return handle_.call([&](ncclComm_t comm) {
            return grouped([&](auto&& each) {
              for (int peer = 0; peer < size(); ++peer) {
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
    session_.check("all_to_all", [&] {
      for (const ReducePiece& piece : pieces)
        check_buffers("all_to_all", piece.input, piece.output, piece.count, dtype, stream);
    });
    const auto on = static_cast<cudaStream_t>(stream.native);
    session_.enqueue("all_to_all", stream, wait, [&] {
      return handle_.call([&](ncclComm_t comm) {
        return grouped([&](auto&& each) {
          for (const ReducePiece& piece : pieces) {
            const std::size_t block = bytes_of(piece.count, dtype);
            for (int peer = 0; peer < size() && block > 0; ++peer) {
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
    session_.check("all_to_all", [&] {
      sent = check_counts(backend(), "all_to_all", "send", send_counts, size());
      received = check_counts(backend(), "all_to_all", "receive", recv_counts, size());
      check_buffers("all_to_all", input, input, sent, dtype, stream);
      check_buffers("all_to_all", output, output, received, dtype, stream);
    });
    const std::vector<std::int64_t> sends(send_counts.begin(), send_counts.end()),
        receives(recv_counts.begin(), recv_counts.end());
    session_.run("all_to_all", {input, sent}, {output, received}, dtype, stream, wait,
                 [=, this](const void* from, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return grouped([&](auto&& each) {
                       auto* source = static_cast<const std::byte*>(from);
                       auto* target = static_cast<std::byte*>(to);
                       for (int peer = 0; peer < size(); ++peer) {
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
    session_.check("send", [&] {
      check_buffers("send", data, data, count, dtype, stream);
      check_peer("send", "destination", destination);
    });
    session_.run("send", {data, count}, {nullptr, 0}, dtype, stream, wait,
                 [=, this](const void* from, void*, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclSend(from, bytes_of(count, dtype), ncclUint8, destination, comm, on);
                   });
                 });
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    session_.check("recv", [&] {
      check_buffers("recv", data, data, count, dtype, stream);
      check_peer("recv", "source", source);
    });
    session_.run("recv", {nullptr, 0}, {data, count}, dtype, stream, wait,
                 [=, this](const void*, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclRecv(to, bytes_of(count, dtype), ncclUint8, source, comm, on);
                   });
                 });
  }

  void barrier(const WaitContext& wait) override {
    session_.check("barrier", [] {});
    std::int32_t one = 1, all = 0;
    session_.run("barrier", {&one, 1}, {&all, 1}, DType::Int32, StreamRef::host(), wait,
                 [this](const void* from, void* to, cudaStream_t on) {
                   return handle_.call([&](ncclComm_t comm) {
                     return ncclAllReduce(from, to, 1, ncclInt32, ncclSum, comm, on);
                   });
                 });
  }

  std::shared_ptr<PieceExchange> open_exchange(const std::string& name, const PieceLayout& layout,
                                               const WaitContext& wait) override {
    session_.check("open_exchange", [] {});
    // The kernels count a piece's elements in 32 bits.
    constexpr std::int64_t kMostPieceBytes = std::int64_t{1} << 31;
    std::string why;
    for (const auto* moves : {&layout.own, &layout.sent, &layout.received})
      for (const PieceMove& move : *moves)
        if (move.bytes >= kMostPieceBytes) why = fmt::format("a piece has {} bytes", move.bytes);
    std::unique_ptr<PeerWindow> window = open_window(name, layout.window_bytes, std::move(why), wait);
    return window ? make_peer_exchange(std::move(window), layout, handle_.aborted()) : nullptr;
  }
  bool exchanges_rows(const WaitContext& wait) override {
    session_.check("exchanges_rows", [] {});
    const auto bytes = std::vector<std::int64_t>(static_cast<std::size_t>(size()), 1);
    return open_window("rows", bytes, why_no_row_exchange(), wait) != nullptr;
  }
  std::shared_ptr<PieceExchange> open_exchange(const std::string& name, const RowLayout& layout,
                                               const WaitContext& wait) override {
    session_.check("open_exchange", [&] {
      if (!fits_row_exchange(layout))
        throw InvalidArgument(fmt::format("[nccl] {}: more rows than one exchange can have", name));
    });
    std::unique_ptr<PeerWindow> window = open_window(name, layout.window_bytes, {}, wait);
    return window ? make_row_exchange(std::move(window), layout, handle_.aborted()) : nullptr;
  }

  std::shared_ptr<Mailbox> open_mailbox(const std::string& name, const std::vector<MailSlot>& slots,
                                        const WaitContext& wait) override {
    session_.check("open_mailbox", [&] {
      for (const MailSlot& slot : slots) {
        check_rank(backend(), "open_mailbox", "sender", slot.from, size());
        check_rank(backend(), "open_mailbox", "receiver", slot.to, size());
      }
    });
    std::unique_ptr<PeerWindow> window =
        open_window(name, mail_window_bytes(slots, size()), why_no_mailbox(slots), wait);
    return window ? make_peer_mailbox(std::move(window), slots, handle_.aborted()) : nullptr;
  }

  void begin_step(std::uint64_t step, const WaitContext& wait) override {
    session_.throw_if_broken();
    session_.peers().begin_step(step);
    session_.watch().begin_step(step, wait);
  }

  void end_step(std::uint64_t step) override {
    session_.watch().end_step(step);
    if (const ErrorPtr error = session_.watch().broken()) throw_error(*error);
  }

  void abort() override {
    session_.break_off(make_error(ErrorCode::Unavailable, fmt::format("[nccl] rank {}: aborted", rank())));
  }

 private:
  /// Collective; null on all ranks where messages have to do.
  std::unique_ptr<PeerWindow> open_window(const std::string& name, std::span<const std::int64_t> bytes,
                                          std::string why, const WaitContext& wait) {
    if (const char* off = std::getenv("NCCL_P2P_DISABLE"); off && std::string_view(off) == "1")
      why = "NCCL_P2P_DISABLE is set";
    return session_.collectively(wait, [&] {
      std::unique_ptr<PeerWindow> window;
      try {
        window = PeerWindow::open(rendezvous_, fmt::format("{}/window{}", name_, windows_++), rank(), bytes,
                                  wait, why);
      } catch (const DeadlineExceeded&) {
        throw DeadlineExceeded(fmt::format("[nccl] rank {}: {} #{}: deadline exceeded: {}", rank(), name,
                                           session_.peers().collectives(),
                                           session_.peers().who_is_missing()));
      }
      if (!window) log_info("[nccl] {} travels in messages: {}", name, why);
      return window;
    });
  }

  /// Whether GPUs that write each other's memory did it.
  bool reduce_by_peers(std::span<const ReducePiece> pieces, DType dtype, ReduceOp op, StreamRef stream,
                       const WaitContext& wait) {
    if (stream.kind != StreamKind::Cuda || dtype != DType::Float32 || op != ReduceOp::Sum || size() == 1)
      return false;
    if (PairAllReduce::fits(pieces, size()))
      return reduce_by(pair_, "all_reduce of two", PairAllReduce::window_bytes(), pieces, stream, wait);
    if (SmallAllReduce::fits(pieces))
      return reduce_by(small_, "small all_reduce", SmallAllReduce::window_bytes(size()), pieces, stream,
                       wait);
    return false;
  }

  template <class Way>
  struct PeerSum {
    bool asked = false;
    std::unique_ptr<Way> way;  // null: peers' windows do not allow it
  };
  /// The first sum of its way asks whether it can be gone, unless it is captured, which allows no allocation.
  template <class Way>
  bool reduce_by(PeerSum<Way>& sum, const char* name, std::int64_t window_bytes,
                 std::span<const ReducePiece> pieces, StreamRef stream, const WaitContext& wait) {
    if (!sum.asked) {
      cudaStreamCaptureStatus capturing{};
      BRAID_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native), &capturing));
      if (capturing != cudaStreamCaptureStatusNone) return false;
      sum.asked = true;
      const std::vector<std::int64_t> bytes(static_cast<std::size_t>(size()), window_bytes);
      if (auto window = open_window(name, bytes, {}, wait))
        sum.way = std::make_unique<Way>(std::move(window), handle_.aborted());
    }
    if (!sum.way) return false;
    session_.enqueue("all_reduce", stream, wait, [&] {
      sum.way->run(pieces, stream);
      return NcclSession::Enqueue(ncclSuccess);
    });
    return true;
  }

  void check_buffers(std::string_view operation, const void* input, const void* output, std::int64_t count,
                     DType dtype, StreamRef stream) const {
    if (stream.kind == StreamKind::Cuda && !stream.native)
      throw InvalidArgument(fmt::format("[nccl] {}: not on the default stream", operation));
    check_buffer(backend(), operation, input, count, dtype);
    check_buffer(backend(), operation, output, count, dtype);
  }

  void check_peer(std::string_view operation, std::string_view role, int peer) const {
    check_rank(backend(), operation, role, peer, size());
    if (peer == rank())
      throw InvalidArgument(fmt::format("[nccl] {}: {} is this rank itself", operation, role));
  }

  const std::string name_;
  Rendezvous& rendezvous_;
  int windows_ = 0;  // that were asked for
  PeerSum<SmallAllReduce> small_;
  PeerSum<PairAllReduce> pair_;
  NcclSession session_;
  NcclHandle& handle_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait) {
  const cuda::DeviceGuard guard(options.device);
  return std::make_unique<NcclCommunicator>(options, rendezvous, wait);
}

}  // namespace braid::comm
