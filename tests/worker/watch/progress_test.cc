// A bar on a real pseudo-terminal, as a person sees it: replayed through tests/worker/watch/terminal.h.
#include "worker/watch/progress.h"

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <regex>

#include "base/log.h"
#include "tests/support/message_of.h"
#include "tests/worker/watch/terminal.h"

namespace braid::worker {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// What `program` writes to a terminal of so many columns, in a process of its own.
std::string on_terminal(int columns, const std::function<void()>& program, const char* type = "xterm") {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", type, 1);
    set_log_level(LogLevel::Info);
    program();
    std::fflush(stderr);
    ::_exit(0);
  }
  EXPECT_GT(child, 0);
  std::string bytes;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(terminal, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;  // EIO: the child has ended
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(terminal);
  return bytes;
}

/// 40 steps with a line of the log after every eighth, an evaluation, and a log line of two pieces.
void train() {
  Progress progress(progress_mode(), 0, 40, 1e-9);
  for (std::uint64_t step = 0; step < 40; ++step) {
    progress.update(step, 0.6931 - 0.001 * static_cast<double>(step), 128,
                    0.01 * static_cast<double>(step + 1));
    if (step % 8 == 3) log_info("note {}", step);
    if (step == 20) progress.set_metric("auc", 0.61234);
  }
  progress.finish();
  log_info("the end");
}

bool is_bar(const std::string& row) { return row.find('%') != std::string::npos; }

class BarTest : public ::testing::TestWithParam<int> {};

TEST_P(BarTest, FitsAndLeavesNoStaleOrBrokenLine) {
  const std::string bytes = on_terminal(GetParam(), train);
  Terminal terminal(GetParam());
  terminal.write(bytes);
  EXPECT_EQ(terminal.wraps(), 0) << bytes;
  std::vector<std::string> notes, bars, others;
  for (const std::string& row : terminal.rows())
    (is_bar(row) ? bars : row.find(" info ") != std::string::npos ? notes : others).push_back(row);
  ASSERT_THAT(bars, SizeIs(1)) << bytes;
  EXPECT_THAT(bars[0], AllOf(HasSubstr("100%"), HasSubstr("0:00 left"), HasSubstr("loss 0.6541")));
  EXPECT_THAT(others, Each(IsEmpty()));
  ASSERT_THAT(notes, SizeIs(6)) << bytes;
  const std::regex whole(R"(\d\d:\d\d:\d\d\.\d\d\d info (note \d+|the end))");
  for (const std::string& note : notes) EXPECT_TRUE(std::regex_match(note, whole)) << note;
  EXPECT_TRUE(terminal.has_seen_colour());
}

/// At any time the bar is one row, the last one.
TEST_P(BarTest, IsTheLastLineAllTheTime) {
  const std::string bytes = on_terminal(GetParam(), train);
  Terminal terminal(GetParam());
  for (const char byte : bytes) {
    terminal.write({&byte, 1});
    const std::vector<std::string> rows = terminal.rows();
    const std::size_t above = rows.size() - 1;
    for (std::size_t r = above < 3 ? 0 : above - 3; r < above; ++r)
      ASSERT_TRUE(!is_bar(rows[r]) || (r + 1 == above || rows[r].find("100%") != std::string::npos))
          << rows[r];
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, BarTest, ::testing::Values(40, 60, 80, 120, 200));

TEST(ProgressTest, WithoutColourThereAreNoEscapeCodesOfIt) {
  const std::string bytes = on_terminal(80, [] {
    ::setenv("NO_COLOR", "1", 1);
    train();
  });
  EXPECT_THAT(bytes, Not(HasSubstr("\x1b[3"))) << bytes;
  EXPECT_THAT(bytes, HasSubstr("\x1b[K"));
}

TEST(ProgressTest, ADumbTerminalHasPlainLinesWithTheTime) {
  const std::string bytes = on_terminal(
      80,
      [] {
        Progress progress(progress_mode(), 0, 2, 0);
        progress.update(0, 0.5, 10, 1);
        progress.update(1, 0.25, 10, 2);
      },
      "dumb");
  EXPECT_THAT(bytes, Not(HasSubstr("\x1b")));
  EXPECT_TRUE(std::regex_search(
      bytes,
      std::regex(
          R"(^\d\d:\d\d:\d\d step 1/2 \(50%\)  loss 0\.5000  10 examples/s  0:0\d elapsed  0:0\d left\r\n)")))
      << bytes;
  EXPECT_THAT(bytes, HasSubstr("step 2/2 (100%)  loss 0.2500  10 examples/s"));
}

TEST(ProgressTest, AnErrorGoesBelowTheBar) {
  const std::string bytes = on_terminal(80, [] {
    try {
      Progress progress(progress_mode(), 0, 9, 0);
      progress.update(0, 0.5, 10, 1);
      throw 1;
    } catch (int) {
      std::fputs("it failed\n", stderr);
    }
  });
  Terminal terminal(80);
  terminal.write(bytes);
  ASSERT_THAT(terminal.rows(), SizeIs(3));
  EXPECT_EQ(terminal.rows()[1], "it failed");
}

TEST(ProgressTest, LoadingIsShownAndGone) {
  const std::string bytes = on_terminal(50, [] {
    LoadingProgress progress(ProgressMode::Bar, "train_files: 3 files, 127.3 MiB");
    ::usleep(210000);
    progress.update(1234567);
    log_info("in between");
  });
  EXPECT_THAT(bytes, HasSubstr("loading train_files: 3 files, 127.3 MiB  1,234,5")) << "cut off, not wrapped";
  Terminal terminal(50);
  terminal.write(bytes);
  EXPECT_EQ(terminal.wraps(), 0);
  ASSERT_THAT(terminal.rows(), SizeIs(2));
  EXPECT_THAT(terminal.rows()[0], HasSubstr("info in between"));
  EXPECT_EQ(terminal.rows()[1], "");
}

TEST(ProgressTest, ANarrowerTerminalGetsANarrowerLine) {
  const std::string bytes = on_terminal(120, [] {
    Progress progress(ProgressMode::Bar, 0, 9, 1e-9);
    progress.update(0, 0.5, 10, 1);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = 40;
    ::ioctl(STDERR_FILENO, TIOCSWINSZ, &size);
    log_info("narrow");
    progress.update(1, 0.5, 10, 2);
  });
  const std::string narrow = bytes.substr(bytes.find("narrow"));
  Terminal terminal(40);
  terminal.write(narrow);
  EXPECT_EQ(terminal.wraps(), 0) << narrow;
  EXPECT_THAT(narrow, HasSubstr("22%"));
}

TEST(ProgressTest, OtherVariablesAreRefused) {
  ::setenv("BRAID_PROGRESS", "fancy", 1);
  EXPECT_THAT(message_of([] { progress_mode(); }), HasSubstr("known are bar, lines, off"));
  ::unsetenv("BRAID_PROGRESS");
}

TEST(ProgressLineTest, NarrowLinesLackTheLeastImportantParts) {
  const ProgressState state{450, 1000, 0.43214, "auc 0.6123", 128981, 62, 76};
  EXPECT_EQ(progress_line(state, 8, false), " 45%");
  EXPECT_EQ(progress_line(state, 30, false), " 45%  loss 0.4321  1:16 left");
  EXPECT_EQ(progress_line(state, 39, false), " 45% [###.....]  loss 0.4321  1:16 left");
  EXPECT_EQ(progress_line(state, 59, false), " 45% [#######.........]  loss 0.4321  auc 0.6123  1:16 left");
  EXPECT_EQ(progress_line(state, 79, false),
            " 45% [#######.........]  loss 0.4321  auc 0.6123  128,981 examples/s  1:16 left");
  EXPECT_EQ(progress_line(state, 119, false),
            " 45% [#############.................]  450/1000  loss 0.4321  auc 0.6123  128,981 examples/s  "
            "1:02 elapsed  1:16 left");
  for (int columns = 8; columns < 200; ++columns)
    EXPECT_LE(progress_line(state, columns, false).size(), static_cast<std::size_t>(columns));
}

TEST(ProgressLineTest, NumbersAreShortForAnyValue) {
  EXPECT_THAT(progress_line({1, 2, 123456789.0, "", 1e9, 4e5, 1e12}, 200, false),
              AllOf(HasSubstr("loss 1.23e+08"), HasSubstr("1,000,000,000 examples/s"),
                    HasSubstr("111:06:40 elapsed")));
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(133483725), "127.3 MiB");
}

}  // namespace
}  // namespace braid::worker
