#include "comm/ring/ring_communicator.h"

#include <fmt/core.h>

#include <cstring>
#include <vector>

#include "comm/reduce.h"
#include "comm/ring/mesh.h"
#include "comm/ring/ring_pass.h"

namespace braid::comm {
namespace {

class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(int rank, std::vector<PeerSockets> peers)
      : mesh_(rank, std::move(peers)),
        rank_(rank),
        size_(mesh_.size()),
        left_((rank + size_ - 1) % size_),
        right_((rank + 1) % size_) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "ring"; }

  void all_reduce(const void* input, void* output, std::int64_t count, DType dtype, ReduceOp op,
                  StreamRef stream, const WaitContext& wait) override {
    check_first([&] {
      check("all_reduce", input, output, count, dtype, stream);
      check_reduction(backend(), "all_reduce", dtype);
    });
    auto header = make_header(Operation::AllReduce, count, dtype, static_cast<int>(op));
    auto bytes = bytes_of(count, dtype);
    if (size_ == 1) return copy(output, input, bytes);
    if (is_summed_directly(static_cast<std::int64_t>(bytes), size_))
      return all_reduce_direct(header, input, output, dtype, op, wait);
    auto* in = static_cast<const std::byte*>(input);
    auto* out = static_cast<std::byte*>(output);
    auto start = [&](int segment) { return bytes_of(count * segment / size_, dtype); };
    auto segment_bytes = [&](int segment) { return start(segment + 1) - start(segment); };
    std::vector<RingPass::Item> items;
    for (int t = 0; t + 1 < size_; ++t) {
      auto segment = modulo(rank_ - 1 - t);
      items.push_back({out + start(segment), in + start(segment), segment_bytes(segment)});
    }
    for (int t = 0; t + 1 < size_; ++t) {
      auto segment = modulo(rank_ - t);
      items.push_back({out + start(segment), nullptr, segment_bytes(segment)});
    }
    pass(header, {in + start(rank_), segment_bytes(rank_)}, std::move(items), dtype, op, wait);
  }

  void reduce_scatter(const void* input, void* output, std::int64_t count_per_rank, DType dtype, ReduceOp op,
                      StreamRef stream, const WaitContext& wait) override {
    check_first([&] {
      check("reduce_scatter", input, output, count_per_rank, dtype, stream);
      check_reduction(backend(), "reduce_scatter", dtype);
    });
    auto bytes = bytes_of(count_per_rank, dtype);
    if (size_ == 1) return copy(output, input, bytes);
    auto* in = static_cast<const std::byte*>(input);
    scratch_.resize(bytes * static_cast<std::size_t>(size_ - 2));
    std::vector<RingPass::Item> items;
    for (int t = 0; t + 1 < size_; ++t) {
      bool last = t + 2 == size_;
      auto* target =
          last ? static_cast<std::byte*>(output) : scratch_.data() + bytes * static_cast<std::size_t>(t);
      items.push_back({target, in + bytes * static_cast<std::size_t>(modulo(rank_ - 2 - t)), bytes});
    }
    auto header = make_header(Operation::ReduceScatter, count_per_rank, dtype, static_cast<int>(op));
    pass(header, {in + bytes * static_cast<std::size_t>(left_), bytes}, std::move(items), dtype, op, wait);
  }

  void all_gather(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check_first([&] { check("all_gather", input, output, count_per_rank, dtype, stream); });
    auto bytes = bytes_of(count_per_rank, dtype);
    auto* out = static_cast<std::byte*>(output);
    auto* own = out + bytes * static_cast<std::size_t>(rank_);
    copy(own, input, bytes);
    if (size_ == 1) return;
    std::vector<RingPass::Item> items;
    for (int t = 0; t + 1 < size_; ++t)
      items.push_back({out + bytes * static_cast<std::size_t>(modulo(rank_ - 1 - t)), nullptr, bytes});
    pass(make_header(Operation::AllGather, count_per_rank, dtype, 0), {own, bytes}, std::move(items), dtype,
         ReduceOp::Sum, wait);
  }

