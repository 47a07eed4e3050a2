// Schedules of pipelines in model time.
#include "worker/strategies/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace braid::worker {
namespace {

constexpr PipelineOrder kOrders[] = {PipelineOrder::GPipe, PipelineOrder::OneForwardOneBackward};

/// Each stage with its neighbours.
std::vector<StageLink> chain(int stages) {
  std::vector<StageLink> links;
  for (int s = 0; s + 1 < stages; ++s) {
    links.push_back({s, s + 1, false});
    links.push_back({s + 1, s, true});
  }
  return links;
}

TEST(PipelineScheduleTest, AStageHasEachTaskOnceAndBackwardBehindForward) {
  for (const PipelineOrder order : kOrders)
    for (const int stages : {1, 2, 3, 4, 7})
      for (const std::int64_t parts : {1, 2, 3, 5, 8, 16})
        for (int stage = 0; stage < stages; ++stage) {
          const auto tasks = tasks_of_stage(order, stage, stages, parts);
          ASSERT_EQ(std::ssize(tasks), 2 * parts);
          std::int64_t forward = 0, backward = 0, most = 0;
          for (const PipelineTask& task : tasks) {
            EXPECT_EQ(task.part, task.backward ? backward++ : forward++);
            EXPECT_LE(backward, forward);
            most = std::max(most, forward - backward);
          }
          EXPECT_EQ(most, parts_in_flight(order, stage, stages, parts));
        }
}

TEST(PipelineScheduleTest, TheBubbleIsThatOfTheFormulaWhereStagesAreEqual) {
  for (const PipelineOrder order : kOrders)
    for (const int stages : {1, 2, 4, 6})
      for (const std::int64_t parts : {1, 2, 4, 8, 32}) {
        const std::vector<StageTimes> times(static_cast<std::size_t>(stages), StageTimes{1, 2});
        const double step = simulate_pipeline(order, times, parts, chain(stages)).step;
        EXPECT_NEAR(1 - 3 * static_cast<double>(parts) / step, bubble_share(stages, parts), 1e-12);
      }
}

TEST(PipelineScheduleTest, OneForwardOneBackwardKeepsFewerPartsThanGPipe) {
  EXPECT_EQ(parts_in_flight(PipelineOrder::GPipe, 0, 4, 16), 16);
  EXPECT_EQ(parts_in_flight(PipelineOrder::OneForwardOneBackward, 0, 4, 16), 4);
  EXPECT_EQ(parts_in_flight(PipelineOrder::OneForwardOneBackward, 3, 4, 16), 1);
}

/// A message comes behind all those that the task which makes it needs, and each link carries parts in order.
TEST(PipelineScheduleTest, MessagesAreInAnOrderThatNoStageHasToLeave) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int stages = 2 + static_cast<int>(random() % 5);
    const std::int64_t parts = 1 + static_cast<std::int64_t>(random() % 8);
    const PipelineOrder order = kOrders[random() % 2];
    std::vector<StageTimes> times;
    for (int s = 0; s < stages; ++s)
      times.push_back({0.1 + static_cast<double>(random() % 50), 0.1 + static_cast<double>(random() % 50)});
    std::vector<StageLink> links = chain(stages);
    for (int from = 0; from < stages; ++from)  // skips
      for (int to = from + 2; to < stages; ++to)
        if (random() % 3 == 0) {
          links.push_back({from, to, false});
          links.push_back({to, from, true});
        }
    const PipelineTimes found = simulate_pipeline(order, times, parts, links);
    ASSERT_EQ(found.messages.size(), links.size() * static_cast<std::size_t>(parts));
    const auto place = [&](const StageLink& link, std::int64_t part) {
      return std::find_if(found.messages.begin(), found.messages.end(),
                          [&](const PipelineMessage& m) { return m.link == link && m.part == part; }) -
             found.messages.begin();
    };
    for (const PipelineMessage& message : found.messages) {
      const auto tasks = tasks_of_stage(order, message.link.from, stages, parts);
      const auto made =
          std::find(tasks.begin(), tasks.end(), PipelineTask{message.link.backward, message.part});
      for (auto task = tasks.begin(); task <= made; ++task)
        for (const StageLink& link : links)
          if (link.to == message.link.from && link.backward == task->backward) {
            EXPECT_LT(place(link, task->part), place(message.link, message.part));
          }
    }
  }
}

}  // namespace
}  // namespace braid::worker
