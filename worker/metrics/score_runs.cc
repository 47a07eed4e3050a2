#include "worker/metrics/score_runs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "comm/communicator.h"
#include "worker/metrics/ranking.h"

namespace braid::worker {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kIntervalBits = 16;
constexpr std::size_t kIntervals = std::size_t{1} << kIntervalBits;

/// By all bits but the lowest, which goes with its number: three passes of 11 bits.
void sort_by_key(std::vector<std::uint64_t>& rows) {
  constexpr int kBits = 11, kPasses = 3;
  constexpr std::size_t kDigits = std::size_t{1} << kBits;
  std::array<std::array<std::size_t, kDigits>, kPasses> counts{};
  const auto digit = [](std::uint64_t row, int pass) { return row >> (1 + pass * kBits) & (kDigits - 1); };
  for (const std::uint64_t row : rows)
    for (int pass = 0; pass < kPasses; ++pass) ++counts[static_cast<std::size_t>(pass)][digit(row, pass)];
  std::vector<std::uint64_t> other(rows.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    std::array<std::size_t, kDigits>& places = counts[static_cast<std::size_t>(pass)];
    std::exclusive_scan(places.begin(), places.end(), places.begin(), std::size_t{0});
    for (const std::uint64_t row : rows) other[places[digit(row, pass)]++] = row;
    rows.swap(other);
  }
}

/// Neighbours of one key become one.
void join_equal(std::vector<ScoreRun>& runs) {
  std::size_t last = 0;
  for (std::size_t r = 1; r < runs.size(); ++r) {
    if (runs[r].key == runs[last].key) {
      runs[last].positives += runs[r].positives;
      runs[last].negatives += runs[r].negatives;
    } else {
      runs[++last] = runs[r];
    }
  }
  if (!runs.empty()) runs.resize(last + 1);
}

/// Sorted pieces, one behind the other, as one.
void merge_pieces(std::vector<ScoreRun>& runs, std::vector<std::size_t> ends) {
  const auto at = [&](std::size_t place) { return runs.begin() + static_cast<std::ptrdiff_t>(place); };
  while (ends.size() > 1) {
    std::vector<std::size_t> merged;
    for (std::size_t piece = 0; piece < ends.size(); piece += 2) {
      const std::size_t begin = piece == 0 ? 0 : ends[piece - 1];
      if (piece + 1 == ends.size()) {
        merged.push_back(ends[piece]);
        continue;
      }
      std::inplace_merge(at(begin), at(ends[piece]), at(ends[piece + 1]),
                         [](const ScoreRun& a, const ScoreRun& b) { return a.key < b.key; });
      merged.push_back(ends[piece + 1]);
    }
    ends = std::move(merged);
  }
}

/// Of each rank the first of its intervals; the end last. Parts of about as many runs.
std::vector<std::size_t> borders_of(const std::vector<std::int64_t>& counts, int ranks) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<std::size_t> borders{0};
  std::int64_t before = 0;
  for (std::size_t interval = 0; interval < counts.size(); ++interval) {
    while (std::ssize(borders) < ranks && before >= all * std::ssize(borders) / ranks && before > 0)
      borders.push_back(interval);
    before += counts[interval];
  }
  borders.resize(static_cast<std::size_t>(ranks), counts.size());
  borders.push_back(counts.size());
  return borders;
}

std::size_t interval_of(const ScoreRun& run) { return run.key >> (32 - kIntervalBits); }

/// What all ranks have found, summed.
Wide sum_of(Wide own, comm::Communicator* communicator, const WaitContext& wait) {
  if (!communicator) return own;
  // 32 bits in each, whose sums over ranks have room.
  std::array<std::int64_t, 4> parts{};
  for (std::int64_t& part : parts) {
    part = static_cast<std::int64_t>(own & UINT32_MAX);
    own >>= 32;
  }
  communicator->all_reduce(parts.data(), parts.data(), 4, DType::Int64, comm::ReduceOp::Sum,
                           StreamRef::host(), wait);
  Wide sum = 0;
  for (std::size_t p = parts.size(); p-- > 0;) sum = (sum << 32) + static_cast<std::uint64_t>(parts[p]);
  return sum;
}

/// A double of the nearest value, ties to even, whatever the machine's rounding of 128 bits.
double rounded(Wide value) {
  if (value >> 64 == 0) return static_cast<double>(static_cast<std::uint64_t>(value));
  const int shift = 64 - std::countl_zero(static_cast<std::uint64_t>(value >> 64));
  auto high = static_cast<std::uint64_t>(value >> shift);
  if ((value & ((Wide{1} << shift) - 1)) != 0) high |= 1;  // it was not exact
  return std::ldexp(static_cast<double>(high), shift);
}

}  // namespace

std::uint32_t score_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0F : score);
  return (bits & 0x80000000U) != 0 ? bits : ~(bits | 0x80000000U);
}

