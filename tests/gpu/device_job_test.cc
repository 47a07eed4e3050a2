// One worker on a GPU: the CPU's losses, what it tells about its streams, and what is refused.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tests/gpu/gpu_job.h"
#include "tests/support/in_some_attempt.h"

namespace braid::integration {
namespace {

using ::testing::HasSubstr;

constexpr double kRelative = 1e-4;

class DeviceJobTest : public IntegrationTest {
 protected:
  void SetUp() override { REQUIRE_GPUS(1); }
};

TEST_F(DeviceJobTest, LinearRegressionLosesLikeOnTheCpu) {
  const Job job = linear_regression().with({"steps=100"});
  const auto cpu = train("cpu", job), gpu = train("gpu", on_gpu(job));
  EXPECT_LT(largest_relative_difference(cpu, gpu), kRelative);
}

TEST_F(DeviceJobTest, AnMlpLosesLikeOnTheCpuLaunchedAndCaptured) {
  const Job job = mlp().with({"steps=100"});
  const auto cpu = train("cpu", job), graphs = train("graphs", on_gpu(job));
  EXPECT_LT(largest_relative_difference(cpu, graphs), kRelative);
  EXPECT_EQ(train("launched", on_gpu(job).with({"runtime.graphs=false"})), graphs);
  EXPECT_EQ(train("checked", on_gpu(job).with({"runtime.check_kernels=true"})), graphs);
}

TEST_F(DeviceJobTest, SharesOfMultiprocessorsChangeNoLoss) {
  const Job job = on_gpu(mmoe().with({"steps=60", "streams.count=2", "streams.policy=COST"}));
  const auto whole = train("whole", job);
  for (const std::string shares : {"64:compute0,rest:compute1", "32:.*", "25%:compute1"}) {
    SCOPED_TRACE(shares);
    const Job shared = job.with({"streams.partition=" + shares});
    EXPECT_EQ(train("captured", shared), whole);
    EXPECT_EQ(train("launched", shared.with({"runtime.graphs=false"})), whole);
  }
  const auto process = run("unused", job.with({"streams.partition=8:compute7"}).arguments());
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_THAT(process->err(), HasSubstr("streams.partition '8:compute7' had no effect"));
}

/// cuDNN has no deterministic algorithm with little workspace for the first layers at once: they run in parts
/// (engine/ops/nn/batch_parts.h), whose sums do not depend on timing.
TEST_F(DeviceJobTest, ABatchThatConvolutionsTakeInPartsLosesLikeOnTheCpuAndAlwaysTheSame) {
  Job job = mlp();
  job.file = "fashion_mnist_resnet18.pbtxt";
  job.set = {"input.global_batch_size=4096", "model.hidden=64,8,8,8", "steps=2", "runtime.device=CPU",
             "evaluation.enabled=false"};
  const auto gpu = train("gpu", on_gpu(job));
  EXPECT_EQ(train("again", on_gpu(job)), gpu);
  EXPECT_LT(largest_relative_difference(train("cpu", job), gpu), 1e-3);
  const auto whole = run("whole", on_gpu(job).with({"model.hidden=64,128,256,512"}).arguments());
  EXPECT_EQ(whole->exit_code(), 0) << whole->err();
}

TEST_F(DeviceJobTest, TheTraceHasTheDevicesStreamsWithNodesOfTheGraph) {
  const Job job = mlp().with({"steps=40000"});
  // Windows are sampled by the clock, and may miss the steps.
  in_some_attempt([&] {
    const Path trace = directory() / "trace.json";
    const auto process =
        run("traced", on_gpu(job)
                          .with({"metrics.trace_file=" + trace.string(), "metrics.sample_every_seconds=0.5"})
                          .arguments());
    ASSERT_EQ(process->exit_code(), 0) << process->err();
    EXPECT_THAT(process->out(), HasSubstr("overlap factor")) << process->err();
    EXPECT_THAT(process->out(), HasSubstr("stream of the device")) << "launches and bytes";
    std::ifstream file(trace);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_THAT(text.str(), HasSubstr("\"cuda:0 compute0\""));
    EXPECT_THAT(text.str(), HasSubstr("\"cuda:0 h2d\""));
    EXPECT_THAT(text.str(), HasSubstr("gradients/")) << "kernels have the names of their nodes";
  });
}

/// Of the slices on the track `of`, the share of their time in which one on the track `beside` runs.
double share_beside(const nlohmann::json& trace, const std::string& of, const std::string& beside) {
  std::map<int, std::string> tracks;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "thread_name")
      tracks[event["tid"]] = event["args"]["name"].get<std::string>();
  std::vector<std::pair<double, double>> slices, others;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const std::string& track = tracks[event["tid"]];
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    if (track == of) slices.emplace_back(begin, end);
    if (track == beside) others.emplace_back(begin, end);  // of one stream: they do not overlap
  }
  double all = 0, shared = 0;
  for (const auto& [begin, end] : slices) {
    all += end - begin;
    for (const auto& [b, e] : others) shared += std::max(0.0, std::min(end, e) - std::max(begin, b));
  }
  return all > 0 ? shared / all : 0;
}

