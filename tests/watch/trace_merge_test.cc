#include "watch/trace_merge.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"

namespace braid::watch {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

/// One slice of all-reduce a step on "comm", and one of work.
std::string made_trace(double epoch, double comm_begin, double comm_end) {
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"pid", 1}, {"name", "process_name"}, {"args", {{"name", "x"}}}});
  int tid = 1;
  for (const char* name : {"compute0", "comm"})
    events.push_back(
        {{"ph", "M"}, {"pid", 1}, {"tid", tid++}, {"name", "thread_name"}, {"args", {{"name", name}}}});
  events.push_back({{"ph", "X"},
                    {"pid", 1},
                    {"tid", 1},
                    {"ts", comm_begin - 5},
                    {"dur", 5},
                    {"cat", "work"},
                    {"name", "matmul"},
                    {"args", {{"step", 3}}}});
  events.push_back({{"ph", "X"},
                    {"pid", 1},
                    {"tid", 2},
                    {"ts", comm_begin},
                    {"dur", comm_end - comm_begin},
                    {"cat", "async"},
                    {"name", "allreduce/0"},
                    {"args", {{"step", 3}}}});
  events.push_back(
      {{"ph", "s"}, {"pid", 1}, {"tid", 1}, {"ts", comm_begin - 1}, {"cat", "event"}, {"id", 1}});
  return Json{{"braid", {{"steady_epoch_us", epoch}}}, {"traceEvents", events}}.dump();
}

TEST(TraceMergeTest, OneClockAProcessEachAndArrowsForward) {
  // The second process' clock is 900 behind, and it comes 20 later.
  const MergedTrace merged = merge_traces(
      {{"worker 0", made_trace(1000, 100, 160), 0}, {"worker 1", made_trace(100, 120, 161), 900}});
  EXPECT_EQ(merged.slices, 4U);
  EXPECT_EQ(merged.arrows, 1U);
  EXPECT_EQ(merged.worst_us, 0);
  const Json json = Json::parse(merged.json);
  std::map<int, std::string> names;
  std::map<std::uint64_t, std::pair<double, double>> arrows;
  std::map<std::uint64_t, int> ids;
  double least = 1e9;
  for (const Json& event : json["traceEvents"]) {
    if (event.value("name", "") == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "X") least = std::min(least, event["ts"].get<double>());
    if (event.value("cat", "") == "job" && event["ph"] == "s") {
      arrows[event["id"]].first = event["ts"];
      EXPECT_EQ(event["pid"], 2) << "it leaves who came last";
    }
    if (event.value("cat", "") == "job" && event["ph"] == "f") arrows[event["id"]].second = event["ts"];
    if (event.value("cat", "") == "event") ++ids[event["id"]];
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{1, "worker 0"}, {2, "worker 1"}}));
  EXPECT_DOUBLE_EQ(least, 0) << "the first slice is at 0";
  ASSERT_EQ(arrows.size(), 1U);
  EXPECT_DOUBLE_EQ(arrows.begin()->second.first, 25) << "120 + 100 + 900 - 1095";
  EXPECT_NEAR(arrows.begin()->second.second, 65, 0.01);
  EXPECT_EQ(ids.size(), 2U) << "arrows inside of processes keep apart";
}

TEST(TraceMergeTest, ClocksThatDisagreeAreSaid) {
  const MergedTrace merged =
      merge_traces({{"worker 0", made_trace(0, 100, 110), 0}, {"worker 1", made_trace(0, 100, 110), 50}});
  EXPECT_EQ(merged.arrows, 0U);
  EXPECT_NEAR(merged.worst_us, 40, 0.1);
}

TEST(TraceMergeTest, WhatIsNoTraceIsRefused) {
  EXPECT_ERROR(merge_traces({{"worker 3", "{}", 0}}), InvalidArgument, HasSubstr("worker 3"));
  EXPECT_ERROR(merge_traces({{"worker 3", R"({"traceEvents": [{"ph": 5}]})", 0}}), InvalidArgument,
               HasSubstr("not the trace"));
}

}  // namespace
}  // namespace braid::watch
