// A whole job on a pseudo-terminal, as a person sees it, and the numbers that it ends with.
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/cli/tool_test.h"
#include "tests/integration/run.h"
#include "tests/worker/watch/terminal.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Evaluations between the steps, which write lines.
Job generated() {
  return Job{"wide_deep_generated.pbtxt",
             "",
             {"runtime.intra_op_threads=1", "runtime.device=CPU", "epochs=0", "steps=120", "streams.count=1",
              "input.generator.rows=4000", "input.generator.test_rows=4000", "evaluation.every_steps=20",
              "evaluation.batch_size=8", "evaluation.metrics=AUC", "metrics.progress_seconds=1e-6"}};
}

std::string on_terminal(int columns, const std::vector<std::string>& command) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("BRAID_PROGRESS");
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  std::string bytes;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(terminal, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(buffer, static_cast<std::size_t>(got));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << bytes;
  ::close(terminal);
  return bytes;
}

class TerminalTest : public ::testing::TestWithParam<int> {};

TEST_P(TerminalTest, OneBarIsLeftAndEachLineOfTheLogIsWhole) {
  const std::string bytes = on_terminal(GetParam(), braid(generated().arguments()));
  // What is wider than the terminal, the table and the result, is written below the bar and may wrap.
  Terminal terminal(GetParam());
  terminal.write(bytes);
  int bars = 0, evaluations = 0;
  for (const std::string& row : terminal.rows()) {
    if (row.find("% [") != std::string::npos) {
      ++bars;
      EXPECT_THAT(row, AllOf(HasSubstr("100% ["), HasSubstr("0:00 left"))) << bytes;
    }
    if (row.find("info step ") == std::string::npos) continue;
    ++evaluations;
    EXPECT_TRUE(std::regex_match(row, std::regex(R"(\d\d:\d\d:\d\d\.\d{3} info step \d+: auc 0\.\d{4})")))
        << row;
  }
  EXPECT_EQ(bars, 1) << bytes;
  EXPECT_EQ(evaluations, 6) << bytes;
}

INSTANTIATE_TEST_SUITE_P(Columns, TerminalTest, ::testing::Values(40, 60, 80, 120, 200));

class NumbersTest : public IntegrationTest {};

TEST_F(NumbersTest, TableProgressAndResultAreOfTheSameSteps) {
  const auto process = run("train", generated().arguments());
  ASSERT_EQ(process->exit_code(), 0) << process->err();
  const std::string out = process->out(), err = process->err();
  const std::string mark = "result: ";
  const auto result = nlohmann::json::parse(out.substr(out.rfind(mark) + mark.size()));

  std::smatch match;
  std::string table = out;
  int streams = 0;
  for (const std::regex row(R"(\n(\w+) +([\d.]+) +([\d.]+)%)"); std::regex_search(table, match, row);
       table = match.suffix(), ++streams)
    EXPECT_LE(std::stod(match[3]), 100.5) << match[1] << " is busy for longer than the run\n" << out;
  EXPECT_GE(streams, 1) << out;

  std::string rate;
  for (std::string text = err; std::regex_search(text, match, std::regex(R"(([\d,]+) examples/s)"));
       text = match.suffix())
    rate = match[1];
  std::erase(rate, ',');
  EXPECT_NEAR(std::stod(rate) / result["examples_per_second"].get<double>(), 1, 0.05) << err << out;
}

TEST_F(NumbersTest, LinesHaveTheTimeOfDay) {
  const auto process = run("train", generated().arguments());
  EXPECT_TRUE(std::regex_search(
      process->err(), std::regex(R"(\n\d\d:\d\d:\d\d step 120/120 \(100%\)  loss [\d.]+  auc 0\.\d+  )")))
      << process->err();
}

}  // namespace
}  // namespace braid::integration
