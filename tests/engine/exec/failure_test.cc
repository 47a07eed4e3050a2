// Errors, deadlines and stops: which text comes back, that nothing hangs, and what can be used afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/in_some_attempt.h"

namespace braid::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Far below the deadline of soon(), far above what a busy machine takes: what ends within it has not waited
/// for a deadline that is far away.
constexpr double kAtOnceSeconds = 30;

struct Failure {
  ErrorCode code = ErrorCode::Internal;
  std::string message = "no error";
  double seconds = 0;
};

Failure failure_of(const std::function<void()>& function) {
  Failure failure;
  const auto begin = steady_clock::now();
  try {
    function();
  } catch (const Error& error) {
    failure.code = error.code();
    failure.message = error.message();
  }
  failure.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return failure;
}

AttrMap at_step(std::int64_t step, const std::string& message = "broken") {
  return {{"at_step", step}, {"message", message}};
}

/// bad (stream 1) between a and end (stream 0); fails in step `step`.
TestGraph failing(std::int64_t step) {
  TestGraph g;
  const ValueRef a = g.mix({}, 4, "a");
  const ValueRef bad = g.add("test.Fail", {a}, at_step(step), "bad");
  g.node(bad).stream = 1;
  g.mix({bad}, 4, "end");
  return g;
}

TEST(FailureTest, S10_TheErrorHasOpNodeStreamAndStep) {
  Runtime runtime({});
  Instance instance(compile_test(failing(12), {"end"}, {}, 2, StreamPolicy::User), runtime);
  const Failure f = failure_of([&] { instance.run(request(12), soon()); });
  EXPECT_EQ(f.code, ErrorCode::InvalidArgument);
  EXPECT_EQ(f.message, "[test.Fail] node 'bad' on stream compute1, step 12: broken");
}

TEST(FailureTest, S10_TheStreamHasThePrefixOfItsInstance) {
  Runtime runtime({});
  Instance instance(compile_test(failing(12), {"end"}, {}, 2, StreamPolicy::User), runtime,
                    {.stream_prefix = "group3/"});
  EXPECT_EQ(failure_of([&] { instance.run(request(12), soon()); }).message,
            "[test.Fail] node 'bad' on stream group3/compute1, step 12: broken");
}

TEST(FailureTest, TheNodesOwnPlaceIsNotRepeated) {
  TestGraph g;
  g.add("test.Fail", {}, at_step(0, "[test.Fail] node 'bad': index 7 out of range"), "bad");
  Runtime runtime({});
  Instance instance(compile_test(g, {"bad"}, {}, 1, StreamPolicy::None), runtime);
  EXPECT_EQ(failure_of([&] { instance.run(request(0), soon()); }).message,
            "[test.Fail] node 'bad' on stream compute0, step 0: index 7 out of range");
}

TEST(FailureTest, TheInstanceRunsOnAfterAnError) {
  Runtime runtime({});
  Instance instance(compile_test(failing(3), {"end"}, {}, 2, StreamPolicy::User), runtime);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(failure_of([&] { instance.run(request(3), soon()); }).code, ErrorCode::InvalidArgument);
    EXPECT_EQ(instance.in_flight(), 0);
    for (std::uint64_t step = 4; step < 7; ++step) EXPECT_EQ(instance.run(request(step), soon()).step, step);
  }
}

TEST(FailureTest, StepsBehindAFailedOneAreDroppedAndThoseBeforeAreNot) {
  Runtime runtime({});
  Instance instance(compile_test(failing(1), {"end"}, {}, 2, StreamPolicy::User, 4), runtime);
  for (std::uint64_t step = 0; step < 4; ++step) instance.start(request(step), soon());
  EXPECT_EQ(instance.finish(soon()).step, 0U);
  EXPECT_EQ(failure_of([&] { instance.finish(soon()); }).message,
            "[test.Fail] node 'bad' on stream compute1, step 1: broken");
  EXPECT_EQ(instance.in_flight(), 0);
  EXPECT_EQ(failure_of([&] { instance.finish(soon()); }).code, ErrorCode::InvalidArgument);
  EXPECT_EQ(instance.run(request(2), soon()).step, 2U);
}

