// The membership of elastic jobs with a clock of the test's own.
#include "comm/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace braid::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = MembershipEvent::Kind;

constexpr Membership::Time kStart{};

class MembershipTest : public ::testing::Test {
 protected:
  void begin(MembershipLimits limits) { membership_.emplace(limits, "worker 0", now_); }
  /// Two of three listed come, and the leader.
  void begin_with_three() {
    begin({.min_workers = 2, .max_workers = 4, .listed = 3, .first_wait = 100s, .wait = 50s, .silence = 10s});
    come(1);
    come(2);
    membership_->ready(0, 0, {}, now_);
    ASSERT_EQ(worlds().size(), 3U);
  }
  void come(MemberId id) {
    membership_->join(id, "worker " + std::to_string(id));
    membership_->ready(id, 0, {}, now_);
  }
  void pass(std::chrono::milliseconds time) {
    now_ += time;
    membership_->tick(now_);
  }
  std::vector<MembershipEvent> events(Kind kind) {
    std::vector<MembershipEvent> found;
    for (MembershipEvent& event : membership_->take_events())
      if (event.kind == kind) found.push_back(std::move(event));
    return found;
  }
  std::vector<World> worlds() {
    std::vector<World> found;
    for (const MembershipEvent& event : events(Kind::Formed)) found.push_back(event.world);
    return found;
  }

  Membership::Time now_ = kStart;
  std::optional<Membership> membership_;
};

TEST_F(MembershipTest, TheFirstWorldWaitsForAllThatAreListed) {
  begin({.min_workers = 1, .max_workers = 4, .listed = 3, .first_wait = 100s});
  membership_->ready(0, 0, {}, now_);
  come(1);
  pass(99s);
  EXPECT_TRUE(worlds().empty());
  come(2);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 3U);
  EXPECT_THAT(formed[0].names, ElementsAre("worker 0", "worker 1", "worker 2"));
  EXPECT_EQ(formed[0].generation, 1U);
  EXPECT_EQ(formed[0].source, -1) << "nobody has anything yet";
}

TEST_F(MembershipTest, RanksOfTheFirstWorldAreThoseOfTheList) {
  begin({.min_workers = 1, .max_workers = 4, .listed = 3});
  membership_->join(1, "worker 2", 2);
  membership_->join(2, "worker 1", 1);
  membership_->ready(1, 0, {}, now_);
  membership_->ready(2, 0, {}, now_);
  membership_->ready(0, 0, {}, now_);
  EXPECT_THAT(worlds().at(0).names, ElementsAre("worker 0", "worker 1", "worker 2"));
}

TEST_F(MembershipTest, TheFirstWorldDoesWithThoseThatCame) {
  begin({.min_workers = 2, .max_workers = 4, .listed = 3, .first_wait = 100s, .wait = 200s});
  membership_->ready(0, 0, {}, now_);
  come(1);
  pass(100s);
  EXPECT_EQ(worlds().size(), 2U);
}

TEST_F(MembershipTest, ALostWorkerEndsTheWorldForThoseInIt) {
  begin_with_three();
  membership_->leave(1, "killed", false, now_);
  const auto over = events(Kind::Over);
  ASSERT_EQ(over.size(), 2U);
  EXPECT_EQ(over[0].generation, 1U);
  EXPECT_THAT(over[0].text, HasSubstr("worker 1 (killed)"));
  membership_->ready(0, 1, {7, true}, now_);
  EXPECT_TRUE(worlds().empty()) << "worker 2 is still to come";
  membership_->ready(2, 1, {8, true}, now_);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 2U);
  EXPECT_THAT(formed[1].names, ElementsAre("worker 0", "worker 2"));
  EXPECT_EQ(formed[1].rank, 1);
  EXPECT_EQ(formed[1].source, 1) << "it is a step ahead";
  EXPECT_EQ(formed[1].step, 8U);
  EXPECT_TRUE(formed[1].spread);
}

TEST_F(MembershipTest, WorkersThatHaveTheSameNeedNotBeSentIt) {
  begin_with_three();
  membership_->leave(1, "killed", false, now_);
  membership_->ready(0, 1, {7, true}, now_);
  membership_->ready(2, 1, {7, true}, now_);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 2U);
  EXPECT_EQ(formed[0].source, 0);
  EXPECT_FALSE(formed[0].spread);
}

TEST_F(MembershipTest, HalfUpdatedVariablesCountForNothing) {
  begin_with_three();
  membership_->leave(1, "killed", false, now_);
  membership_->ready(0, 1, {9, false}, now_);
  membership_->ready(2, 1, {7, true}, now_);
  EXPECT_EQ(worlds().at(0).source, 1);
  membership_->ready(0, 2, {7, false}, now_);
  membership_->ready(2, 2, {7, false}, now_);
  EXPECT_EQ(worlds().at(0).source, -1);
}

