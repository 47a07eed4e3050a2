// The model of MLPerf's HSTU on a GPU: the CPU's losses, and the same ones in each run.
#include <fstream>

#include "base/files.h"
#include "tests/gpu/gpu_job.h"

namespace braid::integration {
namespace {

class HstuDeviceTest : public IntegrationTest {
 protected:
  void SetUp() override { REQUIRE_GPUS(1); }

  Job job() {
    const Path rows = directory() / "rows";
    const auto made =
        run("data", {"data", "hstu", "--users", "150", "--seed", "3", "--history", "90", "--samples", "4",
                     "--items", "500", "--artists", "50", "--albums", "100", "--out", rows.string()});
    EXPECT_EQ(made->exit_code(), 0) << made->err();
    const std::string text = read_file(Path(BRAID_SOURCE_DIR) / "examples/jobs/mlperf_hstu.pbtxt");
    return {
        write("job.pbtxt", text),
        rows,
        {"model.embedding_dim=64", "model.max_rows=40", "model.hidden=32", "model.layers=2", "model.heads=2",
         "model.dropout=0", "input.global_batch_size=16", "steps=40", "epochs=0", "schedule.warmup_steps=0",
         "optimizer.learning_rate=2e-4", "evaluation.enabled=false", "runtime.device=CPU"}};
  }
};

TEST_F(HstuDeviceTest, LosesLikeOnTheCpuLaunchedAndCaptured) {
  const Job small = job();
  const auto cpu = train("cpu", small), gpu = train("gpu", on_gpu(small));
  EXPECT_LT(largest_relative_difference(cpu, gpu), 1e-3);
  EXPECT_EQ(train("again", on_gpu(small)), gpu);
  EXPECT_EQ(train("launched", on_gpu(small).with({"runtime.graphs=false"})), gpu);
}

TEST_F(HstuDeviceTest, LosesAboutTheSameWithRoundedFactors) {
  const Job small = job();
  const auto cpu = train("cpu", small);
  EXPECT_LT(largest_relative_difference(cpu, train("tf32", on_gpu(small).with({"runtime.tf32=true"}))), 1e-2);
  const Job half = on_gpu(small).with({"runtime.precision=BF16"});
  const auto bf16 = train("bf16", half);
  EXPECT_LT(largest_relative_difference(cpu, bf16), 3e-2);
  EXPECT_EQ(train("bf16 again", half), bf16);
}

}  // namespace
}  // namespace braid::integration
