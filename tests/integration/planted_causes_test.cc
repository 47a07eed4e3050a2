// The doctor names the cause that was planted in a job, and no other: eight jobs with a cause each, and sound
// ones, which it has no word about. What a busy machine adds for a moment is not held against it: a finding
// counts that most looks have. With BRAID_TEST_BROWSER=chromium that browser draws the page of each, too,
// which must have the same words.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "tests/integration/watched_job.h"

namespace braid::integration {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLooks = 7;

class PlantedCauseTest : public WatchedJobTest {
 protected:
  using Findings = std::set<std::string>;  // "slow_input worker 0"

  /// What `braid doctor --json` finds now.
  Findings examine(const std::string& address) {
    const auto doctor = run("doctor", {"doctor", address, "--json", "--seconds", "1"});
    const int code = doctor->exit_code();
    const json job = json::parse(doctor->out(), nullptr, false);
    Findings found;
    if (!job.is_object()) {
      ADD_FAILURE() << doctor->out() << doctor->err();
      return found;
    }
    for (const json& warning : job["warnings"])
      found.insert(warning["rule"].get<std::string>() + " " + warning["task"].get<std::string>());
    EXPECT_EQ(code, found.empty() ? 0 : 1);
    return found;
  }

  /// In most looks of some seconds.
  Findings diagnosis(const std::string& address) {
    std::map<std::string, int> seen;
    for (int look = 0; look < kLooks; ++look, std::this_thread::sleep_for(700ms))
      for (const std::string& finding : examine(address)) ++seen[finding];
    Findings found;
    for (const auto& [finding, looks] : seen)
      if (2 * looks > kLooks) found.insert(finding);
    return found;
  }

  /// Without numbers, which change from look to look.
  static std::string words_of(const std::string& text) {
    return std::regex_replace(text, std::regex("[0-9][0-9.]*"), "#");
  }

  /// What the doctor says now stands in the page that a browser has drawn, if there is one.
  void expect_drawn(const std::string& address, const std::string& cause) {
    const char* const browser = std::getenv("BRAID_TEST_BROWSER");
    if (!browser) return;
    const json job = json::parse(tool({"doctor", address, "--json", "--seconds", "1"}, 1));
    std::string text, advice;
    for (const json& warning : job["warnings"])
      if (cause.starts_with(warning["rule"].get<std::string>())) {
        text = warning["text"].get<std::string>();
        advice = warning["advice"].get<std::string>();
      }
    ASSERT_FALSE(text.empty()) << job.dump(1);
    Process page({browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  "--user-data-dir=" + path("browser"), "--virtual-time-budget=8000", "--dump-dom",
                  "http://" + address + "/"},
                 {}, directory() / "page");
    ASSERT_EQ(page.exit_code(), 0) << page.err();
    const std::string drawn = page.out();
    const std::size_t at = drawn.find("id=\"warnings\"");
    ASSERT_NE(at, std::string::npos) << drawn.substr(0, 2000);
    const std::string words = words_of(drawn.substr(at));
    EXPECT_THAT(words, AllOf(HasSubstr(words_of(text)), HasSubstr(words_of(advice))));
  }

  /// Waits until the cause, which may be the begin of a finding, is all that is found, then expects that this
  /// is the diagnosis. A job's first moments are of buffers that are full.
  void expect_only(const std::string& address, const std::string& cause) {
    SCOPED_TRACE(cause);
    wait_for_job(address, [&](const json& job) {
      const json warnings = job.value("warnings", json::array());
      if (warnings.size() != 1) return false;
      const std::string finding =
          warnings[0]["rule"].get<std::string>() + " " + warnings[0]["task"].get<std::string>();
      return finding.starts_with(cause);
    });
    const Findings found = diagnosis(address);
    ASSERT_EQ(found.size(), 1U) << ::testing::PrintToString(found);
    EXPECT_TRUE(found.begin()->starts_with(cause)) << *found.begin();
    expect_drawn(address, cause);
  }

  /// A job of one process.
  std::unique_ptr<Process> start(const Job& job, const Variables& variables = {}) {
    return std::make_unique<Process>(braid(job.with({kForever, "metrics.listen=127.0.0.1:0"}).arguments()),
                                     variables, directory() / "job");
  }