TEST(FailureTest, AnErrorOfACompletionIsReportedLikeOneOfAKernel) {
  TestGraph g;
  const ValueRef bad = g.add("test.FailAsync", {}, at_step(5, "server 2 is gone"), "pull");
  g.mix({bad}, 4, "end");
  Runtime runtime({});
  Instance instance(compile_test(g, {"end"}, {}, 1, StreamPolicy::None), runtime);
  const Failure f = failure_of([&] { instance.run(request(5), soon()); });
  EXPECT_EQ(f.code, ErrorCode::Unavailable);
  EXPECT_EQ(f.message, "[test.FailAsync] node 'pull' on stream pull, step 5: server 2 is gone");
  instance.run(request(6), soon());
}

TEST(FailureTest, TheFirstErrorCancelsItsSiblings) {
  // A node on another stream blocks until it is stopped; the error stops it.
  TestGraph g;
  const ValueRef block = g.add("test.Block", {}, {}, "block");
  const ValueRef slow = g.add("test.Sleep", {}, {{"us", std::int64_t{20000}}}, "slow");
  const ValueRef bad = g.add("test.Fail", {slow}, at_step(0), "bad");
  g.node(block).stream = 1;
  g.mix({block, bad}, 4, "end");
  Runtime runtime({});
  Instance instance(compile_test(g, {"end"}, {}, 2, StreamPolicy::User), runtime);
  const Failure f = failure_of([&] { instance.run(request(0), soon()); });
  EXPECT_EQ(f.message, "[test.Fail] node 'bad' on stream compute0, step 0: broken");
  EXPECT_LT(f.seconds, kAtOnceSeconds);
}

TEST(FailureTest, AnErrorBeforeTheFirstWriteLeavesTheVariablesUsable) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef bad = g.add("test.Fail", {}, at_step(0), "bad");
  g.add("test.Update", {w, bad}, {}, "update");
  Runtime runtime({});
  Instance instance(compile_test(g, {}, {"update"}, 1, StreamPolicy::None), runtime);
  EXPECT_NE(failure_of([&] { instance.run(request(0), soon()); }).message, "no error");
  instance.run(request(1), soon());
  runtime.variables().check_not_poisoned();
}

TEST(FailureTest, AnErrorAfterTheFirstWritePoisonsTheVariablesUntilRestored) {
  TestGraph g;
  const ValueRef w = g.variable("w", 4);
  const ValueRef update = g.add("test.Update", {w, g.mix({}, 4)}, {}, "update");
  const ValueRef bad = g.add("test.Fail", {}, at_step(0), "bad");
  g.control(update, bad);
  Runtime runtime({});
  Instance instance(compile_test(g, {"bad"}, {"update"}, 1, StreamPolicy::None), runtime);
  const std::string text = "[test.Fail] node 'bad' on stream compute0, step 0: broken";
  EXPECT_EQ(failure_of([&] { instance.run(request(0), soon()); }).message, text);
  EXPECT_EQ(failure_of([&] { instance.run(request(1), soon()); }).message,
            "variables are not consistent until they are restored: " + text);
  runtime.variables().clear_poison();
  instance.run(request(1), soon());
}

// Who waits has a moment after the deadline to say for what: a busy machine may not give it to him, and then
// the error names the step only.

TEST(FailureTest, ADeadlineNamesTheNodeThatWasWaitedFor) {
  in_some_attempt([] {
    TestGraph g;
    const ValueRef never = g.add("test.Never", {}, {}, "pull_rows");
    g.mix({never}, 4, "end");
    Runtime runtime({});
    Instance instance(compile_test(g, {"end"}, {}, 1, StreamPolicy::None), runtime);
    const Failure f = failure_of([&] { instance.run(request(9), soon(100)); });
    EXPECT_EQ(f.code, ErrorCode::DeadlineExceeded);
    EXPECT_EQ(f.message,
              "[test.Mix] node 'end' on stream compute0, step 9: deadline exceeded waiting for [test.Never] "
              "node 'pull_rows' "
              "on stream pull");
    EXPECT_LT(f.seconds, kAtOnceSeconds);
    // The request is still out: nothing new starts in its memory until it has ended.
    const Failure again = failure_of([&] { instance.run(request(10), soon(50)); });
    EXPECT_EQ(again.code, ErrorCode::DeadlineExceeded);
    EXPECT_EQ(again.message,
              "a step that failed earlier has not ended: not finished: [test.Never] node 'pull_rows' on "
              "stream pull");
    release_never();
    EXPECT_EQ(failure_of([&] { instance.run(request(11), soon(100)); }).code, ErrorCode::DeadlineExceeded);
    release_never();
  });
}

