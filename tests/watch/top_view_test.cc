#include "watch/top_view.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>

#include "tests/watch/made_job.h"
#include "watch/rules.h"

namespace braid::watch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string without_colour(const std::string& line) {
  return std::regex_replace(line, std::regex("\x1b\\[[0-9]*m"), "");
}

std::string text_of(const TopPicture& picture) {
  std::string text;
  for (const std::string& line : picture.lines) text += line + "\n";
  return text;
}

class TopWidthTest : public ::testing::TestWithParam<int> {};

TEST_P(TopWidthTest, NoLineIsWiderThanTheTerminalNorHoldsOrders) {
  JobStatus job = made_job(3, 1);
  job.peers[1].error = "no answer in time";
  job.peers[1].silent_seconds = 12;
  job.peers[2].status->host = "evil\x1b[2J\nhost";
  job.peers[2].task = "worker 2\x1b]0;title\x07";
  job.warnings = find_warnings(job);
  for (const bool colour : {false, true})
    for (const bool zoomed : {false, true}) {
      TopOptions options;
      options.columns = GetParam();
      options.colour = colour;
      options.zoomed = zoomed;
      options.selected = 2;
      for (const std::string& line : draw_top(job, options).lines) {
        EXPECT_LE(without_colour(line).size(), static_cast<std::size_t>(GetParam())) << line;
        for (const char c : without_colour(line)) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << line;
        EXPECT_TRUE(colour || line.find('\x1b') == std::string::npos);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Columns, TopWidthTest, ::testing::Values(20, 40, 80, 120, 250));

TEST(TopViewTest, ARowAWorkerABarAStreamAndServers) {
  TopOptions options;
  options.columns = 100;
  const TopPicture picture = draw_top(made_job(3, 1), options);
  const std::string text = text_of(picture);
  EXPECT_THAT(
      text, AllOf(HasSubstr("made  step 1234/5000 (25%)"), HasSubstr("loss 0.5000"), HasSubstr("auc 0.7500"),
                  HasSubstr("19.2k examples/s"), HasSubstr("4 of 4 answer")));
  EXPECT_THAT(picture.tasks, ElementsAre("worker 0", "worker 1", "worker 2", "ps 0"));
  EXPECT_EQ(std::count_if(picture.lines.begin(), picture.lines.end(),
                          [](const std::string& line) { return line.starts_with("  compute1"); }),
            3);
  EXPECT_THAT(text, AllOf(HasSubstr("ps 0"), HasSubstr("12.0k/s rows"), HasSubstr("1.20M rows")));
}

TEST(TopViewTest, BarsAreFullOfWhatTheStreamDoes) {
  Stream stream;
  stream.busy = 0.5;
  stream.wait = {{"input", 0.2}, {"comm", 0.1}, {"idle", 0.2}};
  EXPECT_EQ(stream_bar(stream, 10, false), "#####iic..");
  EXPECT_EQ(stream_bar(Stream{}, 4, false), "....");
  stream.busy = 1;
  EXPECT_EQ(stream_bar(stream, 4, false), "####");
}

TEST(TopViewTest, ADeadPeerIsARowThatSaysSo) {
  JobStatus job = made_job(2, 0);
  job.peers[1].error = "Connection refused";
  job.peers[1].silent_seconds = 12;
  TopOptions options;
  options.columns = 100;
  const TopPicture picture = draw_top(job, options);
  EXPECT_THAT(text_of(picture),
              AllOf(HasSubstr("1 of 2 answer"),
                    HasSubstr("worker 1    DEAD? Connection refused, 12 s (127.0.0.1:9001)")));
  EXPECT_EQ(picture.tasks.front(), "worker 1") << "what is wrong stands first";
}

TEST(TopViewTest, SortsFiltersAndZooms) {
  JobStatus job = made_job(12, 0);
  job.peers[7].status->step_seconds = 0.5;
  TopOptions options;
  options.columns = 120;
  EXPECT_THAT(draw_top(job, options).tasks[10], "worker 10") << "by number, not by letters";
  options.sort = TopSort::StepTime;
  EXPECT_EQ(draw_top(job, options).tasks[0], "worker 7");
  options.filter = "worker 1";
  EXPECT_THAT(draw_top(job, options).tasks, ElementsAre("worker 1", "worker 10", "worker 11"));
  options.selected = 0;
  options.zoomed = true;
  EXPECT_THAT(text_of(draw_top(job, options)),
              AllOf(HasSubstr("worker 1 on node1"), HasSubstr("pid 4711"), Not(HasSubstr("worker 10 on"))));
}

TEST(TopViewTest, ManyWorkersHaveALineEachAndScroll) {
  const JobStatus job = made_job(64, 2);
  TopOptions options;
  options.columns = 120;
  options.rows = 24;
  const TopPicture first = draw_top(job, options);
  EXPECT_LE(first.lines.size(), 24U);
  EXPECT_GT(first.most_scroll, 40);
  EXPECT_THAT(text_of(first), AllOf(HasSubstr("worker 0 "), HasSubstr("more lines"), HasSubstr("q quit")));
  options.scroll = first.most_scroll;
  EXPECT_THAT(text_of(draw_top(job, options)), AllOf(HasSubstr("ps 1"), Not(HasSubstr("worker 0 "))));
  options.rows = 0;
  EXPECT_GE(draw_top(job, options).lines.size(), 66U);
}

TEST(TopViewTest, WarningsStandBelowWithTheirAdvice) {
  JobStatus job = made_job(1, 0);
  job.warnings.push_back({"slow_input", "worker 0", "input-bound: 43 %", "try staging.num_threads: 2"});
  TopOptions options;
  options.columns = 60;
  EXPECT_THAT(text_of(draw_top(job, options)),
              HasSubstr("! worker 0: input-bound: 43 % -> try staging.num_threads: 2"));
}

TEST(TopViewTest, AnEmptyJobDraws) {
  TopOptions options;
  EXPECT_THAT(text_of(draw_top(JobStatus{}, options)), HasSubstr("0 of 0 answer"));
}

}  // namespace
}  // namespace braid::watch