std::vector<ScoreRun> score_runs(std::span<const float> scores, std::span<const std::uint8_t> labels) {
  std::vector<std::uint64_t> rows(scores.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    rows[r] = std::uint64_t{score_key(scores[r])} << 1 | labels[r];
  sort_by_key(rows);
  std::vector<ScoreRun> runs;
  for (const std::uint64_t row : rows) {
    const auto key = static_cast<std::uint32_t>(row >> 1);
    if (runs.empty() || runs.back().key != key) runs.push_back({key});
    (row & 1) != 0 ? ++runs.back().positives : ++runs.back().negatives;
  }
  return runs;
}

RunPart whole_part(std::vector<ScoreRun> runs) {
  RunPart part{std::move(runs)};
  for (const ScoreRun& run : part.runs) {
    part.positives += run.positives;
    part.negatives += run.negatives;
  }
  return part;
}

RunPart exchange_runs(std::vector<ScoreRun> own, comm::Communicator& communicator, const WaitContext& wait) {
  const int ranks = communicator.size();
  std::vector<std::int64_t> counts(kIntervals);
  for (const ScoreRun& run : own) ++counts[interval_of(run)];
  std::vector<std::int64_t> of_all(kIntervals);
  communicator.all_reduce(counts.data(), of_all.data(), std::ssize(counts), DType::Int64, comm::ReduceOp::Sum,
                          StreamRef::host(), wait);
  const std::vector<std::size_t> borders = borders_of(of_all, ranks);
  std::vector<std::int64_t> sends, receives(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < receives.size(); ++rank)
    sends.push_back(std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(borders[rank]),
                                    counts.begin() + static_cast<std::ptrdiff_t>(borders[rank + 1]),
                                    std::int64_t{0}));
  communicator.all_to_all(static_cast<const void*>(sends.data()), receives.data(), 1, DType::Int64,
                          StreamRef::host(), wait);
  std::vector<std::size_t> ends;
  std::size_t all = 0;
  for (const std::int64_t count : receives) ends.push_back(all += static_cast<std::size_t>(count));
  RunPart part;
  part.runs.resize(all);
  constexpr std::int64_t kWords = sizeof(ScoreRun) / sizeof(std::int32_t);
  for (std::int64_t& count : sends) count *= kWords;
  for (std::int64_t& count : receives) count *= kWords;
  communicator.all_to_all(own.data(), sends, part.runs.data(), receives, DType::Int32, StreamRef::host(),
                          wait);
  own = {};
  merge_pieces(part.runs, std::move(ends));
  join_equal(part.runs);

  std::array<std::int64_t, 2> mine{};
  for (const ScoreRun& run : part.runs) {
    mine[0] += run.positives;
    mine[1] += run.negatives;
  }
  std::vector<std::int64_t> totals(2 * static_cast<std::size_t>(ranks));
  communicator.all_gather(mine.data(), totals.data(), 2, DType::Int64, StreamRef::host(), wait);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto positives = static_cast<std::uint64_t>(totals[2 * static_cast<std::size_t>(rank)]);
    const auto negatives = static_cast<std::uint64_t>(totals[2 * static_cast<std::size_t>(rank) + 1]);
    part.positives += positives;
    part.negatives += negatives;
    if (rank >= communicator.rank()) continue;
    part.positives_before += positives;
    part.negatives_before += negatives;
  }
  return part;
}

double auc(const RunPart& part, comm::Communicator* communicator, const WaitContext& wait) {
  Wide twice_in_order = 0;
  std::uint64_t positives = part.positives_before;
  for (const ScoreRun& run : part.runs) {
    twice_in_order += Wide{run.negatives} * (2 * positives + run.positives);
    positives += run.positives;
  }
  twice_in_order = sum_of(twice_in_order, communicator, wait);
  if (part.positives == 0 || part.negatives == 0) return kUndefined;
  return rounded(twice_in_order) / 2 / static_cast<double>(part.positives) /
         static_cast<double>(part.negatives);
}

double average_precision(const RunPart& part, comm::Communicator* communicator, const WaitContext& wait) {
  const int rank = communicator ? communicator->rank() : 0, ranks = communicator ? communicator->size() : 1;
  double sum = 0;
  if (rank > 0) communicator->recv(&sum, 1, DType::Float64, rank - 1, StreamRef::host(), wait);
  std::uint64_t positives = part.positives_before, seen = positives + part.negatives_before;
  const auto all = static_cast<double>(part.positives);
  for (const ScoreRun& run : part.runs) {
    positives += run.positives;
    seen += std::uint64_t{run.positives} + run.negatives;
    sum += run.positives / all * (static_cast<double>(positives) / static_cast<double>(seen));
  }
  if (rank + 1 < ranks) communicator->send(&sum, 1, DType::Float64, rank + 1, StreamRef::host(), wait);
  if (communicator) communicator->broadcast(&sum, 1, DType::Float64, ranks - 1, StreamRef::host(), wait);
  return part.positives == 0 ? kUndefined : sum;
}

}  // namespace braid::worker
