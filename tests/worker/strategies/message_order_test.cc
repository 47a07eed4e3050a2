// Proof that ranks do not wait for each other in a circle, with planted faults.
#include "worker/strategies/message_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/message_of.h"
#include "worker/strategies/pipeline_schedule.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Lists = std::vector<std::vector<CommStep>>;

CommStep send(int to, std::string node = "s", std::string values = "float32[4]") {
  return {CommStep::Kind::Send, to, std::move(values), std::move(node), {}};
}
CommStep recv(int from, std::string node = "r", std::string values = "float32[4]") {
  return {CommStep::Kind::Recv, from, std::move(values), std::move(node), {}};
}
CommStep group(std::vector<int> members, std::string values) {
  return {CommStep::Kind::Collective, -1, std::move(values), "sums", std::move(members)};
}
CommStep all(std::string node) { return {CommStep::Kind::Collective, -1, "float32[]", std::move(node), {}}; }

std::string fault_of(const Lists& lists) {
  const std::string message = message_of([&] { check_message_order(lists); });
  return message == "nothing was thrown" ? "" : message;
}

TEST(MessageOrderTest, ListsThatFitAreTaken) {
  EXPECT_EQ(fault_of({{}}), "");
  EXPECT_EQ(fault_of({{send(1), recv(1), all("loss")}, {recv(0), send(0), all("loss")}}), "");
  EXPECT_EQ(fault_of({{send(1), send(2)}, {recv(0), send(2)}, {recv(0), recv(1)}}), "");
}

TEST(MessageOrderTest, FaultsAreNamed) {
  EXPECT_THAT(fault_of({{send(1, "a")}, {send(0, "b")}}),
              AllOf(HasSubstr("wait for each other without end"), HasSubstr("rank 0 sends to rank 1 in 'a'"),
                    HasSubstr("rank 1 sends to rank 0 in 'b'")));
  EXPECT_THAT(fault_of({{recv(1, "a")}, {recv(0, "b")}}), HasSubstr("without end"));
  EXPECT_THAT(fault_of({{send(1, "a")}, {}}), HasSubstr("rank 1 has ended"));
  EXPECT_THAT(fault_of({{send(1), all("loss")}, {recv(0), all("norms")}}), HasSubstr("do not fit together"));
  EXPECT_THAT(fault_of({{send(1, "a", "float32[4]")}, {recv(0, "b", "float32[8]")}}),
              AllOf(HasSubstr("do not fit together"), HasSubstr("float32[8]")));
  EXPECT_THAT(fault_of({{send(0)}, {}}), HasSubstr("no other rank"));
  EXPECT_THAT(fault_of({{send(2)}, {}}), HasSubstr("no other rank"));
  EXPECT_THAT(fault_of({{all("loss")}, {recv(0), all("loss")}}), HasSubstr("without end"));
  // Three in a circle.
  EXPECT_THAT(fault_of({{recv(2), send(1)}, {recv(0), send(2)}, {recv(1), send(0)}}),
              HasSubstr("without end"));
}

/// Stages may have other values, but a stage's workers the same.
TEST(MessageOrderTest, GroupsMeetAtOnePlaceWithValuesOfTheirOwn) {
  const CommStep a = group({0, 2}, "float32[4]"), b = group({1, 3}, "float32[8]");
  EXPECT_EQ(fault_of({{a}, {b}, {a}, {b}}), "");
  EXPECT_THAT(fault_of({{a}, {b}, {group({0, 2}, "float32[5]")}, {b}}),
              AllOf(HasSubstr("do not fit together"), HasSubstr("float32[5]")));
  EXPECT_THAT(fault_of({{a}, {b}, {a}, {a}}), HasSubstr("do not fit together"));
  EXPECT_THAT(fault_of({{a}, {b}, {group({2}, "float32[4]")}, {b}}), HasSubstr("do not fit together"));
  EXPECT_THAT(fault_of({{b}, {a}}), HasSubstr("which is for other ranks"));
  EXPECT_THAT(fault_of({{a}, {b}, {a}}), HasSubstr("with rank 3 of 3"));
}

TEST(MessageOrderTest, TextsAreReadBack) {
  const std::vector<CommStep> steps{send(3, "send/forward0/to3", "float32[2,3] int64[5]"), recv(1),
                                    all("x/y"), group({0, 2}, "float32[4]")};
  EXPECT_EQ(parse_comm_steps(comm_steps_text(steps)), steps);
  EXPECT_EQ(parse_comm_steps(""), std::vector<CommStep>{});
  EXPECT_THAT(message_of([] { parse_comm_steps("?\t1\tx\ty\n"); }), HasSubstr("broken at '?'"));
}

/// Lists of schedules fit. With two neighbours of a list in the other order, or one left out, they stop, or
/// what is left fits as well: of a send and a receive that nothing orders either may be first.
TEST(MessageOrderTest, ListsOfSchedulesFitAndWithoutAMessageTheyDoNot) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int stages = 2 + static_cast<int>(random() % 4);
    const std::int64_t parts = 1 + static_cast<std::int64_t>(random() % 6);
    const auto order = random() % 2 ? PipelineOrder::GPipe : PipelineOrder::OneForwardOneBackward;
    std::vector<StageTimes> times;
    std::vector<StageLink> links;
    for (int s = 0; s < stages; ++s) {
      times.push_back({1.0 + static_cast<double>(random() % 9), 1.0 + static_cast<double>(random() % 9)});
      if (s + 1 < stages) links.insert(links.end(), {{s, s + 1, false}, {s + 1, s, true}});
    }
    Lists lists(static_cast<std::size_t>(stages));
    for (const PipelineMessage& m : simulate_pipeline(order, times, parts, links).messages) {
      const std::string name = std::to_string(m.part) + (m.link.backward ? "b" : "f");
      lists[static_cast<std::size_t>(m.link.from)].push_back(send(m.link.to, name, name));
      lists[static_cast<std::size_t>(m.link.to)].push_back(recv(m.link.from, name, name));
    }
    for (auto& list : lists) list.push_back(all("loss"));
    ASSERT_EQ(fault_of(lists), "");
    auto& list = lists[random() % lists.size()];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size()));
    EXPECT_NE(fault_of(lists), "");
  }
}

}  // namespace
}  // namespace braid::worker
