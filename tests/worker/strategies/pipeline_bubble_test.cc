// How long the stages of a pipeline stand still, measured on nodes that sleep, so that the number of cores
// does not matter: against (p - 1) / (m + p - 1).
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "engine/ir/op.h"
#include "tests/support/in_some_attempt.h"
#include "tests/worker/strategies/pipeline_runs.h"
#include "worker/strategies/pipeline_schedule.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

/// When the sleeps of all stages began and ended, and how long they were.
struct Slept {
  std::mutex mutex;
  Clock::time_point first, last;
  double seconds = 0;

  void add(Clock::time_point begin, Clock::time_point end) {
    std::lock_guard lock(mutex);
    if (seconds == 0 || begin < first) first = begin;
    if (seconds == 0 || end > last) last = end;
    seconds += std::chrono::duration<double>(end - begin).count();
  }
} slept;

/// y = x, after attribute `millis`; the gradient takes twice as long.
void register_sleep() {
  if (OpRegistry::global().find("TestSleep")) return;
  OpDef sleep;
  sleep.name = "TestSleep";
  sleep.traits = computes();
  sleep.min_inputs = sleep.max_inputs = 1;
  sleep.infer = [](InferContext& context) { context.output(context.dtype(0), context.shape(0)); };
  sleep.gradient = [](GradContext& context) {
    context.set_grad(0, context.op("TestSleep", {context.grad()},
                                   {{"millis", 2 * context.node().attrs.require<std::int64_t>("millis")}}));
  };
  sleep.cpu = [](const PrepareContext& context) {
    PreparedKernel kernel;
    const std::chrono::milliseconds time(context.node.attrs.require<std::int64_t>("millis"));
    const std::size_t bytes = static_cast<std::size_t>(context.inputs[0].shape.elements()) * sizeof(float);
    kernel.run = [time, bytes](const KernelArgs& args) {
      const auto begin = Clock::now();
      std::this_thread::sleep_for(time);
      std::memcpy(args.outputs[0], args.inputs[0], bytes);
      slept.add(begin, Clock::now());
    };
    return kernel;
  };
  OpRegistry::global().add(std::move(sleep));
}

/// The share of the time of one step in which stages do not sleep.
double measured_bubble(int stage_count, int parts, const char* schedule) {
  register_sleep();
  GraphJob job;
  Output out = job.x;
  std::vector<std::string> patterns;
  for (int s = 0; s < stage_count; ++s) {
    const std::string name = "s" + std::to_string(s);
    out = job.b.op("TestSleep", {job.b.dense(name, out, 8, 8, false)}, {{"millis", 10}}, name + "/sleep");
    patterns.push_back(name + "/.*");
  }
  slept.seconds = 0;
  run_pipeline(job_with(job.text(out, 1), pipelined(parts, schedule) + stages(patterns)), stage_count,
               made_vectors(48));
  const double step = std::chrono::duration<double>(slept.last - slept.first).count();
  return 1 - slept.seconds / (step * stage_count);
}

TEST(PipelineBubbleTest, ItIsThatOfTheFormulaWithinATenth) {
  for (const char* schedule : {"ONE_F_ONE_B", "GPIPE"})
    for (const auto& [count, parts] : {std::pair(4, 8), std::pair(4, 4), std::pair(2, 4)})
      in_some_attempt([&] {
        const double formula = bubble_share(count, parts), measured = measured_bubble(count, parts, schedule);
        std::printf("%s, %d stages, %d micro-batches: bubble %.4f, by the formula %.4f\n", schedule, count,
                    parts, measured, formula);
        EXPECT_NEAR(measured, formula, 0.1 * formula);
      });
}

}  // namespace
}  // namespace braid::worker
