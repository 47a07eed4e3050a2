#include "tests/worker/strategies/tensor_runs.h"

#include "engine/exec/runtime.h"
#include "engine/program/program.h"
#include "worker/input/columns.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/step/training_program.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

Settings in_mesh(int data, int tensor) {
  return {"strategy.kind=TENSOR", "strategy.mesh.data=" + std::to_string(data),
          "strategy.mesh.tensor=" + std::to_string(tensor), "strategy.tensor.min_width=1"};
}

RankRun run_mesh(const proto::Job& job, std::shared_ptr<const Table> rows, RunStart start) {
  const auto& mesh = job.strategy().mesh();
  const auto runs = run_ranks(job, static_cast<int>(mesh.data() * mesh.tensor()), std::move(rows), start);
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.losses, runs[0].losses);
  }
  return runs[0];
}

void expect_as_one_process(const std::string& job, const std::shared_ptr<const Table>& rows, int data,
                           int tensor, const Settings& settings) {
  SCOPED_TRACE(std::to_string(data) + " groups of " + std::to_string(tensor));
  // Workers that have different rows draw different numbers.
  const bool draws = data > 1 && job_with(job, {}).model().dropout() > 0;
  const RankRun local =
      draws ? run_leader(job_with(job, Settings{"strategy.kind=ALLREDUCE"} + settings), data, rows)
            : run_leader(job_with(job, settings), 1, rows);
  const RankRun cut = run_mesh(job_with(job, in_mesh(data, tensor) + settings), rows);
  ASSERT_EQ(cut.losses.size(), local.losses.size());
  for (std::size_t i = 0; i < local.losses.size(); ++i)
    EXPECT_NEAR(cut.losses[i], local.losses[i], 1e-6 * std::max(1.0F, local.losses[i])) << "step " << i;
  int compared = 0;
  for (const auto& [name, values] : local.values) {
    const auto other = cut.values.find(name);
    if (other == cut.values.end()) continue;  // a slot of a slice
    ++compared;
    ASSERT_EQ(values.size(), other->second.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(other->second[i], values[i], 1e-5) << name;
  }
  EXPECT_GT(compared, 0);
}

std::string plan_text(const proto::Job& job, int world, const Table& rows) {
  register_strategy_ops();
  Runtime runtime{RuntimeOptions{}};
  const JobData data{.train = std::shared_ptr<const Table>(&rows, [](const Table*) {})};
  const ModelGraph model = job_model(job, rows);
  const auto batcher = make_batcher(job, data, model.columns, training_batches(job, 0, world));
  const auto strategy = make_strategy(job, runtime, Peers{0, world, nullptr, nullptr});
  const TrainingProgram made =
      make_training_program(job, model, *batcher, batch_share(job, 0, world), *strategy);
  return strategy->describe(*made.program);
}

std::string error_of_mesh(const proto::Job& job, int world, const std::shared_ptr<const Table>& rows) {
  for (const RankRun& run : run_ranks(job, world, rows))
    if (!run.error.empty()) return run.error;
  return {};
}

}  // namespace braid::worker
