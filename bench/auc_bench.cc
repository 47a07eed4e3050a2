// Question: how many test rows a second does the exact AUC take, once they are scored?
//
//   auc_bench [--rows N] [--rounds N]
//
// Rows in all, on 1, 2 and 4 ranks that are threads of this process: "sort" makes runs of a rank's scores,
// "exchange" brings them to their ranks and finds AUC and average precision. Ranks share the machine's cores,
// so rows a second of several are those of one machine, not of several. Scores are normal, a twentieth of the
// labels is 1. Peer in the same run: the order of rows by std::sort and the AUC over it, as one process found
// it before; all give the same bits, which is checked. By the clock; medians of rounds. A JSON line each.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "comm/local/local_communicator.h"
#include "worker/metrics/ranking.h"
#include "worker/metrics/score_runs.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;
const WaitContext kLong = WaitContext::with_timeout(std::chrono::hours(1));

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void report(const std::string& what, int ranks, std::size_t rows, double sort, double exchange) {
  const double millions = static_cast<double>(rows) / 1e6;
  fmt::print(
      "{{\"bench\":\"auc\",\"what\":\"{}\",\"ranks\":{},\"million_rows\":{:.0f},\"sort_seconds\":{:.3f},"
      "\"exchange_seconds\":{:.3f},\"million_rows_per_s\":{:.1f},\"cpu\":\"{}\"}}\n",
      what, ranks, millions, sort, exchange, millions / (sort + exchange), cpu_name());
}

RankedRows made(std::size_t rows) {
  RankedRows all;
  std::mt19937 random(5);
  std::normal_distribution<float> score(-3, 1);
  for (std::size_t r = 0; r < rows; ++r) {
    all.scores.push_back(score(random));
    all.labels.push_back(random() % 20 == 0 ? 1 : 0);
  }
  return all;
}

struct Round {
  double sort = 0, exchange = 0, auc = 0;
};

Round on_ranks(const RankedRows& all, int ranks) {
  const auto group = comm::make_local_group(ranks);
  const std::size_t share = all.scores.size() / static_cast<std::size_t>(ranks);
  std::vector<Round> rounds(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < rounds.size(); ++rank)
      threads.emplace_back([&, rank] {
        comm::Communicator& communicator = *group[rank];
        communicator.barrier(kLong);
        auto begin = Clock::now();
        auto runs = score_runs(std::span(all.scores).subspan(rank * share, share),
                               std::span(all.labels).subspan(rank * share, share));
        communicator.barrier(kLong);
        rounds[rank].sort = seconds_since(begin);
        begin = Clock::now();
        const RunPart part = exchange_runs(std::move(runs), communicator, kLong);
        rounds[rank].auc = auc(part, &communicator, kLong);
        average_precision(part, &communicator, kLong);
        rounds[rank].exchange = seconds_since(begin);
      });
  }
  return rounds[0];
}

int run(std::size_t rows, int rounds) {
  rows = rows / 4 * 4;
  const RankedRows all = made(rows);
  std::vector<double> seconds;
  double expected = 0;
  for (int r = 0; r < std::max(1, rounds / 3); ++r) {
    const auto begin = Clock::now();
    expected = auc(all, ranked_order(all, false));
    seconds.push_back(seconds_since(begin));
  }
  report("peer: std::sort of rows", 1, rows, median(seconds), 0);
  for (const int ranks : {1, 2, 4}) {
    std::vector<double> sorts, exchanges;
    for (int r = 0; r < rounds; ++r) {
      const Round round = on_ranks(all, ranks);
      if (round.auc != expected) throw Internal("auc_bench: another AUC");
      sorts.push_back(round.sort);
      exchanges.push_back(round.exchange);
    }
    report("runs", ranks, rows, median(sorts), median(exchanges));
  }
  return 0;
}

}  // namespace
}  // namespace braid::worker

int main(int argc, char** argv) {
  long rows = 20000000;
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rows") rows = std::atol(argv[i + 1]);
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  try {
    return braid::worker::run(static_cast<std::size_t>(rows), rounds);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