  /// Variables that make every primitive of oneDNN so much longer, in tasks whose TF_CONFIG has `task`.
  static Variables slow_kernels(std::chrono::microseconds time, const std::string& task = "") {
    Variables variables{{"LD_PRELOAD", BRAID_SLOW_DOWN}, {"SLOW_KERNELS", std::to_string(time.count())}};
    if (!task.empty()) variables["SLOW_TASK"] = task;
    return variables;
  }
};

// Slow kernels sleep: what such a job does does not depend on how busy the machine is.
constexpr auto kKernel = 20ms;

TEST_F(PlantedCauseTest, ASoundJobHasNone) {
  const auto process = start(mlp(), slow_kernels(kKernel));
  const std::string address = metrics_address(*process);
  wait_for_job(address, [](const json& job) { return trains(job, 1); });
  EXPECT_EQ(diagnosis(address), Findings{});
  EXPECT_THAT(tool({"doctor", address}),
              HasSubstr("No rule finds what limits this job. 1 of 1 processes answer"));
}

TEST_F(PlantedCauseTest, SoundJobsOfSeveralProcessesHaveNone) {
  for (const char* strategy : {"ALLREDUCE", "PS"}) {
    SCOPED_TRACE(strategy);
    const int servers = strategy == std::string("PS") ? 2 : 0;
    const auto launcher = launch(mlp().with({kForever, std::string("strategy.kind=") + strategy}), 2, servers,
                                 slow_kernels(kKernel));
    const std::string page = page_of(*launcher);
    wait_for_job(page, [&](const json& job) { return trains(job, static_cast<std::size_t>(2 + servers)); });
    EXPECT_EQ(diagnosis(page), Findings{});
  }
}

TEST_F(PlantedCauseTest, SlowInput) {
  // Blocks of 4 KiB, which are less than a batch, of a slow file.
  const auto process = start(wide_deep().with({"input.read=STREAM", "input.stream.block_bytes=4096",
                                               "input.stream.threads=1", "input.stream.memory_bytes=65536"}),
                             {{"LD_PRELOAD", BRAID_SLOW_DOWN}, {"SLOW_READS", "20000"}});
  expect_only(metrics_address(*process), "slow_input worker 0");
}

TEST_F(PlantedCauseTest, OneSlowWorker) {
  const Job job = mlp().with({kForever, "strategy.kind=ALLREDUCE", "input.global_batch_size=96"});
  const auto launcher = launch(job, 3, 0, slow_kernels(kKernel, R"("index":1)"));
  expect_only(page_of(*launcher), "slow_worker worker 1");
}

TEST_F(PlantedCauseTest, AHotServer) {
  // One column of one id: its row, which is long, is on one of three servers.
  const std::string file = write("job", R"(
    name: "hot" seed: 4 steps: 100000000
    model { name: "wide_deep" hidden: 1 embedding_dim: 4096 sparse_tables: true }
    input { format: GENERATOR generator { rows: 1000 } global_batch_size: 8
      columns { name: "age" kind: NUMERIC }
      columns { name: "city" kind: CATEGORICAL buckets: 1 }
      columns { name: "clicked" kind: LABEL } }
    strategy { kind: PS }
    optimizer { kind: ADAGRAD learning_rate: 0.05 })");
  const Job job{file, "", {"runtime.intra_op_threads=1", "runtime.device=CPU", "streams.count=1"}};
  const auto launcher = launch(job, 2, 3);
  expect_only(page_of(*launcher), "hot_server ps ");
}

TEST_F(PlantedCauseTest, StreamsWithoutOverlap) {
  // A chain of layers, of which one is on another stream.
  const std::string rules = write("rules", "0:gradients/.*,update/.*\n1:mlp/layer1/MatMul\n");
  const auto process = start(mlp().with({"streams.count=2", "streams.policy=USER",
                                         "streams.rules_file=" + rules, "runtime.steps_in_flight=1"}),
                             slow_kernels(2ms));
  expect_only(metrics_address(*process), "no_overlap worker 0");
}

TEST_F(PlantedCauseTest, TooSmallBatches) {
  const auto process = start(mmoe().with({"input.global_batch_size=2", "model.hidden=4,4", "model.experts=32",
                                          "streams.count=1", "staging.capacity=16"}));
  expect_only(metrics_address(*process), "small_batches worker 0");
}

TEST_F(PlantedCauseTest, MemoryNearItsLimit) {
  // What is resident is near a limit of the data segment, which is smaller by far: an allocation has room.
  Variables variables = slow_kernels(kKernel);
  variables["MORE_RESIDENT"] = "2048";
  const auto process = start(mlp(), variables);
  const std::string address = metrics_address(*process);
  const json before = wait_for_job(address, [](const json& job) { return trains(job, 1); });
  const rlimit limit{before["peers"][0]["status"]["process"]["resident_bytes"].get<rlim_t>() * 21 / 20,
                     RLIM_INFINITY};
  ASSERT_EQ(::prlimit(process->pid(), RLIMIT_DATA, &limit, nullptr), 0);
  expect_only(address, "memory worker 0");
}

TEST_F(PlantedCauseTest, AStoppedPeer) {
  const Job job = mlp().with({kForever, "strategy.kind=ALLREDUCE", "strategy.deadline_seconds=280"});
  const auto launcher = launch(job, 2, 0, slow_kernels(kKernel));
  const std::string page = page_of(*launcher);
  wait_for_job(page, [](const json& seen) { return trains(seen, 2); });
  const pid_t worker = child_with(launcher->pid(), R"("index":1)");
  ASSERT_GT(worker, 0);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  expect_only(page, "stopped_peer worker 1");
  ::kill(worker, SIGKILL);
}

TEST_F(PlantedCauseTest, ASlowDiskUnderCheckpoints) {
  const auto process = start(mlp().with({"checkpoint.directory=" + path("ck"), "checkpoint.every_steps=50"}),
                             {{"LD_PRELOAD", BRAID_SLOW_DOWN}, {"SLOW_DISK", "100000"}});
  const std::string address = metrics_address(*process);
  expect_only(address, "slow_disk worker 0");
  EXPECT_THAT(tool({"doctor", address}, 1),
              AllOf(HasSubstr("slow_disk"), HasSubstr("checkpoint.every_steps")));
}

}  // namespace
}  // namespace braid::integration
