// What is measured is true: busy and waiting time of nodes of known duration, launches, the trace.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/exec/trace.h"
#include "tests/engine/exec/test_ops.h"

namespace braid::testing {
namespace {

StreamStats stats_of(const Runtime& runtime, const std::string& name) {
  for (StreamStats& stats : runtime.stream_stats())
    if (stats.name == name) return stats;
  ADD_FAILURE() << "no stream " << name;
  return {};
}

double wait_of(const StreamStats& stats, const std::string& cause) {
  const auto at = stats.wait_seconds.find(cause);
  return at == stats.wait_seconds.end() ? 0 : at->second;
}

AttrMap us(std::int64_t us) { return {{"us", us}}; }

TEST(MeasureTest, BusyTimeOfNodesOfKnownDurationIsWithinTwoPercent) {
  TestGraph g;
  ValueRef v = g.add("test.Spin", {}, us(20000));
  for (int i = 0; i < 9; ++i) v = g.add("test.Spin", {v}, us(20000));
  const ValueRef last = g.add("test.Nop", {v}, {}, "last");
  g.node(last).stream = 1;
  const auto p = compile_test(g, {"last"}, {}, 2, StreamPolicy::User);
  Runtime runtime({});
  Instance instance(p, runtime);
  spun_seconds();
  instance.run(request(0), soon());
  const double known = spun_seconds();
  const StreamStats first = stats_of(runtime, "compute0"), second = stats_of(runtime, "compute1");
  EXPECT_NEAR(first.busy_seconds, known, 0.02 * known);
  EXPECT_EQ(first.launches, 10U);
  EXPECT_EQ(second.launches, 1U);
  EXPECT_EQ(second.waits, 1U);
  EXPECT_GE(wait_of(second, "compute"), 0.97 * known);
  EXPECT_LE(wait_of(second, "compute"), known + 0.060)
      << "a wake-up on a busy machine takes long, but not so long";
  EXPECT_LT(second.busy_seconds, 0.02 * known);
}

TEST(MeasureTest, AnAsynchronousNodeIsBusyTimeOfItsLaneFromIssueToCompletion) {
  TestGraph g;
  const ValueRef pull = g.add("test.Pull", {}, us(60000)), other = g.add("test.Pull", {}, us(60000));
  g.mix({pull, other}, 4, "end");
  Runtime runtime({});
  Instance instance(compile_test(g, {"end"}, {}, 1, StreamPolicy::None), runtime);
  instance.run(request(0), soon());
  const StreamStats lane = stats_of(runtime, "pull"), compute = stats_of(runtime, "compute0");
  EXPECT_GE(lane.busy_seconds, 0.060);
  EXPECT_LE(lane.busy_seconds, 0.110) << "two requests at once count once";
  EXPECT_NEAR(wait_of(compute, "pull"), lane.busy_seconds, 0.030);
  EXPECT_EQ(wait_of(compute, "compute"), 0);
}

TEST(MeasureTest, TimeWithoutAStepIsIdleOrInput) {
  TestGraph g;
  g.add("test.Nop", {}, {}, "nop");
  Runtime runtime({});
  Instance instance(compile_test(g, {"nop"}, {}, 1, StreamPolicy::None), runtime);
  {
    const Runtime::InputWait waiting(runtime);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  instance.run(request(0), soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const StreamStats stats = stats_of(runtime, "compute0");
  EXPECT_NEAR(wait_of(stats, "input"), 0.040, 0.020);
  EXPECT_NEAR(wait_of(stats, "idle"), 0.030, 0.020);
}

TEST(MeasureTest, AStepsSecondsAreItsOwn) {
  TestGraph g;
  g.add("test.Spin", {}, us(30000), "spin");
  Runtime runtime({});
  Instance instance(compile_test(g, {"spin"}, {}, 1, StreamPolicy::None), runtime);
  spun_seconds();
  const double seconds = instance.run(request(0), soon()).seconds, known = spun_seconds();
  EXPECT_GE(seconds, known);
  EXPECT_LE(seconds, 1.02 * known + 0.002);
}

TEST(TraceTest, EveryStreamIsListedAndWaitsHaveArrows) {
  TestGraph g;
  const ValueRef a = g.add("test.Spin", {}, us(3000), "first \"quoted\"");
  const ValueRef b = g.mix({a}, 4, "second");
  const ValueRef c = g.add("test.Push", {b}, us(1000), "push");
  g.node(b).stream = 1;
  RuntimeOptions options;
  options.trace = true;
  Runtime runtime(options);
  Instance instance(compile_test(g, {}, {g.name(c)}, 3, StreamPolicy::User), runtime);
  for (std::uint64_t step = 40; step < 43; ++step) instance.run(request(step), soon());
  runtime.trace()->track("stage0").add({"make batch", TraceTime::clock::now(), TraceTime::clock::now(), 41});

  std::ostringstream out;
  runtime.trace()->write(out, "worker 1");
  const auto json = nlohmann::json::parse(out.str());
  std::map<std::string, int> tids;
  int flows_out = 0, flows_in = 0;
  std::map<std::string, std::vector<nlohmann::json>> slices;
  for (const auto& event : json["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "thread_name") tids[event["args"]["name"]] = event["tid"];
    if (phase == "X") slices[event["name"]].push_back(event);
    flows_out += phase == "s";
    flows_in += phase == "f";
  }
  for (const char* name : {"compute0", "compute1", "compute2", "push", "stage0"})
    EXPECT_TRUE(tids.contains(name)) << name;
  ASSERT_EQ(slices["second"].size(), 3U);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(slices["second"][static_cast<std::size_t>(i)]["args"]["step"], 40 + i);
  EXPECT_EQ(slices["second"][0]["tid"], tids["compute1"]);
  EXPECT_EQ(slices["push"].size(), 3U);
  EXPECT_EQ(slices["push"][0]["cat"], "async");
  EXPECT_EQ(slices["wait first \"quoted\""].size(), 3U);
  EXPECT_GE(flows_in, 6);  // first to second, second to push, each step
  EXPECT_EQ(flows_in, flows_out);
}

TEST(TraceTest, ARingKeepsTheLatestAndOverlapsGetRowsOfTheirOwn) {
  Trace trace(4);
  TraceTrack& track = trace.track("pull");
  const TraceTime t0 = TraceTime::clock::now();
  const auto ms = [&](int n) { return t0 + std::chrono::milliseconds(n); };
  for (int i = 0; i < 6; ++i)
    track.add({trace.intern("s" + std::to_string(i)), ms(i), ms(i + 2), static_cast<std::uint64_t>(i)});
  ASSERT_EQ(track.slices().size(), 4U);
  EXPECT_STREQ(track.slices().front().name, "s2");
  std::ostringstream out;
  trace.write(out, "p");
  EXPECT_NE(out.str().find("\"pull #2\""), std::string::npos);
}

}  // namespace
}  // namespace braid::testing
