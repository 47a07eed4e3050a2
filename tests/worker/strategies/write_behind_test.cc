// In an elastic job no variable is written before all collectives of the step are through.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "tests/worker/methods/ranks.h"
#include "worker/input/columns.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/step/training_program.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

std::shared_ptr<const Program> step_of(const std::vector<std::string>& set) {
  register_strategy_ops();
  std::vector<std::string> all{"strategy.kind=ALLREDUCE"};
  all.insert(all.end(), set.begin(), set.end());
  const proto::Job job = job_with(wide_deep_job(10), all);
  Runtime runtime{RuntimeOptions{}};
  const JobData data{.train = made_rows(48)};
  const ModelGraph model = job_model(job, *data.train);
  const auto batcher = make_batcher(job, data, model.columns, training_batches(job, 0, 2));
  const auto strategy = make_strategy(job, runtime, Peers{0, 2, nullptr, nullptr});
  return make_training_program(job, model, *batcher, batch_share(job, 0, 2), *strategy).program;
}

/// Writes of variables, and those of them that come behind every collective.
std::pair<int, int> writes_of(const Program& program) {
  std::vector<std::set<int>> before(program.ops.size());  // collectives, by op
  std::set<int> collectives;
  std::vector<int> order(program.ops.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int>(i);
    if (program.ops[i].op.starts_with("braid.All")) collectives.insert(order[i]);
  }
  bool grows = true;
  while (grows) {  // ops are in no order that is promised
    grows = false;
    for (const int op : order)
      for (const int dep : program.ops[static_cast<std::size_t>(op)].deps) {
        std::set<int>& mine = before[static_cast<std::size_t>(op)];
        const std::size_t had = mine.size();
        const std::set<int>& its = before[static_cast<std::size_t>(dep)];
        mine.insert(its.begin(), its.end());
        if (collectives.contains(dep)) mine.insert(dep);
        grows = grows || mine.size() > had;
      }
  }
  EXPECT_GT(collectives.size(), 2U);
  std::pair<int, int> found{0, 0};
  for (const int op : order) {
    if (!program.ops[static_cast<std::size_t>(op)].writes_variable) continue;
    ++found.first;
    if (before[static_cast<std::size_t>(op)].size() == collectives.size()) ++found.second;
  }
  return found;
}

TEST(WriteBehindTest, AllWritesOfAnElasticStepComeBehindAllCollectives) {
  for (const char* more : {"optimizer.kind=ADAM", "optimizer.clip_norm=1", "optimizer.accumulate_steps=2",
                           "runtime.precision=FP16", "strategy.wire=BF16", "strategy.reduction=MEDIAN"}) {
    const auto [all, behind] = writes_of(*step_of({"strategy.elastic.min_workers=1", more}));
    EXPECT_GT(all, 3) << more;
    EXPECT_EQ(behind, all) << more;
  }
}

TEST(WriteBehindTest, OtherStepsUpdateAsSoonAsTheyCan) {
  const auto [all, behind] = writes_of(*step_of({}));
  EXPECT_LT(behind, all);
}

}  // namespace
}  // namespace braid::worker
