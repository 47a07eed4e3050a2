#include "launch/host_file.h"

#include <gmock/gmock.h>

#include "tests/launch/expect_refused.h"

namespace braid::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(HostFileTest, ReadsHostsSlotsAndComments) {
  const auto hosts = parse_host_file("# two\nnode1 slots=2\n\n  10.0.0.7   # one\n", "hosts");
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].name, "node1");
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[1].name, "10.0.0.7");
  EXPECT_EQ(hosts[1].slots, 1);
}

TEST(HostFileTest, RefusesWithTheLine) {
  const auto refused = [](const char* text, const char* why) {
    EXPECT_THAT(refusal_of([&] { parse_host_file(text, "hosts"); }), HasSubstr(why));
  };
  refused("", "hosts: no host is listed");
  refused("# nobody\n", "no host is listed");
  refused("a\nb slots=0\n", "hosts:2: expected slots=N");
  refused("a slots=2x\n", "got 'slots=2x'");
  refused("a max_slots=2\n", "got 'max_slots=2'");
  refused("-oProxyCommand=x\n", "is no host's name");
  refused("a;reboot\n", "is no host's name");
  refused("a\nb\na\n", "hosts:3: host 'a' is listed twice");
}

TEST(HostFileTest, WorkersFillSlotsAndServersGoAround) {
  const std::vector<Host> hosts{{"a", 2}, {"b", 1}};
  const Placement placed = place_tasks(hosts, {.workers = 3, .servers = 3, .evaluators = 1}, 5000);
  EXPECT_THAT(placed.cluster.worker, ElementsAre(Pair(0, "a:5000"), Pair(1, "a:5001"), Pair(2, "b:5000")));
  EXPECT_THAT(placed.cluster.ps, ElementsAre(Pair(0, "a:5002"), Pair(1, "b:5001"), Pair(2, "a:5003")));
  EXPECT_THAT(placed.cluster.evaluator, ElementsAre(Pair(0, "a:5004")));
  EXPECT_EQ(placed.host_of.at({TaskType::Worker, 2}), "b");
  const Placement chief = place_tasks(hosts, {.workers = 1, .with_chief = true}, 5000);
  EXPECT_THAT(chief.cluster.chief, ElementsAre(Pair(0, "a:5000")));
  EXPECT_THAT(chief.cluster.worker, ElementsAre(Pair(0, "a:5001")));
  EXPECT_THAT(refusal_of([&] { place_tasks(hosts, {.workers = 3, .with_chief = true}, 5000); }),
              HasSubstr("the hosts have 3 slots, fewer than 3 workers and a chief"));
}

}  // namespace
}  // namespace braid::launch