  void broadcast(void* data, std::int64_t count, DType dtype, int root, StreamRef stream,
                 const WaitContext& wait) override {
    check_first([&] {
      check("broadcast", data, data, count, dtype, stream);
      check_rank(backend(), "broadcast", "root", root, size_);
    });
    if (size_ == 1) return;
    auto header = make_header(Operation::Broadcast, count, dtype, root);
    auto bytes = bytes_of(count, dtype);
    // From the root along the ring; the rank before the root is the last.
    auto* place = static_cast<std::byte*>(data);
    if (rank_ == root) {
      auto flow = ArrayFlow::send(right_, data, bytes);
      return run(header, {&flow}, wait);
    }
    if (right_ == root) {
      auto flow = ArrayFlow::receive(left_, data, bytes);
      return run(header, {&flow}, wait);
    }
    RingPass relay(left_, right_, {}, {{place, nullptr, bytes}, {nullptr, nullptr, 0}}, dtype, ReduceOp::Sum);
    run(header, {&relay.receiver(), &relay.sender()}, wait);
  }

  void all_to_all(const void* input, void* output, std::int64_t count_per_rank, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check_first([&] { check("all_to_all", input, output, count_per_rank, dtype, stream); });
    auto bytes = bytes_of(count_per_rank, dtype);
    auto* in = static_cast<const std::byte*>(input);
    auto* out = static_cast<std::byte*>(output);
    auto own = bytes * static_cast<std::size_t>(rank_);
    copy(out + own, in + own, bytes);
    exchange(
        make_header(Operation::AllToAll, count_per_rank, dtype, 0), wait,
        [&](int peer) { return ArrayFlow::send(peer, in + bytes * static_cast<std::size_t>(peer), bytes); },
        [&](int peer) {
          return ArrayFlow::receive(peer, out + bytes * static_cast<std::size_t>(peer), bytes);
        });
  }

  void all_to_all(const void* input, std::span<const std::int64_t> send_counts, void* output,
                  std::span<const std::int64_t> recv_counts, DType dtype, StreamRef stream,
                  const WaitContext& wait) override {
    check_first([&] {
      check_host_exchange(backend(), input, send_counts, output, recv_counts, dtype, size_, stream);
      const auto own = static_cast<std::size_t>(rank_);
      if (send_counts[own] != recv_counts[own])
        throw InvalidArgument(
            fmt::format("[ring] all_to_all: rank {} sends {} elements to itself and takes {}", rank_,
                        send_counts[own], recv_counts[own]));
    });
    const auto froms = offsets_of(send_counts, dtype), tos = offsets_of(recv_counts, dtype);
    const auto at = [](const std::vector<std::size_t>& offsets, int rank) {
      return offsets[static_cast<std::size_t>(rank)];
    };
    const auto own = at(froms, rank_ + 1) - at(froms, rank_);
    auto* in = static_cast<const std::byte*>(input);
    auto* out = static_cast<std::byte*>(output);
    copy(out + at(tos, rank_), in + at(froms, rank_), own);
    exchange(
        make_header(Operation::AllToAllCounts, 0, dtype, 0), wait,
        [&](int peer) {
          auto flow = ArrayFlow::send(peer, in + at(froms, peer), at(froms, peer + 1) - at(froms, peer));
          flow.count = send_counts[static_cast<std::size_t>(peer)];
          return flow;
        },
        [&](int peer) {
          auto flow = ArrayFlow::receive(peer, out + at(tos, peer), at(tos, peer + 1) - at(tos, peer));
          flow.count = recv_counts[static_cast<std::size_t>(peer)];
          return flow;
        });
  }

  void send(const void* data, std::int64_t count, DType dtype, int destination, StreamRef stream,
            const WaitContext& wait) override {
    check_first([&] {
      check("send", data, data, count, dtype, stream);
      check_peer(backend(), "send", "destination", destination, rank_, size_);
    });
    auto flow = ArrayFlow::send(destination, data, bytes_of(count, dtype));
    run(make_header(Operation::SendRecv, count, dtype, 0), {&flow}, wait);
  }

  void recv(void* data, std::int64_t count, DType dtype, int source, StreamRef stream,
            const WaitContext& wait) override {
    check_first([&] {
      check("recv", data, data, count, dtype, stream);
      check_peer(backend(), "recv", "source", source, rank_, size_);
    });
    auto flow = ArrayFlow::receive(source, data, bytes_of(count, dtype));
    run(make_header(Operation::SendRecv, count, dtype, 0), {&flow}, wait);
  }