TEST_F(MembershipTest, ASilentWorkerIsLeftBehindAndComesAgain) {
  begin_with_three();
  membership_->ready(0, 1, {5, true}, now_);
  membership_->ready(1, 1, {5, true}, now_);
  pass(9s);
  EXPECT_TRUE(worlds().empty());
  pass(1s);
  auto events = membership_->take_events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, Kind::Refused);
  EXPECT_EQ(events[0].member, 2U);
  EXPECT_EQ(events[1].world.size(), 2);
  membership_->ready(2, 1, {5, true}, now_);
  events = membership_->take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::Refused) << "it is told again, and nothing else happens";
  membership_->leave(2, "comes again", false, now_);
  come(3);
  EXPECT_TRUE(membership_->wants_newcomers());
  membership_->ready(0, 2, {6, true}, now_);
  membership_->ready(1, 2, {6, true}, now_);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 3U);
  EXPECT_THAT(formed[0].names, ElementsAre("worker 0", "worker 1", "worker 3"));
  EXPECT_TRUE(formed[0].spread);
  EXPECT_EQ(formed[0].source, 0);
}

TEST_F(MembershipTest, NewcomersBeyondTheMostWait) {
  begin_with_three();
  come(3);
  EXPECT_TRUE(membership_->wants_newcomers());
  for (const MemberId id : {0, 1, 2}) membership_->ready(id, 1, {4, true}, now_);
  EXPECT_EQ(worlds().size(), 4U);
  come(4);
  EXPECT_FALSE(membership_->wants_newcomers());
  membership_->leave(2, "killed", false, now_);
  for (const MemberId id : {0, 1, 3}) membership_->ready(id, 2, {4, true}, now_);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 4U);
  EXPECT_EQ(formed[0].names[3], "worker 4") << "there is room now";
}

TEST_F(MembershipTest, TooFewEndTheJobAndSayWhoIsMissing) {
  begin_with_three();
  membership_->leave(1, "killed", false, now_);
  membership_->leave(2, "killed too", false, now_);
  membership_->ready(0, 1, {4, true}, now_);
  pass(49s);
  EXPECT_FALSE(membership_->ended());
  pass(1s);
  EXPECT_TRUE(membership_->ended());
  const auto ended = events(Kind::Ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].text,
            "1 of at least 2 workers is there; missing: worker 1 (killed), worker 2 (killed too); waited "
            "50.0 s");
}

TEST_F(MembershipTest, AWorkerThatGoesInOrderBreaksNobodysStep) {
  begin_with_three();
  membership_->leave(2, "asked to stop", true, now_);
  EXPECT_TRUE(events(Kind::Over).empty());
  membership_->ready(0, 1, {4, true}, now_);
  membership_->ready(1, 1, {4, true}, now_);
  EXPECT_EQ(worlds().size(), 2U);
}

TEST_F(MembershipTest, OneThatDiesWhileTheNextWorldIsBuiltEndsThatOneToo) {
  begin_with_three();
  membership_->leave(1, "killed", false, now_);
  membership_->ready(0, 1, {4, true}, now_);
  membership_->ready(2, 1, {4, true}, now_);
  EXPECT_EQ(worlds().size(), 2U);
  come(3);
  membership_->take_events();
  membership_->leave(2, "killed", false, now_);
  EXPECT_EQ(events(Kind::Over).size(), 1U);
  membership_->ready(0, 2, {4, true}, now_);
  const auto formed = worlds();
  ASSERT_EQ(formed.size(), 2U);
  EXPECT_THAT(formed[0].names, ElementsAre("worker 0", "worker 3"));
}

// ---------------------------------------------------------------------------------------- any order of
// things

/// Workers that do and say whatever they like, beside what must hold of what they are told.
class Chaos {
 public:
  explicit Chaos(std::uint32_t seed)
      : random_(seed),
        limits_{.min_workers = pick(1, 3),
                .max_workers = pick(3, 5),
                .listed = pick(1, 4),
                .first_wait = std::chrono::seconds(pick(1, 30)),
                .wait = std::chrono::seconds(pick(20, 60)),
                .silence = std::chrono::seconds(pick(1, 15))},
        membership_(limits_, "worker 0", now_) {
    workers_[0] = {};
  }

  void act() {
    const MemberId id = any_worker();
    switch (pick(0, 9)) {
      case 0:
      case 1:
        workers_[next_] = {};
        membership_.join(next_, "worker " + std::to_string(next_));
        ++next_;
        break;
      case 2:  // a word of another world, or of nobody
        membership_.ready(pick(0, 1) ? id : 9999, static_cast<std::uint64_t>(pick(0, 3)) + generation_ + 1,
                          {1, true}, now_);
        break;
      case 3:
      case 4:
        if (id == 0) break;
        workers_.erase(id);
        membership_.leave(id, "gone", pick(0, 1) == 1, now_);
        if (pick(0, 3) == 0) membership_.leave(id, "twice", false, now_);
        break;
      case 5:
        now_ += std::chrono::seconds(pick(0, 5));
        membership_.tick(now_);
        break;
      default:
        say_ready(id);
    }
    check();
  }

