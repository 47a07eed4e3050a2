// Questions: how close does a staged step come to max(input, compute), and what does a stage cost?
//
//   staging_bench [--batches N] [--ms N] [--jitter F] [--sleep] [--rounds N]
//
// Overlap: making a batch takes as long as a step (`ms`, 5 by default, of pure computation, calibrated once;
// a sleep with --sleep, as for input that waits for a disk). `jitter` spreads both evenly by that part around
// their mean (default 0). Measured: the time of a step without a stage (the sum), and with capacities 1, 2,
// 4, 8 and 1 and 2 threads, against the ideal max(input / threads, compute), where input and compute are what
// they took alone in the same round. All configurations run in turn in each round; medians of the rounds.
//
// Cost: producer and taker do nothing; microseconds a batch at capacity 4, batches checked to come in order.
// One JSON line each.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "engine/staging/stage.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  int batches = 100;
  double ms = 5;
  double jitter = 0;
  bool sleep = false;
  int rounds = 5;
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::uint64_t compute(std::uint64_t x, std::int64_t turns) {
  for (std::int64_t i = 0; i < turns; ++i) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
  return x;
}

class Work {
 public:
  explicit Work(const Settings& settings) : settings_(settings) {
    constexpr std::int64_t kTurns = 20'000'000;
    const auto begin = Clock::now();
    sink_ = compute(1, kTurns);
    turns_per_ms_ = static_cast<double>(kTurns) / ms_since(begin);
  }
  /// Takes about `ms`, spread by the ticket.
  void run(std::uint64_t ticket) {
    const double spread =
        static_cast<double>(compute(ticket + 1, 3) >> 40) / static_cast<double>(1 << 24) - 0.5;
    const double ms = settings_.ms * (1 + 2 * settings_.jitter * spread);
    if (settings_.sleep)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
    else
      sink_ = compute(ticket, static_cast<std::int64_t>(ms * turns_per_ms_));
  }

 private:
  const Settings settings_;
  double turns_per_ms_ = 1;
  volatile std::uint64_t sink_ = 0;
};

WaitContext patient() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

Batch empty_batch(std::uint64_t ticket) {
  Batch batch;
  batch.ticket = ticket;
  return batch;
}

/// Milliseconds a step of the loop, staged.
double staged(const Settings& settings, Work& input, Work& step, int capacity, int threads) {
  Stage stage({.name = "input", .capacity = capacity, .num_threads = threads}, [&](std::uint64_t ticket) {
    input.run(ticket);
    return empty_batch(ticket);
  });
  stage.start();
  stage.take(patient());  // the first has nothing to hide behind
  const auto begin = Clock::now();
  for (int i = 0; i < settings.batches; ++i) {
    step.run(static_cast<std::uint64_t>(i) + 1'000'000);
    stage.take(patient());
  }
  return ms_since(begin) / settings.batches;
}

double alone(const Settings& settings, Work& work, std::uint64_t first) {
  const auto begin = Clock::now();
  for (int i = 0; i < settings.batches; ++i) work.run(first + static_cast<std::uint64_t>(i));
  return ms_since(begin) / settings.batches;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void overlap(const Settings& settings) {
  Work input(settings), step(settings);
  std::map<std::pair<int, int>, std::vector<double>> ratios, times;
  std::vector<double> sums, inputs, steps;
  for (int round = 0; round < settings.rounds; ++round) {
    inputs.push_back(alone(settings, input, 1));
    steps.push_back(alone(settings, step, 1'000'000));
    sums.push_back(inputs.back() + steps.back());
    for (const int threads : {1, 2})
      for (const int capacity : {1, 2, 4, 8}) {
        const double ms = staged(settings, input, step, capacity, threads);
        times[{threads, capacity}].push_back(ms);
        ratios[{threads, capacity}].push_back(ms / std::max(inputs.back() / threads, steps.back()));
      }
  }
  std::string rows;
  for (const auto& [key, ratio] : ratios)
    rows += fmt::format(R"({}{{"threads":{},"capacity":{},"ms":{:.3f},"to_ideal":{:.3f},"worst":{:.3f}}})",
                        rows.empty() ? "" : ",", key.first, key.second, median(times[key]), median(ratio),
                        *std::max_element(ratio.begin(), ratio.end()));
  fmt::print(
      R"({{"bench":"staging","input_ms":{:.3f},"step_ms":{:.3f},"unstaged_ms":{:.3f},"staged":[{}],"batches":{},)"
      R"("rounds":{},"jitter":{},"kind":"{}","cpu":"{}","cores":{}}})"
      "\n",
      median(inputs), median(steps), median(sums), rows, settings.batches, settings.rounds, settings.jitter,
      settings.sleep ? "sleep" : "compute", cpu_name(), usable_cores());
}

bool cost(const Settings& settings) {
  constexpr int kBatches = 200'000;
  std::vector<double> us;
  for (int round = 0; round < settings.rounds; ++round) {
    Stage stage({.name = "input", .capacity = 4}, empty_batch);
    stage.start();
    const auto begin = Clock::now();
    for (std::uint64_t i = 0; i < kBatches; ++i)
      if (stage.take(patient()).ticket != i) {
        fmt::print(stderr, "batch {} is out of order\n", i);
        return false;
      }
    us.push_back(1e3 * ms_since(begin) / kBatches);
  }
  fmt::print(
      R"({{"bench":"staging_cost","us_per_batch":{:.3f},"least":{:.3f},"most":{:.3f},"capacity":4,"limit":5}})"
      "\n",
      median(us), *std::min_element(us.begin(), us.end()), *std::max_element(us.begin(), us.end()));
  return true;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--sleep") == 0) settings.sleep = true;
    if (i + 1 == argc) break;
    if (std::strcmp(argv[i], "--batches") == 0) settings.batches = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) settings.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--ms") == 0) settings.ms = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--jitter") == 0) settings.jitter = std::atof(argv[i + 1]);
  }
  braid::overlap(settings);
  return braid::cost(settings) ? 0 : 1;
}