  void barrier(const WaitContext& wait) override {
    mesh_.throw_if_broken();
    exchange(
        make_header(Operation::Barrier, 0, DType::Invalid, 0), wait,
        [](int peer) { return ArrayFlow::send(peer, nullptr, 0); },
        [](int peer) { return ArrayFlow::receive(peer, nullptr, 0); });
  }

  void abort() override { mesh_.abort(); }

 private:
  static std::size_t bytes_of(std::int64_t count, DType dtype) {
    return static_cast<std::size_t>(count) * dtype_size(dtype);
  }
  /// Where each rank's block begins, in bytes, and where the last one ends.
  static std::vector<std::size_t> offsets_of(std::span<const std::int64_t> counts, DType dtype) {
    std::vector<std::size_t> offsets{0};
    for (const std::int64_t count : counts) offsets.push_back(offsets.back() + bytes_of(count, dtype));
    return offsets;
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  int modulo(int rank) const { return ((rank % size_) + size_) % size_; }

  /// Checks arguments. A rank that cannot take part says so to the others, who would wait for it.
  template <class Checks>
  void check_first(Checks checks) {
    mesh_.throw_if_broken();
    try {
      checks();
    } catch (const Error& error) {
      mesh_.give_up(error.code(), error.message());
      throw;
    }
  }

  void check(std::string_view operation, const void* input, const void* output, std::int64_t count,
             DType dtype, StreamRef stream) const {
    check_host_arrays(backend(), operation, input, output, count, dtype, stream);
  }

  static OperationHeader make_header(Operation operation, std::int64_t count, DType dtype, int argument) {
    OperationHeader header;
    header.operation = operation;
    header.dtype = static_cast<std::uint16_t>(dtype);
    header.count = count;
    header.argument = argument;
    return header;
  }

  void run(const OperationHeader& header, std::vector<Flow*> flows, const WaitContext& wait) {
    mesh_.run(header, flows, wait);
  }

  void pass(const OperationHeader& header, std::span<const std::byte> first,
            std::vector<RingPass::Item> items, DType dtype, ReduceOp op, const WaitContext& wait) {
    RingPass ring(left_, right_, first, std::move(items), dtype, op);
    run(header, {&ring.receiver(), &ring.sender()}, wait);
  }

  /// One flow to and one from every other rank, beginning with the neighbours so that not all turn to rank 0
  /// first.
  template <class MakeSend, class MakeReceive>
  void exchange(const OperationHeader& header, const WaitContext& wait, MakeSend make_send,
                MakeReceive make_receive) {
    std::vector<ArrayFlow> flows;
    for (int distance = 1; distance < size_; ++distance) {
      flows.push_back(make_send(modulo(rank_ + distance)));
      flows.push_back(make_receive(modulo(rank_ - distance)));
    }
    std::vector<Flow*> pointers;
    for (auto& flow : flows) pointers.push_back(&flow);
    run(header, pointers, wait);
  }

  /// Everybody sends everything to everybody: one latency instead of 2 (size - 1), for arrays where that is
  /// what counts.
  void all_reduce_direct(const OperationHeader& header, const void* input, void* output, DType dtype,
                         ReduceOp op, const WaitContext& wait) {
    auto bytes = bytes_of(header.count, dtype);
    scratch_.resize(bytes * static_cast<std::size_t>(size_));
    auto part = [&](int rank) { return scratch_.data() + bytes * static_cast<std::size_t>(rank); };
    copy(part(rank_), input, bytes);
    exchange(
        header, wait, [&](int peer) { return ArrayFlow::send(peer, part(rank_), bytes); },
        [&](int peer) { return ArrayFlow::receive(peer, part(peer), bytes); });
    for (int rank = 1; rank < size_; ++rank)
      reduce_pair(part(0), part(0), part(rank), header.count, dtype, op);
    copy(output, part(0), bytes);
  }

  Mesh mesh_;
  const int rank_;
  const int size_;
  const int left_;
  const int right_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Communicator> make_ring_communicator(const RingOptions& options, Rendezvous& rendezvous,
                                                     const WaitContext& wait) {
  return std::make_unique<RingCommunicator>(options.rank, connect_mesh(options, rendezvous, wait));
}

}  // namespace braid::comm
