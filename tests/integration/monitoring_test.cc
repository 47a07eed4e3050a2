// What processes tell about themselves while they train: the HTTP endpoint, the counts of pushes, the trace.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/integration/http_client.h"
#include "tests/integration/run.h"
#include "tests/support/in_some_attempt.h"

namespace braid::integration {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class MonitoringTest : public IntegrationTest {};

std::string get(const std::string& address, const std::string& path) {
  const auto reply = http_get(address, path);
  EXPECT_TRUE(reply) << address << path;
  EXPECT_EQ(reply.value_or(HttpReply{}).status, 200) << path;
  return reply.value_or(HttpReply{}).body;
}

/// Scrapes until the metric is above `floor`.
double wait_above(const std::string& address, const std::string& metric, double floor) {
  for (const auto end = Clock::now() + kLongRun; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (const double now = sample(get(address, "/metrics"), metric).value_or(0); now > floor) return now;
  ADD_FAILURE() << metric << " does not grow beyond " << floor;
  return 0;
}

TEST_F(MonitoringTest, EveryEndpointAnswersWhileAJobTrains) {
  const Job job = wide_deep().with(
      {"steps=1000000", "strategy.kind=PS", "streams.policy=COST", "metrics.listen=127.0.0.1:0"});
  Cluster cluster(directory() / "job", job, {2, 1});
  const std::string worker = metrics_address(cluster.worker(1)), server = metrics_address(cluster.server(0));
  const double steps = wait_above(worker, "braid_steps_total", 10);
  wait_above(worker, "braid_steps_total", steps);

  const std::string metrics = get(worker, "/metrics");
  EXPECT_THAT(metrics, HasSubstr("# TYPE braid_stream_busy_seconds_total counter"));
  for (const char* stream : {"compute0", "compute1", "pull", "push", "stage0"})
    EXPECT_TRUE(sample(metrics, "braid_stream_busy_seconds_total", std::string("stream=\"") + stream + "\""))
        << stream;
  EXPECT_GT(sample(metrics, "braid_stream_busy_seconds_total", "stream=\"compute0\""), 0.0);
  EXPECT_GT(sample(metrics, "braid_stream_launches_total", "stream=\"push\""), 0.0);
  EXPECT_TRUE(sample(metrics, "braid_stream_wait_seconds_total", "cause=\"pull\""));
  for (const char* stream : {"compute0", "pull", "push"})
    EXPECT_GT(sample(metrics, "braid_stream_bytes_total", std::string("stream=\"") + stream + "\""), 0.0);
  EXPECT_GT(sample(metrics, "braid_host_busy_seconds_total"), 0.0);
  EXPECT_GE(sample(metrics, "braid_host_overlap_factor"), 0.99);
  in_some_attempt([&] {  // the two are read one after the other, and a step may end in between
    const std::string now = get(worker, "/metrics");
    EXPECT_NEAR(sample(now, "braid_examples_total").value_or(0),
                sample(now, "braid_steps_total").value_or(-1) * 32, 32);
  });
  EXPECT_GT(sample(metrics, "braid_loss"), 0.0);
  EXPECT_EQ(get(worker, "/healthz"), "ok\n");
  EXPECT_EQ(get(worker, "/readyz"), "ready\n");

  const json streams = json::parse(get(worker, "/streams"));
  EXPECT_EQ(streams["role"], "worker 1");
  std::set<std::string> names;
  for (const json& row : streams["streams"]) names.insert(row["stream"]);
  EXPECT_THAT(names, IsSupersetOf({"compute0", "compute1", "pull", "push", "stage0"}));
  EXPECT_GE(streams["host"]["overlap_factor"], 0.99);

  const double pushes = wait_above(server, "braid_ps_pushes_total", 0);
  wait_above(server, "braid_ps_pushes_total", pushes);
  EXPECT_EQ(get(server, "/readyz"), "ready\n");
  EXPECT_EQ(http_get(worker, "/nothing").value_or(HttpReply{}).status, 404);
}

TEST_F(MonitoringTest, ReadinessDoesNotWaitForPeers) {
  const launch::PortReservation ports(3);
  const auto& a = ports.addresses();
  const json cluster{{"worker", {a[0], a[1]}}, {"ps", {a[2]}}};
  const Job job = wide_deep().with({"steps=10", "strategy.kind=PS"});
  for (const char* type : {"worker", "ps"}) {
    const json config{{"cluster", cluster}, {"task", {{"type", type}, {"index", 0}}}};
    Process alone(braid(job.arguments()), {{"TF_CONFIG", config.dump()}, {"BRAID_HTTP", "127.0.0.1:0"}},
                  directory() / type);
    const std::string address = metrics_address(alone);
    EXPECT_EQ(get(address, "/readyz"), "ready\n") << type;
    EXPECT_EQ(get(address, "/healthz"), "ok\n") << type;
    EXPECT_FALSE(alone.wait(std::chrono::milliseconds(100))) << "it still waits for its peers";
  }
}

/// Buckets of one byte hold a variable each; mlp has three layers of a matrix and a bias.
TEST_F(MonitoringTest, EveryPushOfEveryWorkerIsAppliedOnce) {
  for (const auto& [bytes, buckets] : {std::pair{"1048576", 1}, std::pair{"1", 6}}) {
    const Job job = mlp().with({"steps=50", "strategy.kind=PS", std::string("strategy.bucket_bytes=") + bytes,
                                "metrics.listen=127.0.0.1:0"});
    Cluster cluster(directory() / bytes, job, {2, 1});
    const std::string server = metrics_address(cluster.server(0));
    double seen = 0;
    while (const auto reply = http_get(server, "/metrics")) {
      const double now = sample(reply->body, "braid_ps_pushes_total", "result=\"applied\"").value_or(0);
      EXPECT_GE(now, seen);
      seen = now;
    }
    cluster.expect_success();
    const int expected = 50 * 2 * buckets;
    EXPECT_LE(seen, expected);
    EXPECT_THAT(cluster.server(0).err(),
                HasSubstr("pushes applied " + std::to_string(expected) + ", duplicate 0, dropped 0"));
  }
}

/// Names of the tracks of a trace that has only slices of named tracks.
std::set<std::string> tracks_of(const Path& file) {
  std::ifstream in(file);
  const json trace = json::parse(in);
  std::map<int, std::string> names;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  std::set<int> used;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    used.insert(event["tid"].get<int>());
    EXPECT_GE(event["dur"].get<double>(), 0.0) << event;
  }
  std::set<std::string> tracks;
  for (const auto& [tid, name] : names) tracks.insert(name);
  EXPECT_FALSE(used.empty());
  for (int tid : used) EXPECT_TRUE(names.contains(tid)) << tid;
  return tracks;
}

TEST_F(MonitoringTest, TracesHaveEveryStreamAsATrackIdleOnesToo) {
  const Job job = wide_deep().with({"steps=20", "streams.count=4", "streams.policy=USER",
                                    "metrics.trace_file=" + (directory() / "%r.json").string()});
  train("local", job);
  EXPECT_THAT(tracks_of(directory() / "worker-0.json"),
              IsSupersetOf({"compute0", "compute1", "compute2", "compute3", "stage0"}));
  Cluster servers(directory() / "ps", job.with({"strategy.kind=PS"}), {2, 1});
  servers.expect_success();
  EXPECT_THAT(tracks_of(directory() / "worker-1.json"),
              IsSupersetOf({"compute0", "compute3", "pull", "push", "stage0"}));
  Cluster ring(directory() / "ring", job.with({"strategy.kind=ALLREDUCE"}), {2, 0});
  ring.expect_success();
  EXPECT_THAT(tracks_of(directory() / "worker-1.json"),
              IsSupersetOf({"compute0", "compute3", "comm", "stage0"}));
}

TEST_F(MonitoringTest, ARunThatFailsLeavesItsTraceToo) {
  const Job job = wide_deep().with({"steps=1000", "optimizer.kind=SGD", "optimizer.learning_rate=1e30",
                                    "metrics.trace_file=" + (directory() / "%r.json").string()});
  const auto process = run("failed", job.arguments());
  EXPECT_EQ(process->wait({}), 1);
  EXPECT_THAT(process->err(), HasSubstr("loss is "));
  EXPECT_THAT(tracks_of(directory() / "worker-0.json"), IsSupersetOf({"compute0", "stage0"}));
}

TEST_F(MonitoringTest, TheTableAtTheEndHasARowAStream) {
  const auto process = run("run", wide_deep().with({"steps=20", "streams.policy=COST"}).arguments());
  EXPECT_EQ(process->wait({}), 0);
  EXPECT_THAT(process->out(), AllOf(HasSubstr("worker-0: time per stream during steps"),
                                    HasSubstr("\ncompute0 "), HasSubstr("\ncompute1 "),
                                    HasSubstr("\nstage0 "), HasSubstr("compute streams together: busy ")));
  EXPECT_EQ(result_of(*process).steps, 20U);
}

}  // namespace
}  // namespace braid::integration
