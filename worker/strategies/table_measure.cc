#include "worker/strategies/table_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace braid::worker {
namespace {

constexpr int kSmallRuns = 7, kLargeRuns = 3;
constexpr std::int64_t kSmallBytes = 64, kLargeBytes = 1 << 20, kLeastLargeBytes = 4 << 10;
constexpr std::int64_t kMemoryBytes = 16 << 20, kRowNumbers = 64, kRowsRead = 1 << 14;

template <class Work>
double median_us(int runs, const Work& work) {
  std::vector<double> us;
  for (int run = 0; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(us);
  return us[us.size() / 2];
}

double exchange_time_us(comm::Communicator& communicator, std::int64_t bytes, int runs,
                        const WaitContext& wait) {
  std::vector<std::uint8_t> sent(static_cast<std::size_t>(bytes * communicator.size())),
      received(sent.size());
  return median_us(runs, [&] {
    communicator.all_to_all(sent.data(), received.data(), bytes, DType::UInt8, StreamRef::host(), wait);
  });
}

/// Of one thread that adds up rows at random places.
double rows_bytes_per_us() {
  std::vector<float> table(kMemoryBytes / sizeof(float), 1.0F);
  const auto rows = static_cast<std::uint64_t>(table.size() / kRowNumbers);
  std::vector<float> sum(kRowNumbers);
  std::uint64_t at = 1;
  const double us = median_us(3, [&] {
    for (std::int64_t read = 0; read < kRowsRead; ++read) {
      at = at * 6364136223846793005U + 1442695040888963407U;  // Knuth's
      const float* const row = table.data() + (at >> 33) % rows * kRowNumbers;
      for (std::int64_t i = 0; i < kRowNumbers; ++i) sum[static_cast<std::size_t>(i)] += row[i];
    }
  });
  // The sum is looked at so that it has to be made.
  const double bytes = sum[0] > 0 ? static_cast<double>(kRowsRead * kRowNumbers * 4) : 0;
  return std::max(1.0, bytes / std::max(us, 1e-3));
}

}  // namespace

StepCosts measured_costs(StepCosts costs, comm::Communicator& communicator, const WaitContext& wait) {
  const std::int64_t world = communicator.size();
  const std::int64_t large = std::max(kLargeBytes / world, kLeastLargeBytes);
  exchange_time_us(communicator, kSmallBytes, 2, wait);
  costs.exchange_us = exchange_time_us(communicator, kSmallBytes, kSmallRuns, wait);
  const double large_us = exchange_time_us(communicator, large, kLargeRuns, wait);
  const double transfer_us = std::max(large_us - costs.exchange_us, large_us / 10);
  costs.link_bytes_per_us = costs.host_link_bytes_per_us =
      static_cast<double>(large * (world - 1)) / std::max(transfer_us, 1e-3);
  if (communicator.rank() == 0) costs.memory_bytes_per_us = rows_bytes_per_us();
  costs.cache_bytes_per_us = std::max(costs.cache_bytes_per_us, costs.memory_bytes_per_us);
  costs.source = fmt::format(
      "exchanges among {} workers and rows of one core, measured; products by the "
      "engine's cost model",
      world);
  return costs;
}

}  // namespace braid::worker
