// Whole training runs of several workers, which are threads of this process on local communicators: the job,
// the strategy, the program, checkpoints and all, without processes and sockets. Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "engine/input/schema/table.h"
#include "proto/job.pb.h"
#include "ps/client/cache_plan.h"

namespace braid::worker {

struct RankRun {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> values;  // variables and slots of the local store at the end
  std::string error;                                 // empty: it ended in order
  ps::CacheCounts cache = {};                        // of rows of servers' tables
};

/// Text of a job for `rows`, deep and wide parts with tables, ADAM if nothing else is set.
std::string wide_deep_job(int steps);
/// The job with overrides ("strategy.kind=ALLREDUCE").
proto::Job job_with(const std::string& text, const std::vector<std::string>& set);

/// Learnable rows: two numbers, two ids, a label.
std::shared_ptr<const Table> made_rows(int rows);

std::vector<RankRun> run_ranks(const proto::Job& job, int world, std::shared_ptr<const Table> rows,
                               RunStart start = RunStart::New);

/// The same of strategies PS and PS_ALLREDUCE, with servers of this process over sockets.
struct ServedRun {
  std::vector<RankRun> workers;
  std::vector<std::map<std::string, std::uint64_t>> counters;  // of each server, at the end
  double seconds = 0;  // of rank 0, from its first step's end to its last one's
};
/// A counter's sum over the servers; 0 where none has it.
std::uint64_t counted(const ServedRun& run, const std::string& name);
using AfterStep = std::function<void(int rank, std::uint64_t step)>;
ServedRun run_with_servers(const proto::Job& job, int world, int servers, std::shared_ptr<const Table> rows,
                           const AfterStep& after_step = {});
/// Of a run that is to end in order: rank 0's.
RankRun run_leader(const proto::Job& job, int world, std::shared_ptr<const Table> rows,
                   RunStart start = RunStart::New);

/// Expects the same bits, or numbers that differ by `most`, of all that both have.
void expect_equal(const RankRun& a, const RankRun& b);
void expect_near(const RankRun& a, const RankRun& b, double most);

}  // namespace braid::worker
