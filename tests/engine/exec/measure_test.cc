// What is measured is true: busy and waiting time of nodes of known duration, of one stream and of all
// together, launches, bytes, the trace.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/device/stream_meter.h"
#include "engine/exec/trace.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/in_some_attempt.h"

namespace braid::testing {
namespace {

StreamStats stats_of(const Runtime& runtime, const std::string& name) {
  for (StreamStats& stats : runtime.activity().streams)
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
  in_some_attempt([] {
    TestGraph g;
    ValueRef v = g.add("test.Spin", {}, us(5000));
    for (int i = 0; i < 9; ++i) v = g.add("test.Spin", {v}, us(5000));
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
  });
}

TEST(MeasureTest, OverlapIsTheSumOfTheStreamsTimesOverThatOfAllTogether) {
  in_some_attempt([] {
    TestGraph g;
    std::vector<ValueRef> ends;
    for (int stream = 0; stream < 2; ++stream) {
      ends.push_back(g.add("test.Sleep", {}, us(150000)));
      g.node(ends.back()).stream = stream;
    }
    g.mix(ends, 1, "beside");
    const ValueRef first = g.add("test.Sleep", {}, us(150000)),
                   second = g.add("test.Sleep", {first}, us(150000));
    g.node(first).stream = 0;
    g.node(second).stream = 1;
    g.mix({second}, 1, "behind");
    const auto factor = [&](const std::string& fetch) {
      Runtime runtime({});
      Instance instance(compile_test(g, {fetch}, {}, 2, StreamPolicy::User), runtime);
      instance.run(request(0), soon());
      const HostActivity host = runtime.activity();
      EXPECT_GE(host.compute_seconds, 0.150);
      return host.overlap_factor();
    };
    EXPECT_GT(factor("beside"), 1.5);
    EXPECT_LT(factor("behind"), 1.1);
  });
}

TEST(MeasureTest, BytesAreThoseThatTheNodesReadAndWrite) {
  TestGraph g;
  const ValueRef x = g.add("Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{100}}}, "x");
  const ValueRef a = g.add("Exp", {x}, {}, "a");
  const ValueRef b = g.add("AddV2", {a, g.add("Neg", {a}, {}, "minus")}, {}, "b");
  g.node(b).stream = 1;
  const auto p = compile_test(g, {"b"}, {}, 2, StreamPolicy::User, 2, {{"x", DType::Float32, Shape{100}}});
  Runtime runtime({});
  Instance instance(p, runtime);
  for (std::uint64_t step = 0; step < 3; ++step)
    instance.run(request(step, {Tensor::zeros(DType::Float32, Shape{100})}), soon());
  EXPECT_EQ(stats_of(runtime, "compute0").bytes, 3U * 2 * (100 + 100) * sizeof(float));
  EXPECT_EQ(stats_of(runtime, "compute1").bytes, 3U * (100 + 100 + 100) * sizeof(float));
}

TEST(BusyUnionTest, TimesAtWhichSeveralAreBusyCountOnce) {
  using std::chrono::milliseconds;
  const auto begin = MeterTime::clock::now();
  BusyUnion together;
  const auto at = [&](int ms) { return begin + milliseconds(ms); };
  const auto total = [&](int ms) { return std::chrono::round<milliseconds>(together.total(at(ms))).count(); };
  together.enter(at(10));
  EXPECT_EQ(total(9), 0) << "a reader's clock may be behind by a little";
  together.enter(at(20));
  together.leave(at(30));
  EXPECT_EQ(total(35), 25) << "it lasts";
  together.leave(at(40));
  EXPECT_EQ(total(100), 30);
  together.enter(at(100));
  together.leave(at(170));
  EXPECT_EQ(total(200), 100);
}

TEST(BusyUnionTest, ManyThreadsLoseNoTime) {
  BusyUnion together;
  const auto begin = MeterTime::clock::now();
  together.enter(begin);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 20000; ++i) {
          together.enter(MeterTime::clock::now());
          together.leave(MeterTime::clock::now());
        }
      });
  }
  const auto end = MeterTime::clock::now();
  together.leave(end);
  EXPECT_NEAR(std::chrono::duration<double>(together.total(end)).count(),
              std::chrono::duration<double>(end - begin).count(), 1e-6);
}

TEST(MeasureTest, AnAsynchronousNodeIsBusyTimeOfItsLaneFromIssueToCompletion) {
  in_some_attempt([] {
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
  });
}

TEST(MeasureTest, TimeWithoutAStepIsIdleOrInput) {
  in_some_attempt([] {
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
  });
}

TEST(MeasureTest, AStepsSecondsAreItsOwn) {
  in_some_attempt([] {
    TestGraph g;
    g.add("test.Spin", {}, us(30000), "spin");
    Runtime runtime({});
    Instance instance(compile_test(g, {"spin"}, {}, 1, StreamPolicy::None), runtime);
    spun_seconds();
    const double seconds = instance.run(request(0), soon()).seconds, known = spun_seconds();
    EXPECT_GE(seconds, known);
    EXPECT_LE(seconds, 1.02 * known + 0.002);
  });
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