TEST(FailureTest, ADeadlineNamesANodeThatNobodyWaitsFor) {
  in_some_attempt([] {
    TestGraph g;
    g.add("test.Never", {}, {}, "push_rows");
    Runtime runtime({});
    Instance instance(compile_test(g, {}, {"push_rows"}, 1, StreamPolicy::None), runtime);
    const Failure f = failure_of([&] { instance.run(request(4), soon(50)); });
    EXPECT_EQ(f.message,
              "step 4: deadline exceeded; not finished: [test.Never] node 'push_rows' on stream pull");
    release_never();
  });
}

TEST(FailureTest, AKernelThatBlocksEndsAtTheStepsDeadline) {
  TestGraph g;
  g.add("test.Block", {}, {}, "block");
  for (const int streams : {1, 2}) {
    Runtime runtime({});
    Instance instance(compile_test(g, {"block"}, {}, streams, StreamPolicy::None), runtime);
    const Failure f = failure_of([&] { instance.run(request(0), soon(60)); });
    EXPECT_EQ(f.code, ErrorCode::DeadlineExceeded);
    EXPECT_NE(f.message.find("[test.Block] node 'block'"), std::string::npos) << f.message;
    EXPECT_LT(f.seconds, kAtOnceSeconds);
  }
}

TEST(FailureTest, AStopEndsTheStep) {
  TestGraph g;
  const ValueRef block = g.add("test.Block", {}, {}, "block");
  g.node(block).stream = 1;
  g.mix({block}, 4, "end");
  Runtime runtime({});
  Instance instance(compile_test(g, {"end"}, {}, 2, StreamPolicy::User), runtime);
  std::stop_source stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(20));
    stop.request_stop();
  });
  const Failure f = failure_of([&] {
    instance.run(request(0), WaitContext::with_timeout(std::chrono::seconds(60), stop.get_token()));
  });
  stopper.join();
  EXPECT_EQ(f.code, ErrorCode::Cancelled);
  EXPECT_LT(f.seconds, kAtOnceSeconds);
}

TEST(FailureTest, AnInstanceMayEndWithStepsInFlight) {
  TestGraph g;
  const ValueRef sleep = g.add("test.Sleep", {}, {{"us", std::int64_t{3000}}});
  g.node(sleep).stream = 1;
  g.mix({sleep, g.add("test.Pull", {}, {{"us", std::int64_t{2000}}})}, 4, "end");
  const auto program = compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 3);
  Runtime runtime({});
  for (int i = 0; i < 30; ++i) {
    Instance instance(program, runtime);
    for (std::uint64_t step = 0; step < 3; ++step) instance.start(request(step), soon());
  }
}

TEST(FailureTest, FeedsThatDoNotFitAreRefusedAndNothingStarts) {
  TestGraph g;
  g.mix({g.feed("x", 4)}, 4, "y");
  Runtime runtime({});
  Instance instance(compile_test(g, {"y"}, {}, 1, StreamPolicy::None, 2, {{"x", DType::Int64, Shape{4}}}),
                    runtime);
  EXPECT_EQ(failure_of([&] { instance.run(request(0), soon()); }).message,
            "the program takes 1 feeds, got 0");
  EXPECT_EQ(failure_of([&] { instance.run(request(0, {test_tensor(5, 0)}), soon()); }).message,
            "feed 'x' is int64 [5], the program was compiled for int64 [4]");
  EXPECT_EQ(instance.in_flight(), 0);
}

}  // namespace
}  // namespace braid::testing
