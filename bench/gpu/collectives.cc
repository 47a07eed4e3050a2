// Bus bandwidth of all-reduce and all-to-all over NCCL by size: through our communicator, launched and as a
// captured graph, with a thread and a GPU a rank. The peers are torch.distributed on the same GPUs, run
// beside it (all-to-all: bench/peers/torch_all_to_all.py).
//
// Median of 5 rounds of 20 operations between two events, after 5 to warm up. busbw = bytes / time * 2 (n-1)
// / n of an all-reduce and half of it of an all-to-all, as nccl-tests counts them. Every size is checked: the
// sum of the ranks' numbers, and each rank's blocks.
//
// usage: collectives [GPUS]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/rendezvous/in_process.h"

namespace braid {
namespace {

constexpr int kPowers[] = {10, 14, 18, 20, 22, 24, 26, 28, 30};
constexpr int kRounds = 5, kOperations = 20, kWarm = 5;

WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

class Rank {
 public:
  Rank(int rank, int size, const std::shared_ptr<comm::RendezvousStore>& store, std::barrier<>& together)
      : rank_(rank), size_(size), together_(together) {
    BRAID_CUDA_CHECK(cudaSetDevice(rank));
    rendezvous_ = make_in_process_rendezvous(store, {"bench", 1});
    comm_ = comm::make_nccl_communicator({rank, size, rank, "bench"}, *rendezvous_, soon());
    stream_ = cuda::make_stream();
  }

  void run() {
    for (const int power : kPowers) {
      const std::size_t bytes = std::size_t{1} << power;
      void *data = nullptr, *other = nullptr;
      BRAID_CUDA_CHECK(cudaMalloc(&data, bytes));
      BRAID_CUDA_CHECK(cudaMalloc(&other, bytes));
      check_sum(data, bytes);
      both_ways("allreduce", bytes, 2, [&] { reduce(data, bytes); });
      check_blocks(data, other, bytes);
      both_ways("alltoall", bytes, 1, [&] { exchange(data, other, bytes); });
      BRAID_CUDA_CHECK(cudaFree(data));
      BRAID_CUDA_CHECK(cudaFree(other));
    }
    comm_->barrier(soon());
  }

 private:
  template <class Operation>
  void both_ways(const char* name, std::size_t bytes, int passes, Operation operation) {
    report(name, bytes, passes, "launched", measure(operation));
    const cuda::GraphExec graph = captured(operation);
    report(name, bytes, passes, "graph",
           measure([&] { BRAID_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream_.get())); }));
  }

  void exchange(const void* from, void* to, std::size_t bytes) {
    comm_->all_to_all(from, to, static_cast<std::int64_t>(bytes / sizeof(float)) / size_, DType::Float32,
                      {StreamKind::Cuda, stream_.get()}, soon());
  }

  void reduce(void* data, std::size_t bytes) {
    comm_->all_reduce(data, data, static_cast<std::int64_t>(bytes / sizeof(float)), DType::Float32,
                      comm::ReduceOp::Sum, {StreamKind::Cuda, stream_.get()}, soon());
  }

  /// Block r is for rank r and says who sent it.
  void check_blocks(void* from, void* to, std::size_t bytes) {
    std::vector<float> values(bytes / sizeof(float));
    const std::size_t block = values.size() / static_cast<std::size_t>(size_);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / block + 100U * rank());
    BRAID_CUDA_CHECK(cudaMemcpyAsync(from, values.data(), bytes, cudaMemcpyDefault, stream_.get()));
    exchange(from, to, bytes);
    BRAID_CUDA_CHECK(cudaMemcpyAsync(values.data(), to, bytes, cudaMemcpyDefault, stream_.get()));
    BRAID_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    for (std::size_t i = 0; i < block * static_cast<std::size_t>(size_); ++i)
      if (values[i] != static_cast<float>(rank() + 100U * (i / block))) {
        fmt::print("rank {}: wrong block {} of {} bytes\n", rank_, i / block, bytes);
        std::exit(1);
      }
  }

  std::size_t rank() const { return static_cast<std::size_t>(rank_); }

  void check_sum(void* data, std::size_t bytes) {
    std::vector<float> values(bytes / sizeof(float), static_cast<float>(rank_ + 1));
    BRAID_CUDA_CHECK(cudaMemcpyAsync(data, values.data(), bytes, cudaMemcpyDefault, stream_.get()));
    reduce(data, bytes);
    BRAID_CUDA_CHECK(cudaMemcpyAsync(values.data(), data, bytes, cudaMemcpyDefault, stream_.get()));
    BRAID_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    const auto sum = static_cast<float>(size_ * (size_ + 1) / 2);
    if (std::any_of(values.begin(), values.end(), [&](float value) { return value != sum; })) {
      fmt::print("rank {}: wrong sum of {} bytes\n", rank_, bytes);
      std::exit(1);
    }
    // Zeros stay zeros however often they are summed.
    BRAID_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream_.get()));
  }

  template <class Operation>
  cuda::GraphExec captured(Operation operation) {
    BRAID_CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    operation();
    cudaGraph_t graph = nullptr;
    BRAID_CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &graph));
    const cuda::Graph owned(graph);
    cudaGraphExec_t exec = nullptr;
    BRAID_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return cuda::GraphExec(exec);
  }

  /// Microseconds of one operation.
  template <class Operation>
  double measure(Operation operation) {
    for (int i = 0; i < kWarm; ++i) operation();
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
      const cuda::Event begin = cuda::make_timed_event(), end = cuda::make_timed_event();
      BRAID_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
      together_.arrive_and_wait();
      BRAID_CUDA_CHECK(cudaEventRecord(begin.get(), stream_.get()));
      for (int i = 0; i < kOperations; ++i) operation();
      BRAID_CUDA_CHECK(cudaEventRecord(end.get(), stream_.get()));
      BRAID_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
      rounds.push_back(1e3 * cuda::elapsed_ms(begin, end) / kOperations);
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    return rounds[kRounds / 2];
  }

  void report(const char* name, std::size_t bytes, int passes, const char* way, double us) const {
    if (rank_ != 0) return;
    const double bandwidth = static_cast<double>(bytes) / us / 1e3 * passes * (size_ - 1) / size_;
    fmt::print("{} n={} bytes={} {:<8} us={:.1f} busbw={:.1f} GB/s\n", name, size_, bytes, way, us,
               bandwidth);
    std::fflush(stdout);
  }

  const int rank_, size_;
  std::barrier<>& together_;
  std::unique_ptr<comm::Rendezvous> rendezvous_;
  std::unique_ptr<comm::Communicator> comm_;
  cuda::Stream stream_;
};

int run(int gpus) {
  comm::log_nccl_algorithms();
  auto store = std::make_shared<comm::RendezvousStore>();
  std::barrier<> together(gpus);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < gpus; ++rank)
    threads.emplace_back([&, rank] { Rank(rank, gpus, store, together).run(); });
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  int visible = 0;
  if (cudaGetDeviceCount(&visible) != cudaSuccess) visible = 0;
  const int gpus = argc > 1 ? std::atoi(argv[1]) : visible;
  if (gpus < 1 || gpus > visible) {
    fmt::print("needs GPUs: {} visible\n", visible);
    return 2;
  }
  return braid::run(gpus);
}
