// The policy of a cache of rows against a plain model of it: which rows are here, how old, and what goes.
#include "ps/client/cache_plan.h"

#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <set>

namespace braid::ps {
namespace {

constexpr auto kNone = CachePlan::kNone;

/// A step that names `keys` of table 0 and is over at once.
std::vector<CachePlan::Place> step_of(CachePlan& plan, std::uint64_t step, std::vector<std::int64_t> keys) {
  std::vector<CachePlan::Place> places;
  for (const std::int64_t key : keys) places.push_back(plan.use(0, key, step));
  for (const CachePlan::Place& place : places)
    if (place.slot != kNone) plan.release(place.slot);
  return places;
}

TEST(CachePlanTest, ARowIsHereFromItsFirstUseAndKnowsItsLastOne) {
  CachePlan plan(4, std::nullopt);
  EXPECT_FALSE(step_of(plan, 0, {7})[0].hit);
  const auto second = step_of(plan, 3, {7, 8});
  EXPECT_TRUE(second[0].hit);
  EXPECT_EQ(second[0].known, 1U) << "the step before, and one";
  EXPECT_FALSE(second[1].hit);
  EXPECT_EQ(step_of(plan, 9, {7})[0].known, 4U);
  EXPECT_FALSE(plan.use(1, 7, 10).hit) << "another table's";
  EXPECT_EQ(plan.counts().hits, 2U);
  EXPECT_EQ(plan.counts().misses, 3U);
}

TEST(CachePlanTest, TheRowThatWasUsedLongestAgoGoes) {
  CachePlan plan(3, std::nullopt);
  step_of(plan, 0, {1, 2, 3});
  step_of(plan, 1, {1, 3});
  step_of(plan, 2, {4});
  EXPECT_EQ(plan.counts().evictions, 1U);
  const auto places = step_of(plan, 3, {1, 3, 4});
  for (const auto& place : places) EXPECT_TRUE(place.hit);
  EXPECT_FALSE(step_of(plan, 4, {2})[0].hit);
}

TEST(CachePlanTest, WhatAStepUnderWayHoldsStays) {
  CachePlan plan(2, std::nullopt);
  const auto first = plan.use(0, 1, 0), second = plan.use(0, 2, 0);
  EXPECT_EQ(plan.use(0, 3, 1).slot, kNone) << "no slot is free";
  EXPECT_EQ(plan.counts().uncached, 1U);
  const auto again = plan.use(0, 1, 1);
  EXPECT_TRUE(again.hit);
  plan.release(first.slot);
  plan.release(second.slot);
  const auto third = plan.use(0, 3, 2);
  EXPECT_EQ(third.slot, second.slot) << "the next step still holds the other";
}

TEST(CachePlanTest, ABoundedRowIsPulledAgainWhenItIsTooOld) {
  CachePlan plan(4, 2);
  step_of(plan, 10, {5});
  EXPECT_TRUE(step_of(plan, 11, {5})[0].hit);
  EXPECT_TRUE(step_of(plan, 12, {5})[0].hit) << "use does not make it younger, and 2 steps are allowed";
  EXPECT_FALSE(step_of(plan, 13, {5})[0].hit);
  EXPECT_TRUE(step_of(plan, 15, {5})[0].hit) << "it was pulled in step 13";
  EXPECT_EQ(plan.counts().expired, 1U);
  EXPECT_EQ(plan.counts().largest_age, 2U);
}

/// With a list of rows by use in the place of the plan's slots.
TEST(CachePlanTest, RandomStepsAreAsAModelOfThem) {
  for (const std::int64_t slots : {16, 17, 40, 200}) {
    for (const std::int64_t keys : {20, 60, 1000}) {
      CachePlan plan(slots, std::nullopt);
      std::mt19937_64 random(static_cast<std::uint64_t>(slots * 1000 + keys));
      std::list<std::int64_t> model;  // newest first
      std::map<std::int64_t, std::uint32_t> slot_of;
      for (std::uint64_t step = 0; step < 300; ++step) {
        std::set<std::int64_t> batch;
        for (int i = 0; i < 16; ++i) {
          const std::int64_t a = static_cast<std::int64_t>(random() % keys);
          batch.insert(random() % 2 == 0 ? a : a % 7 - (std::int64_t{1} << 62));
        }
        std::vector<CachePlan::Place> places;
        for (const std::int64_t key : batch) {
          const auto at = std::find(model.begin(), model.end(), key);
          const auto place = places.emplace_back(plan.use(0, key, step));
          ASSERT_EQ(place.hit, at != model.end()) << "step " << step << ", key " << key;
          ASSERT_NE(place.slot, kNone);
          if (at != model.end()) {
            ASSERT_EQ(place.slot, slot_of.at(key));
            model.erase(at);
          } else if (std::ssize(model) == slots) {
            slot_of.erase(model.back());
            model.pop_back();
          }
          model.push_front(key);
          slot_of[key] = place.slot;
        }
        for (const auto& place : places) plan.release(place.slot);
      }
      std::set<std::uint32_t> different;
      for (const auto& [key, slot] : slot_of) different.insert(slot);
      EXPECT_EQ(different.size(), slot_of.size()) << "two rows in one slot";
      EXPECT_EQ(plan.used(), std::ssize(model));
    }
  }
}

}  // namespace
}  // namespace braid::ps
