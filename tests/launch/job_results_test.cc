#include "launch/job_results.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/files.h"

namespace braid::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Task kFirst{TaskType::Worker, 0}, kSecond{TaskType::Worker, 1}, kServer{TaskType::Ps, 0};

std::string result(double loss, int exit = 0) {
  return fmt::format(R"(result: {{"job":"j","steps":10,"last_step":20,"loss":{},"auc":0.7,"examples":640,)"
                     R"("examples_per_second":320.0,"seconds":2.0,"input_wait_seconds":0.5,"exit":{}}})",
                     loss, exit);
}

TEST(JobResultsTest, OneTableAndOneLineOfAllTasks) {
  JobResults results;
  results.add(kFirst, result(0.25));
  results.add(kSecond, result(0.5, 143));
  results.ended(kSecond, {143, 0});
  results.ended(kFirst, {0, 0});
  results.ended(kServer, {0, 0});
  const auto lines = results.last_lines(kFirst, result(0.25));
  ASSERT_EQ(lines.size(), 5U) << "a head, three rows, the result";
  EXPECT_THAT(lines[0], AllOf(HasSubstr("task"), HasSubstr("input wait")));
  EXPECT_EQ(lines[1], "worker 0         0        10        0.25      2.00       5.0       25.0 %");
  EXPECT_THAT(lines[2], HasSubstr("worker 1       143"));
  EXPECT_EQ(lines[3], "ps 0             0");
  ASSERT_TRUE(lines[4].starts_with("result: {"));
  const auto json = nlohmann::json::parse(lines[4].substr(8));
  EXPECT_EQ(json["auc"], 0.7) << "all that the leader said";
  EXPECT_EQ(json["loss"], 0.25);
  ASSERT_EQ(json["tasks"].size(), 2U);
  EXPECT_EQ(json["tasks"][1]["task"], "worker 1");
  EXPECT_EQ(json["tasks"][1]["exit"], 143);
}

TEST(JobResultsTest, OtherProgramsHaveNoTable) {
  JobResults results;
  results.add(kFirst, "result: {}");
  results.add(kFirst, "result: fine");
  results.add(kSecond, "result: {\"loss\": 1}");
  results.add(kSecond, "nothing");
  for (const Task& task : {kFirst, kSecond}) results.ended(task, {0, 0});
  EXPECT_THAT(results.last_lines(kFirst, "result: fine"), ElementsAre("result: fine"));
  EXPECT_TRUE(JobResults().last_lines(kFirst, "").empty());
}

TEST(JobResultsTest, OneWorkerHasNoTable) {
  JobResults results;
  results.add(kFirst, result(0.25));
  results.ended(kFirst, {0, 0});
  results.ended(kServer, {0, 0});
  EXPECT_THAT(results.last_lines(kFirst, result(0.25)), ElementsAre(result(0.25)));
}

TEST(JobResultsTest, ALeaderThatIsNotReadLeavesItsResultInAFile) {
  std::string file;
  {
    JobResults results;
    file = results.own_file();
    EXPECT_EQ(results.own_file(), file);
    write_file_atomically(file, result(0.25).substr(8));
    results.add(kSecond, result(0.5));
    for (const Task& task : {kFirst, kSecond}) results.ended(task, {0, 0});
    const auto lines = results.last_lines(kFirst, "");
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_THAT(lines[1], HasSubstr("worker 0"));
    EXPECT_THAT(lines[3], HasSubstr("\"tasks\":["));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
}

}  // namespace
}  // namespace braid::launch
