// What an Instance promises: results, variables over steps, steps in flight, feeds that are checked.
#include "engine/exec/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "engine/exec/trace.h"
#include "engine/ir/op.h"
#include "tests/engine/exec/allocations.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/in_some_attempt.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

TEST(InstanceTest, AChainGivesWhatTheInterpreterGives) {
  TestGraph g;
  const ValueRef x = g.feed("x", 16), w = g.variable("w", 8);
  const ValueRef h = g.mix({x, g.read(w)}, 32);
  const ValueRef y = g.add("test.Change", {h, h}, {{"elements", std::int64_t{32}}}, "y");
  const ValueRef z = g.add("test.Change", {y}, {{"elements", std::int64_t{32}}}, "z");
  const ValueRef update = g.add("test.Update", {w, z});
  const auto program =
      compile_test(g, {"z"}, {g.name(update)}, 1, StreamPolicy::None, 2, {{"x", DType::Int64, Shape{16}}});

  Runtime runtime({});
  Instance instance(program, runtime);
  Interpreter oracle(g.graph);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Tensor feed = test_tensor(16, step);
    const StepResult result = instance.run(request(step, {feed}), soon());
    const auto expected = oracle.run({{"x", feed}}, {"z"}, {g.name(update)});
    EXPECT_EQ(result.step, step);
    ASSERT_EQ(result.fetches.size(), 1U);
    EXPECT_TRUE(same_bytes(result.fetches[0], expected[0])) << "step " << step;
    EXPECT_TRUE(same_bytes(*runtime.variables().find("w"), oracle.variables().at("w"))) << "step " << step;
  }
}

/// A step of 8 nodes on two streams and a lane, with a variable.
TestGraph small_step() {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef a = g.mix({x, g.read(w)}, 64), b = g.mix({x}, 64), c = g.mix({a, b}, 64);
  const ValueRef d = g.add("test.Comm", {c}, {{"elements", std::int64_t{64}}, {"us", std::int64_t{0}}});
  g.node(b).stream = 1;
  g.add("test.Update", {w, d}, {}, "update");
  return g;
}

TEST(InstanceTest, StepsStartInOrderEndInOrderAndOverlap) {
  bool in_order = true;
  in_some_attempt([&] {
    TestGraph g;
    const ValueRef x = g.feed("x", 4);
    const ValueRef a = g.add("test.Sleep", {x}, {{"us", std::int64_t{20000}}}, "a");
    const ValueRef b = g.add("test.Sleep", {}, {{"us", std::int64_t{20000}}}, "b");
    g.control(a, b);  // no memory of a that a later step would have to leave alone
    g.node(b).stream = 1;
    const auto program = compile_test(g, {"b"}, {}, 2, StreamPolicy::User, 3, kX);
    Runtime runtime({.trace = true});
    Instance instance(program, runtime);
    std::uint64_t finished = 0;
    for (std::uint64_t step = 0; step < 10; ++step) {
      instance.start(request(step, {test_tensor(4, step)}), soon());
      if (instance.in_flight() == 3) in_order &= instance.finish(soon()).step == finished++;
    }
    while (instance.in_flight() > 0) in_order &= instance.finish(soon()).step == finished++;
    EXPECT_EQ(finished, 10U);
    int beside = 0;
    for (const TraceSlice& before : runtime.trace()->track("compute1").slices())
      for (const TraceSlice& next : runtime.trace()->track("compute0").slices())
        beside += before.kind == TraceSlice::Kind::Work && next.kind == TraceSlice::Kind::Work &&
                  next.step == before.step + 1 && next.begin < before.end && before.begin < next.end;
    EXPECT_GE(beside, 3) << "a of step n + 1 beside b of step n";
  });
  EXPECT_TRUE(in_order) << "in every attempt";
}

TEST(InstanceTest, ResultsThatNobodyTookAreKeptUpToALimit) {
  TestGraph g;
  g.mix({g.feed("x", 4)}, 4, "y");
  const auto program = compile_test(g, {"y"}, {}, 1, StreamPolicy::None, 2, kX);
  Runtime runtime({});
  Instance instance(program, runtime);
  for (std::uint64_t step = 0; step < 4; ++step)
    instance.start(request(step, {test_tensor(4, step)}), soon());
  EXPECT_EQ(instance.in_flight(), 4);
  EXPECT_THROW(instance.start(request(4, {test_tensor(4, 4)}), soon(30)), DeadlineExceeded);
  for (std::uint64_t step = 0; step < 4; ++step) EXPECT_EQ(instance.finish(soon()).step, step);
  EXPECT_THROW(instance.finish(soon()), InvalidArgument);
}

TEST(InstanceTest, OneThreadStartsAndAnotherFinishes) {
  const TestGraph g = small_step();
  const auto program = compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 2, kX);
  Runtime runtime({});
  Instance instance(program, runtime);
  std::atomic<std::uint64_t> started{0};
  std::thread finisher([&] {
    for (std::uint64_t step = 0; step < 200; ++step) {
      while (started.load() <= step) std::this_thread::yield();
      EXPECT_EQ(instance.finish(soon()).step, step);
    }
  });
  for (std::uint64_t step = 0; step < 200; ++step) {
    instance.start(request(step, {test_tensor(4, step)}), soon());
    started.store(step + 1);
  }
  finisher.join();
}

