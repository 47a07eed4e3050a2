// `braid devices` with a management library of the test's own (fake_nvml.cc), and without any.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/cli/tool_test.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DevicesToolTest : public ToolTest {
 protected:
  std::unique_ptr<Process> devices(std::vector<std::string> more, Variables variables = {}) {
    more.insert(more.begin(), "devices");
    const char* const libraries = std::getenv("LD_LIBRARY_PATH");
    variables["LD_LIBRARY_PATH"] =
        std::string(BRAID_FAKE_NVML) + (libraries ? ":" : "") + (libraries ? libraries : "");
    variables.try_emplace("CUDA_MPS_PIPE_DIRECTORY", path("pipes"));
    auto process = run("devices", more, variables);
    process->exit_code();
    return process;
  }
};

TEST_F(DevicesToolTest, MemoryLinksInstancesAndSharingAreListed) {
  const auto process = devices({}, {{"CUDA_VISIBLE_DEVICES", "1"}});
  EXPECT_EQ(process->exit_code(), 0) << process->err();
  EXPECT_THAT(process->out(),
              AllOf(HasSubstr("driver 599.1\n0  Test GPU 1  GPU-1\n"),
                    HasSubstr("64.0 GiB of 80.0 GiB free, 132 multiprocessors, compute capability 9.0"),
                    HasSubstr("bus 00000000:01:00.0, MIG is off, 1 process\n"), HasSubstr("to 1: 4 NVLink\n"),
                    HasSubstr("to 0: between NUMA nodes\n")));
  EXPECT_THAT(process->out(), AllOf(HasSubstr("MIG is on, exclusive: one process, or the server of MPS"),
                                    HasSubstr("instance MIG 3g.40gb  40.0 GiB  GPU-11\n"),
                                    HasSubstr("instance MIG 3g.40gb  40.0 GiB  GPU-12\n"),
                                    HasSubstr("CUDA_VISIBLE_DEVICES is '1'")));
}

TEST_F(DevicesToolTest, WhetherMpsRunsIsSaid) {
  EXPECT_THAT(devices({})->out(), HasSubstr("MPS does not run (nothing in " + path("pipes")));
  std::filesystem::create_directories(path("pipes"));
  write_file_atomically(path("pipes/control"), "");
  EXPECT_THAT(devices({})->out(), HasSubstr("no daemon is seen from here"));
  write_file_atomically(path("pipes/nvidia-cuda-mps-control.pid"), "1\n");
  EXPECT_THAT(devices({})->out(), HasSubstr("MPS runs, with its pipes in " + path("pipes")));
}

TEST_F(DevicesToolTest, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(devices({"--json"})->out());
  EXPECT_EQ(json["devices"].size(), 2U);
  EXPECT_EQ(json["devices"][0]["multiprocessors"], 132);
  EXPECT_EQ(json["devices"][0]["links"][1], "4 NVLink");
  EXPECT_EQ(json["devices"][1]["instances"].size(), 2U);
  EXPECT_EQ(json["mps"]["runs"], false);
}

TEST_F(DevicesToolTest, WhyThereAreNoneIsSaid) {
  const auto unloaded = devices({}, {{"FAKE_NVML_STATUS", "9"}});
  EXPECT_EQ(unloaded->exit_code(), 1);
  EXPECT_THAT(unloaded->out(), AllOf(HasSubstr("the driver is not loaded"), Not(HasSubstr("MPS"))));
}

}  // namespace
}  // namespace braid::integration
