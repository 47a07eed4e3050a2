// Rows of two classes as runs of one score each, best first: what AUC and average precision need of them.
// Rows that several ranks have scored become one sequence of runs that is spread over the ranks, without any
// of them holding it: each sorts its own rows, borders of equal parts are found from counts of all, and runs
// go to the ranks that they belong to. Results have the bits that one process finds.
//
// Memory: 12 bytes for each different score of a rank's own rows and of its part. No part is larger than
// what a rank should have by more than the different scores of one of 65,536 intervals.
// Thread rule: pure functions, but those with a communicator, which all ranks call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/wait_context.h"

namespace braid::comm {
class Communicator;
}

namespace braid::worker {

/// Rows of one score. Higher scores have lower keys.
struct ScoreRun {
  std::uint32_t key = 0;
  std::uint32_t positives = 0, negatives = 0;
  friend bool operator==(const ScoreRun&, const ScoreRun&) = default;
};

/// Scores in order, and 0 and -0 alike. REQUIRES: no NaN.
std::uint32_t score_key(float score);

/// By key. `labels`: 0 or 1. REQUIRES: no score is NaN, fewer than 2^32 rows.
std::vector<ScoreRun> score_runs(std::span<const float> scores, std::span<const std::uint8_t> labels);

/// Runs of one order that a rank has: the rows before them, and those of all ranks.
struct RunPart {
  std::vector<ScoreRun> runs;
  std::uint64_t positives_before = 0, negatives_before = 0;
  std::uint64_t positives = 0, negatives = 0;
};

/// Of one process.
RunPart whole_part(std::vector<ScoreRun> runs);
/// Of all ranks' rows this rank's part; lower ranks have the higher scores. Throws: what the communicator
/// throws.
RunPart exchange_runs(std::vector<ScoreRun> own, comm::Communicator& communicator, const WaitContext& wait);

/// The share of pairs (positive, negative) that are in order, ties half, from whole numbers. `communicator`:
/// of exchange_runs(); null: of one process. NaN without rows of both classes.
double auc(const RunPart& part, comm::Communicator* communicator, const WaitContext& wait);
/// Average precision, as ranking.h has it: a sum over runs in their order, which goes from rank to rank. NaN
/// without positives.
double average_precision(const RunPart& part, comm::Communicator* communicator, const WaitContext& wait);

}  // namespace braid::worker