  /// All that live come, and time passes: the job must go on or end.
  void settle() {
    if (membership_.ended()) return;
    say_ready(0);
    for (int i = 0; i < 20 && !membership_.ended() && membership_.gathering(); ++i) {
      if (const auto next = membership_.next_deadline(now_)) now_ = *next;
      membership_.tick(now_);
      check();
    }
    EXPECT_TRUE(membership_.ended() || !membership_.gathering()) << membership_.describe(now_);
  }
  std::uint64_t generation() const { return generation_; }
  bool ended() const { return membership_.ended(); }

 private:
  struct Worker {
    std::uint64_t in = 0;  // the world's generation
    int rank = -1;
    bool said = false;     // that it waits
    bool refused = false;  // it may not know yet
    Holding holding = {};
  };

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  MemberId any_worker() {
    auto at = workers_.begin();
    std::advance(at, pick(0, static_cast<int>(workers_.size()) - 1));
    return at->first;
  }
  void say_ready(MemberId id) {
    Worker& worker = workers_.at(id);
    if (!worker.said) worker.holding = {static_cast<std::uint64_t>(pick(0, 2)), pick(0, 3) > 0};
    worker.said = true;
    membership_.ready(id, worker.in, worker.holding, now_);
  }

  void check() {
    std::map<MemberId, World> formed;
    for (const MembershipEvent& event : membership_.take_events()) {
      switch (event.kind) {
        case Kind::Formed:
          EXPECT_TRUE(formed.emplace(event.member, event.world).second);
          break;
        case Kind::Refused:
          ASSERT_TRUE(workers_.contains(event.member));
          ASSERT_NE(event.member, 0U) << "the leader decides";
          workers_.at(event.member).refused = true;
          break;
        case Kind::Over:
          ASSERT_TRUE(workers_.contains(event.member));
          EXPECT_EQ(event.generation, workers_.at(event.member).in);
          break;
        case Kind::Ended: {
          const auto there = std::count_if(workers_.begin(), workers_.end(), [](const auto& worker) {
            return worker.second.said && !worker.second.refused;
          });
          EXPECT_LT(there, limits_.min_workers);
        }
      }
    }
    if (!formed.empty()) check_world(formed);
    EXPECT_FALSE(membership_.wants_newcomers() && (membership_.gathering() || membership_.ended()));
  }

  void check_world(const std::map<MemberId, World>& formed) {
    const World& first = formed.begin()->second;
    EXPECT_EQ(first.generation, generation_ + 1);
    generation_ = first.generation;
    EXPECT_GE(first.size(), limits_.min_workers);
    EXPECT_LE(first.size(), limits_.max_workers);
    EXPECT_EQ(static_cast<std::size_t>(first.size()), formed.size());
    ASSERT_TRUE(formed.contains(0));
    EXPECT_EQ(formed.at(0).rank, 0);
    std::set<int> ranks;
    std::vector<std::pair<int, int>> moved;
    std::vector<Holding> holdings(formed.size());
    for (const auto& [id, world] : formed) {
      ASSERT_TRUE(workers_.contains(id)) << "who is gone is in no world";
      Worker& worker = workers_.at(id);
      EXPECT_TRUE(worker.said) << "who has not left its world is in no other";
      EXPECT_FALSE(worker.refused);
      EXPECT_EQ(world.names, first.names);
      EXPECT_EQ(world.source, first.source);
      ranks.insert(world.rank);
      if (worker.rank >= 0) moved.emplace_back(worker.rank, world.rank);
      holdings.at(static_cast<std::size_t>(world.rank)) = worker.holding;
      worker = {.in = world.generation, .rank = world.rank, .said = false, .holding = worker.holding};
    }
    EXPECT_EQ(ranks.size(), formed.size());
    EXPECT_EQ(*ranks.rbegin(), first.size() - 1);
    std::sort(moved.begin(), moved.end());
    EXPECT_TRUE(std::is_sorted(moved.begin(), moved.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; }));
    check_source(first, holdings);
  }

  static void check_source(const World& world, const std::vector<Holding>& holdings) {
    for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
      if (holdings[rank].whole) {
        EXPECT_GE(world.source, 0);
        EXPECT_GE(world.step, holdings[rank].step);
        EXPECT_TRUE(world.spread || holdings[rank].step == world.step);
      } else {
        EXPECT_TRUE(world.spread);
        EXPECT_NE(world.source, static_cast<int>(rank));
      }
    }
  }

  std::mt19937 random_;
  Membership::Time now_ = kStart;
  const MembershipLimits limits_;
  Membership membership_;
  std::map<MemberId, Worker> workers_;
  MemberId next_ = 1;
  std::uint64_t generation_ = 0;
};

TEST(MembershipChaosTest, WhateverWorkersDoAWorldIsOneOrTheJobEnds) {
  std::uint64_t worlds = 0;
  int ended = 0;
  for (std::uint32_t seed = 0; seed < 10'000; ++seed) {
    Chaos chaos(seed);
    for (int i = 0; i < 40; ++i) chaos.act();
    chaos.settle();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    worlds += chaos.generation();
    ended += chaos.ended() ? 1 : 0;
  }
  EXPECT_GT(worlds, 20'000U) << "the sequences hardly form worlds";
  EXPECT_GT(ended, 100);
}

}  // namespace
}  // namespace braid::comm