TEST_F(DeviceJobTest, T9_AStagedBatchIsOneCopyBesideTheStepBefore) {
  const Job job = mlp().with({"steps=3000", "model.hidden=4096,4096", "input.global_batch_size=512",
                              "streams.count=1", "metrics.sample_every_seconds=0.5"});
  // A host that is busy elsewhere copies late, and the device has nothing to compute then.
  in_some_attempt([&] {
    const Path file = directory() / "trace.json";
    const auto process = run("traced", on_gpu(job).with({"metrics.trace_file=" + file.string()}).arguments());
    ASSERT_EQ(process->exit_code(), 0) << process->err();
    EXPECT_THAT(process->out(), ::testing::ContainsRegex("\nh2d +3000 ")) << "one launch a step";
    std::ifstream in(file);
    EXPECT_GT(share_beside(nlohmann::json::parse(in), "cuda:0 h2d", "cuda:0 compute0"), 0.5);
  });
}

TEST_F(DeviceJobTest, T9_AStageWithAStreamComputesOnTheDeviceAndKeepsTheLosses) {
  const Job job = on_gpu(mmoe().with({"steps=200", "streams.count=2", "staging.auto_stage=true",
                                      "staging.num_threads=2", "streams.policy=NONE"}));
  const auto on_host = train("host", job);
  const Path steps = directory() / "device.steps";
  const auto process =
      run("device", job.with({"staging.stage_multi_stream=true", "staging.stage_subgraph_stream_id=1",
                              "metrics.steps_file=" + steps.string()})
                        .arguments());
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_EQ(losses_of(steps), on_host);
  EXPECT_THAT(process->out(), ::testing::ContainsRegex("\ninput.0/compute0 +[0-9]+ "));
  EXPECT_THAT(process->out(), ::testing::ContainsRegex("\ninput.1/compute0 +[0-9]+ "));
}

/// The daemon of MPS for processes with its variables, until the object goes.
class MpsDaemon {
 public:
  explicit MpsDaemon(const Path& directory)
      : variables_{{"CUDA_MPS_PIPE_DIRECTORY", directory / "pipe"}, {"CUDA_MPS_LOG_DIRECTORY", directory}},
        directory_(directory) {
    std::filesystem::create_directories(directory / "pipe");
    control_.emplace(std::vector<std::string>{"nvidia-cuda-mps-control", "-f"}, variables_,
                     directory / "mps");
  }
  ~MpsDaemon() {
    Process quit({"sh", "-c", "echo quit -t 5 | nvidia-cuda-mps-control"}, variables_, directory_ / "quit");
    EXPECT_EQ(quit.exit_code(), 0) << quit.err();
    EXPECT_EQ(control_->exit_code(), 0);
  }
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  const Variables& variables() const { return variables_; }

 private:
  const Variables variables_;
  const Path directory_;
  std::optional<Process> control_;
};

TEST_F(DeviceJobTest, S10_AClientOfMpsLosesAsAProcessWithoutItAndSaysWhichItIs) {
  if (std::system("command -v nvidia-cuda-mps-control > /dev/null") != 0)
    GTEST_SKIP() << "there is no nvidia-cuda-mps-control: it comes with the NVIDIA driver (nvidia-utils)";
  const Job job = on_gpu(mmoe().with({"steps=200", "streams.count=4", "streams.policy=FULL"}));
  const auto losses = [&](const std::string& name, const Variables& variables, const std::string& said) {
    const Path steps = directory() / (name + ".steps");
    const auto process = run(name, job.with({"metrics.steps_file=" + steps.string()}).arguments(), variables);
    EXPECT_EQ(process->exit_code(), 0) << process->err();
    EXPECT_THAT(process->err(), HasSubstr(said));
    return losses_of(steps);
  };
  const auto without = losses("without", {{"CUDA_MPS_PIPE_DIRECTORY", path("nobody")}}, "without MPS");
  const MpsDaemon daemon(directory() / "daemon");
  EXPECT_EQ(losses("with", daemon.variables(), "client of MPS"), without);
  EXPECT_EQ(without.size(), 200U);
}

TEST_F(DeviceJobTest, AMemoryLimitIsKeptAndTheHoldersAreNamed) {
  const auto process =
      run("limited",
          on_gpu(linear_regression().with({"steps=5"})).with({"runtime.device_memory_limit=64"}).arguments());
  EXPECT_NE(process->exit_code(), 0);
  EXPECT_THAT(process->err(), HasSubstr("the limit is 64 bytes"));
}

TEST_F(DeviceJobTest, HiddenDevicesAreRefusedForCudaAndLeftAloneByAuto) {
  const Job job = linear_regression().with({"steps=5"});
  const Variables hidden{{"CUDA_VISIBLE_DEVICES", ""}};
  const auto refused = run("cuda", on_gpu(job).arguments(), hidden);
  EXPECT_EQ(refused->exit_code(), 2);
  EXPECT_THAT(refused->err(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(run("auto", job.with({"runtime.device=AUTO"}).arguments(), hidden)->exit_code(), 0);
}

}  // namespace
}  // namespace braid::integration
