#include "tests/worker/strategies/pipeline_runs.h"

#include "engine/import/import.h"
#include "engine/input/formats/readers.h"
#include "proto/graph.pb.h"

namespace braid::worker {

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Settings pipelined(int micro_batches, const char* schedule) {
  return {"strategy.kind=PIPELINE", "strategy.pipeline.micro_batches=" + std::to_string(micro_batches),
          std::string("strategy.pipeline.schedule=") + schedule};
}

Settings accumulated(int parts) { return {"optimizer.accumulate_steps=" + std::to_string(parts)}; }

Settings stages(const std::vector<std::string>& patterns) {
  Settings settings;
  for (const std::string& pattern : patterns)
    settings.push_back("strategy.pipeline.stage=match: '" + pattern + "'");
  return settings;
}

std::string pipeline_job(const std::string& model, int steps, const std::string& optimizer) {
  return "name: 'pipeline' seed: 3 steps: " + std::to_string(steps) + " model { " + model +
         " } input { format: NPY train_files: 'x.npy' global_batch_size: 24 shuffle: false } optimizer { " +
         optimizer +
         " } runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false }"
         " strategy { deadline_seconds: 30 }";
}

RankRun together(const std::vector<RankRun>& runs) {
  RankRun all = runs[0];
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.error, "");
    EXPECT_EQ(run.losses, runs[0].losses);
    if (&run == &runs[0]) continue;
    // The leader has copies of what others have where it evaluates.
    for (const auto& [name, values] : run.values) all.values[name] = values;
  }
  return all;
}

RankRun run_pipeline(const proto::Job& job, int world, std::shared_ptr<const Table> rows, RunStart start) {
  return together(run_ranks(job, world, std::move(rows), start));
}

std::string error_of_pipeline(const proto::Job& job, int world, const std::shared_ptr<const Table>& rows) {
  for (const RankRun& run : run_ranks(job, world, rows))
    if (!run.error.empty()) return run.error;
  return {};
}

std::shared_ptr<const Table> made_vectors(int rows) {
  Tensor x(DType::Float32, Shape{rows, 8}), y(DType::Float32, Shape{rows});
  for (int i = 0; i < rows; ++i) {
    for (int c = 0; c < 8; ++c)
      x.data<float>()[static_cast<std::size_t>(8 * i + c)] =
          static_cast<float>((i * 7 + c * 5) % 19) / 10 - 0.9F;
    y.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i % 2);
  }
  return table_of_arrays({{"x", x}, {"y", y}});
}

std::string GraphJob::text(const Output& out, int steps) {
  const Output loss = b.reduce_mean(b.op("Square", {out}, {}, "squares"));
  const auto file = directory_.path() / "graph.pb";
  write_graph_file(b.graph(), file);
  return pipeline_job("graph { file: '" + file.string() + "' loss: '" + loss.name() + "' }", steps,
                      "kind: SGD learning_rate: 0.05");
}

}  // namespace braid::worker