TEST(InstanceTest, TwoInstancesShareStreamsWithoutWaitingForEachOther) {
  // Both have nodes on both streams that wait for each other; steps are started from two threads at once.
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  const ValueRef a = g.mix({x}, 8, "a"), b = g.mix({a}, 8, "b"), c = g.mix({b}, 8, "c"),
                 d = g.mix({c}, 8, "d");
  g.node(a).stream = g.node(c).stream = 0;
  g.node(b).stream = g.node(d).stream = 1;
  const auto program = compile_test(g, {"d"}, {}, 2, StreamPolicy::User, 2, kX);
  Runtime runtime({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      Instance instance(program, runtime);
      for (std::uint64_t step = 0; step < 200; ++step) {
        instance.start(request(step, {test_tensor(4, step)}), soon());
        if (instance.in_flight() == 2) instance.finish(soon());
      }
      instance.finish(soon());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(InstanceTest, AChainRunsOnTheCallersThread) {
  static std::thread::id where;
  OpDef def;
  def.name = "test.Where";
  def.infer = [](InferContext& c) { c.output(DType::Int64, Shape{1}); };
  def.no_gradient_reason = "a test op";
  def.stateful = true;
  def.cpu = [](const PrepareContext&) {
    PreparedKernel kernel;
    kernel.run = [](const KernelArgs&) { where = std::this_thread::get_id(); };
    return kernel;
  };
  TestGraph g;
  if (!OpRegistry::global().find("test.Where")) OpRegistry::global().add(std::move(def));
  g.add("test.Where", {}, {}, "where");
  Runtime runtime({});
  Instance instance(compile_test(g, {"where"}, {}, 1, StreamPolicy::None), runtime);
  instance.run(request(0), soon());
  EXPECT_EQ(where, std::this_thread::get_id());
  instance.start(request(1), soon());
  instance.finish(soon());
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(InstanceTest, WhatAStepWasGivenIsHeldUntilItIsDone) {
  TestGraph g;
  const ValueRef pull = g.add("test.Pull", {g.feed("x", 4)}, {{"us", std::int64_t{20000}}}, "pull");
  static_cast<void>(pull);
  Runtime runtime({});
  Instance instance(compile_test(g, {"pull"}, {}, 1, StreamPolicy::None, 2, kX), runtime);
  StepRequest r = request(0, {test_tensor(4, 0)});
  auto batch = std::make_shared<int>(1);
  r.keep_alive = batch;
  std::weak_ptr<int> watch = batch;
  batch.reset();
  instance.start(std::move(r), soon());
  EXPECT_FALSE(watch.expired());
  instance.finish(soon());
  EXPECT_TRUE(watch.expired());
}

TEST(InstanceTest, AProgramOfTheHostTakesNoMemoryOfADevice) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), y = g.mix({x}, 8);
  Runtime runtime({});
  Instance instance(compile_test(g, {g.name(y)}, {}, 1, StreamPolicy::None, 1, kX), runtime);
  const Tensor x0 = test_tensor(4, 1);
  const Tensor elsewhere(x0.dtype(), x0.shape(), x0.memory(), Domain::Device);
  EXPECT_THAT(message_of<InvalidArgument>([&] { instance.run(request(0, {elsewhere}), soon()); }),
              HasSubstr("feed 'x' is in the memory of a device, and the program's runtime has none"));
  StepRequest kept = request(0, {x0});
  kept.results = allocate_aligned(256);
  EXPECT_THAT(message_of<InvalidArgument>([&] { instance.run(std::move(kept), soon()); }),
              HasSubstr("results cannot stay on a device"));
  EXPECT_EQ(instance.in_flight(), 0);
  EXPECT_EQ(instance.result_bytes(), 0U);
  EXPECT_EQ(instance.run(request(0, {x0}), soon()).fetches.size(), 1U);
}

TEST(InstanceTest, ASteadyStepAllocatesNothing) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef a = g.mix({x, g.read(w)}, 64), b = g.mix({x}, 64);
  g.node(b).stream = 1;
  g.add("test.Update", {w, g.mix({a, b}, 64)}, {}, "update");
  Runtime runtime({});
  Instance instance(compile_test(g, {}, {"update"}, 2, StreamPolicy::User, 2, kX), runtime);
  const Tensor x0 = test_tensor(4, 1);
  std::uint64_t counted = 0;
  for (std::uint64_t step = 0; step < 1100; ++step) {
    StepRequest r = request(step, {x0});
    const std::uint64_t before = allocations();
    instance.start(std::move(r), soon());
    if (instance.in_flight() == 2) instance.finish(soon());
    if (step >= 100) counted += allocations() - before;
  }
  while (instance.in_flight() > 0) instance.finish(soon());
  EXPECT_EQ(counted, 0U);
}

}  // namespace
}  // namespace braid::testing
