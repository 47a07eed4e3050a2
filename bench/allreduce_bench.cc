// Question: how fast is all_reduce between processes of one host, beside MPI's?
//
//   mpirun --bind-to none -np 2 allreduce_bench [--seconds S] [--backends ring,mpi]
//
// Every process is a rank of both communicators. For each size the backends are measured in turn, interleaved
// in rounds. The time of an operation is the slowest rank's (each rank's times are reduced with Max), from
// barrier to return. Sums of float32. Before each size the result is checked against the closed form.
//
// Bus bandwidth, as in nccl-tests (doc/PERFORMANCE.md): bytes / time * 2 * (n - 1) / n, the rate at which
// each link of a ring must carry data for that time, comparable between numbers of ranks n. GB = 1e9 bytes.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/make_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/rendezvous/mpi_rendezvous.h"

namespace braid::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 4;

WaitContext soon() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

void all_reduce(Communicator& comm, std::vector<float>& data, std::vector<float>& output) {
  comm.all_reduce(data.data(), output.data(), static_cast<std::int64_t>(data.size()), DType::Float32,
                  ReduceOp::Sum, StreamRef::host(), soon());
}

void verify(Communicator& comm, std::vector<float>& data, std::vector<float>& output) {
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(comm.rank()));
  all_reduce(comm, data, output);
  auto n = static_cast<float>(comm.size());
  for (std::size_t i = 0; i < data.size(); ++i)
    if (output[i] != n * static_cast<float>(i % 1000) + n * (n - 1) / 2)
      throw Internal(fmt::format("{}: wrong sum at {}", comm.backend(), i));
}

/// Seconds of each operation on the slowest rank.
std::vector<double> measure(Communicator& comm, std::vector<float>& data, std::vector<float>& output,
                            int repeats) {
  std::vector<double> seconds(static_cast<std::size_t>(repeats));
  for (auto& each : seconds) {
    comm.barrier(soon());
    auto start = Clock::now();
    all_reduce(comm, data, output);
    each = std::chrono::duration<double>(Clock::now() - start).count();
  }
  comm.all_reduce(seconds.data(), seconds.data(), repeats, DType::Float64, ReduceOp::Max, StreamRef::host(),
                  soon());
  return seconds;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

int main_of(int argc, char** argv) {
  double budget = 1.0;
  std::string backends = "ring,mpi";
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--seconds" && i + 1 < argc) {
      budget = std::stod(argv[++i]);
    } else if (option == "--backends" && i + 1 < argc) {
      backends = argv[++i];
    } else {
      fmt::print(stderr, "usage: mpirun -np N allreduce_bench [--seconds S] [--backends ring,mpi]\n");
      return 2;
    }
  }
  auto session = MpiSession::start();
  auto rank = session->rank(), size = session->size();
  auto rendezvous = make_mpi_rendezvous(*session, {"bench", 1}, {}, soon());
  std::vector<std::unique_ptr<Communicator>> comms;
  for (auto backend : {Backend::Ring, Backend::Mpi}) {
    if (backends.find(backend_name(backend)) == std::string::npos) continue;
    CommunicatorOptions options;
    options.backend = backend;
    options.ring.rank = rank;
    options.ring.size = size;
    options.rendezvous = rendezvous.get();
    comms.push_back(make_communicator(options, soon()));
  }
  for (std::size_t bytes = 4 << 10; bytes <= std::size_t{64} << 20; bytes *= 4) {
    std::vector<float> data(bytes / sizeof(float)), output(data.size());
    std::map<std::string_view, std::vector<double>> seconds;
    for (auto& comm : comms) {
      verify(*comm, data, output);
      auto warm_up = quantile(measure(*comm, data, output, 5), 0.5);
      // All ranks must repeat equally often: the times are already equal on all of them.
      auto repeats = std::clamp(static_cast<int>(budget / kRounds / std::max(warm_up, 1e-6)), 3, 5000);
      seconds[comm->backend()].push_back(static_cast<double>(repeats));
    }
    std::map<std::string_view, int> repeats;
    for (auto& [backend, value] : seconds) {
      repeats[backend] = static_cast<int>(value.front());
      value.clear();
    }
    for (int round = 0; round < kRounds; ++round)
      for (auto& comm : comms)
        for (auto each : measure(*comm, data, output, repeats[comm->backend()]))
          seconds[comm->backend()].push_back(each);
    if (rank != 0) continue;
    for (auto& comm : comms) {
      auto& times = seconds[comm->backend()];
      auto median = quantile(times, 0.5);
      auto bus = static_cast<double>(bytes) / median * 2 * (size - 1) / size * 1e-9;
      fmt::print(
          "{{\"bench\":\"allreduce\",\"backend\":\"{}\",\"ranks\":{},\"cores\":{},\"bytes\":{},\"repeats\":{}"
          ","
          "\"median_us\":{:.1f},\"p99_us\":{:.1f},\"bus_gb_per_second\":{:.3f}}}\n",
          comm->backend(), size, std::thread::hardware_concurrency(), bytes, times.size(), median * 1e6,
          quantile(times, 0.99) * 1e6, bus);
      std::fflush(stdout);
    }
  }
  for (auto& comm : comms) comm->barrier(soon());
  return 0;
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) {
  try {
    return braid::comm::main_of(argc, argv);
  } catch (const braid::Error& error) {
    fmt::print(stderr, "{}\n", error.message());
    return braid::exit_code_for(error.code());
  }
}
