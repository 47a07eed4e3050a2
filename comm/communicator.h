// Collective operations among the ranks of one group. Implementations: local (threads of a process), ring
// (Asio TCP), mpi (Open MPI), nccl. One conformance suite, tests/comm/communicator_conformance.h, runs on all
// of them.
//
// All ranks call the same operations in the same order with the same counts and types; `stream` orders the
// work (host streams: the call returns when it is done; CUDA streams, NCCL alone: when it is enqueued).
// Arrays are contiguous, in host memory for host streams and in this rank's device memory for CUDA streams;
// counts are of elements, 0 too; reductions take float32, float64, int32 and int64, the other operations
// every type of a fixed size. `input` and `output` do not overlap where nothing else is said. Sums are made
// in an order that depends on (size, count) only, so a repeated call gives the same bits. A peer that does
// not answer before the deadline is named: "rank 2 (10.0.0.7:4001)". After any throw the communicator is
// broken: every later call throws Unavailable; make a new one. Thread rule: one thread at a time, except
// abort(), which any thread may call.
//
// Throws (all operations): DeadlineExceeded, Cancelled, Unavailable (a peer is gone), InvalidArgument (bad
// count or type).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/stream_ref.h"
#include "base/wait_context.h"
#include "comm/mailbox.h"
#include "comm/piece_exchange.h"

namespace braid::comm {

enum class ReduceOp { Sum, Max, Min };

/// One array of a reduction of several.
struct ReducePiece {
  const void* input = nullptr;
  void* output = nullptr;  // may be `input`
  std::int64_t count = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "local", "ring", "mpi", "nccl".
  virtual std::string_view backend() const = 0;

  /// output[i] = op over ranks of input[i]; both have `count` elements, and `input` may equal `output`.
  virtual void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                          StreamRef stream, const WaitContext& wait) = 0;
  /// The same for several arrays, which a backend may send together.
  virtual void all_reduce(std::span<const ReducePiece> pieces, DType dtype, ReduceOp op, StreamRef stream,
                          const WaitContext& wait) {
    for (const ReducePiece& piece : pieces)
      all_reduce(piece.input, piece.output, piece.count, dtype, op, stream, wait);
  }
  /// output[i] = op over ranks of input[rank() * count_per_rank + i]; input has size() * count_per_rank
  /// elements, output count_per_rank.
  virtual void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype,
                              ReduceOp op, StreamRef stream, const WaitContext& wait) = 0;
  /// output = the inputs of rank 0, 1, ... one after another; output has size() * count_per_rank elements.
  virtual void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype,
                          StreamRef stream, const WaitContext& wait) = 0;
  /// `data` of `root` replaces `data` everywhere.
  virtual void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                         const WaitContext& wait) = 0;
  /// Block r of `input` goes to rank r, which finds it as block rank() of its `output`; both have size()
  /// blocks of count_per_rank elements.
  virtual void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype,
                          StreamRef stream, const WaitContext& wait) = 0;
  /// The same for several arrays, whose counts are of a rank and which a backend may send together.
  virtual void all_to_all(std::span<const ReducePiece> pieces, DType dtype, StreamRef stream,
                          const WaitContext& wait) {
    for (const ReducePiece& piece : pieces)
      all_to_all(piece.input, piece.output, piece.count, dtype, stream, wait);
  }
  /// The same with a number of elements for each pair: send_counts[r] of them, block behind block, go to rank
  /// r, recv_counts[r] come from it. What r sends to this rank is as much as this rank takes from r; where it
  /// is not, both are told (nccl: neither). Counts of 0 are sent like others, so no rank has to know those of
  /// others. Throws also: InvalidArgument unless there are size() counts of each.
  virtual void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                          std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                          const WaitContext& wait) = 0;
  /// To and from another rank, which calls the other one of the two at the same point of its sequence, with
  /// the same count and type.
  virtual void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
                    const WaitContext& wait) = 0;
  virtual void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
                    const WaitContext& wait) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier(const WaitContext& wait) = 0;

  /// An exchange between the memories of GPUs that needs no messages, or null, on all ranks, where all_to_all
  /// is the way. Collective: all ranks open the same exchanges in the same order, with layouts that fit. It
  /// may be run until the communicator ends.
  virtual std::shared_ptr<PieceExchange> open_exchange(const std::string& /*name*/, const PieceLayout&,
                                                       const WaitContext&) {
    return nullptr;
  }
  /// Whether rows can go so, too, on all ranks. Collective.
  virtual bool exchanges_rows(const WaitContext&) { return false; }
  /// As open_exchange(), for rows that numbers on the devices choose. REQUIRES: exchanges_rows(). Throws:
  /// InvalidArgument for more moves than kMostRowMoves.
  virtual std::shared_ptr<PieceExchange> open_exchange(const std::string& /*name*/, const RowLayout&,
                                                       const WaitContext&) {
    return nullptr;
  }
  /// Slots for messages that need no send() and recv(), or null, on all ranks, where these are the way.
  /// Collective: all ranks name the same slots. It may be used until the communicator ends.
  virtual std::shared_ptr<Mailbox> open_mailbox(const std::string& /*name*/, const std::vector<MailSlot>&,
                                                const WaitContext&) {
    return nullptr;
  }

  /// Around what runs operations without calling them: a step whose captured graph contains them. A step
  /// that does not end before its deadline breaks the communicator, and its operations end. Steps end in the
  /// order in which they began; several may be under way. Host streams need neither.
  virtual void begin_step(std::uint64_t /*step*/, const WaitContext&) {}
  /// Throws: what broke the communicator meanwhile; the step's results are not to be used then.
  virtual void end_step(std::uint64_t /*step*/) {}

  /// Makes pending and later operations of this rank fail with Unavailable soon. Safe from any thread;
  /// idempotent.
  virtual void abort() = 0;
};

}  // namespace braid::comm
