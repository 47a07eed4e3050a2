// Mixed precision in jobs on a GPU: near float32, the same bits in each run, overflows decided there.
#include <fstream>

#include "tests/gpu/gpu_job.h"

namespace braid::integration {
namespace {

class PrecisionDeviceTest : public IntegrationTest {
 protected:
  void SetUp() override { REQUIRE_GPUS(1); }

  static Job job(const Job& which, const std::string& precision, int steps = 200) {
    return on_gpu(which).with({"steps=" + std::to_string(steps), "optimizer.kind=ADAM",
                               "optimizer.learning_rate=0.001", "runtime.precision=" + precision});
  }
};

double mean_of_last(const std::vector<float>& losses, std::size_t count) {
  double sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

int lines_with(const Path& file, const std::string& text) {
  int count = 0;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) count += line.find(text) != std::string::npos;
  return count;
}

TEST_F(PrecisionDeviceTest, ModelsLearnAsInFloat32AndAlwaysTheSame) {
  for (const Job& which : {mlp(), wide_deep(), cnn(), mmoe()}) {
    const std::vector<float> wide = train("fp32", job(which, "FP32"));
    for (const char* precision : {"BF16", "FP16"}) {
      SCOPED_TRACE(which.file + ", " + precision);
      const std::vector<float> narrow = train("narrow", job(which, precision));
      ASSERT_EQ(narrow.size(), wide.size());
      EXPECT_NEAR(mean_of_last(narrow, 50), mean_of_last(wide, 50), 0.03 * mean_of_last(wide, 50) + 2e-3);
      EXPECT_EQ(train("again", job(which, precision)), narrow);
      EXPECT_EQ(train("launched", job(which, precision).with({"runtime.graphs=false"})), narrow);
    }
  }
}

TEST_F(PrecisionDeviceTest, StepsThatOverflowAreSkippedThere) {
  const Job scaled = job(mlp(), "FP16", 60).with({"runtime.mixed_precision.loss_scale=16777216"});
  const auto losses = train("scaled", scaled);
  const Path steps = directory() / "scaled" / "worker-0.steps";
  const int skipped = lines_with(steps, "\"skipped\":true");
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20) << "a smaller scale does";
  EXPECT_LT(mean_of_last(losses, 10), losses.front());
  EXPECT_EQ(train("launched", scaled.with({"runtime.graphs=false"})), losses);
}

}  // namespace
}  // namespace braid::integration
