// launch_local with shell scripts as tasks: real processes, pipes and signals.
#include "launch/local_launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/files.h"
#include "launch/cluster_spec.h"
#include "launch/file_descriptor.h"
#include "launch/signal_pipe.h"
#include "tests/launch/expect_refused.h"
#include "tests/support/eventually.h"

namespace braid::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

/// What tasks may take to end: on no machine do they take so long, so what ends within it was not killed at
/// its end. Tasks that do not end by themselves sleep for ten times as long.
constexpr auto kGrace = 60s;

/// A directory of its own for each test, and a launch whose output goes there.
class LocalLauncherTest : public ::testing::Test {
 protected:
  LocalLauncherTest() {
    // A launcher leaves ignored what whoever started the tests had them ignore (nohup, a script's "&").
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
    std::string name = ::testing::TempDir() + "braid_launch_XXXXXX";
    directory_ = ::mkdtemp(name.data());
    out_ =
        FileDescriptor(::open((directory_ / "out").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    err_ =
        FileDescriptor(::open((directory_ / "err").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    options_.workers = 2;
    options_.log_dir = directory_ / "logs";
    options_.grace = kGrace;
    options_.out = out_.get();
    options_.err = err_.get();
    options_.environment["DIR"] = directory_;
  }
  ~LocalLauncherTest() override { std::filesystem::remove_all(directory_); }

  /// `script` is run by sh; $ME is "worker-0" and so on.
  void set_script(const std::string& script) {
    const std::string who =
        R"sh(ME=$(echo "$TF_CONFIG" | sed 's/.*"type":"\([a-z]*\)","index":\([0-9]*\).*/\1-\2/'); )sh";
    options_.command = {"sh", "-c", who + script};
  }
  int launch(const std::string& script) {
    set_script(script);
    return launch_local(options_);
  }
  /// Both workers have made a file of their name and `suffix`.
  bool both_wrote(const std::string& suffix) const {
    return std::filesystem::exists(directory_ / ("worker-0" + suffix)) &&
           std::filesystem::exists(directory_ / ("worker-1" + suffix));
  }
  /// The process that wrote its id to `file` has ended and was waited for.
  static bool is_gone(const std::filesystem::path& file) {
    return ::kill(std::stoi(read_file(file)), 0) != 0 && errno == ESRCH;
  }
  /// The exit code of a process of its own whose output goes to a pipe that nobody reads any more when both
  /// workers are up (have made files ".up"); then does `act` with its id.
  template <class Act>
  int launch_and(Act act) {
    Pipe pipe = make_pipe();
    options_.out = options_.err = pipe.write_end.get();
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      pipe.read_end.reset();
      ::_exit(launch_local(options_));
    }
    pipe.write_end.reset();
    EXPECT_TRUE(eventually([&] { return both_wrote(".up"); }));
    pipe.read_end.reset();
    act(launcher);
    int status = 0;
    ::waitpid(launcher, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string out() const { return read_file(directory_ / "out"); }
  std::string err() const { return read_file(directory_ / "err"); }
  std::string log(const std::string& task) const { return read_file(options_.log_dir / (task + ".log")); }

  std::filesystem::path directory_;
  FileDescriptor out_;
  FileDescriptor err_;
  LocalLaunchOptions options_;
};

/// A process that does not run any more may stay as a zombie when nobody waits for it.
bool running(pid_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/stat");
  std::string id;
  std::string name;
  std::string state;
  return static_cast<bool>(stream >> id >> name >> state) && state != "Z";
}

TEST_F(LocalLauncherTest, AFullDiskUnderALogEndsTheLogAndNotTheJob) {
  std::filesystem::create_directories(options_.log_dir);
  std::filesystem::create_symlink("/dev/full", options_.log_dir / "worker-1.log");
  EXPECT_EQ(launch("echo one; echo two"), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("[launch] [files] cannot write to '" +
                                     (options_.log_dir / "worker-1.log").string() + "'"),
                           HasSubstr("the log ends here"), HasSubstr("[worker 1] two")));
}

TEST_F(LocalLauncherTest, EveryTaskKnowsWhoItIs) {
  options_.with_chief = true;
  options_.servers = 1;
  options_.evaluators = 1;
  ASSERT_EQ(launch(R"(
    echo "$TF_CONFIG"
    case $ME in
      ps-0) touch $DIR/up;;
      *) while [ ! -e $DIR/up ]; do sleep 0.01; done;;
    esac)"),
            0);
  for (const Task& task : {Task{TaskType::Chief, 0}, Task{TaskType::Worker, 0}, Task{TaskType::Worker, 1},
                           Task{TaskType::Ps, 0}, Task{TaskType::Evaluator, 0}}) {
    const std::string name = std::string(job_name(task.type)) + "-" + std::to_string(task.index);
    SCOPED_TRACE(name);
    const ClusterSpec spec = resolve_cluster({{"TF_CONFIG", log(name)}}, {});
    EXPECT_EQ(spec.task, task);
    EXPECT_EQ(spec.tasks().size(), 5u);
    EXPECT_EQ(spec.world, 3);
    EXPECT_THAT(*spec.address(task), HasSubstr("127.0.0.1:"));
  }
}

TEST_F(LocalLauncherTest, TasksShareATokenThatIsAnotherForEachJob) {
  std::set<std::string> tokens;
  for (int job = 0; job < 2; ++job) {
    ASSERT_EQ(launch("echo $BRAID_TOKEN"), 0);
    EXPECT_EQ(log("worker-0"), log("worker-1"));
    EXPECT_EQ(log("worker-0").size(), 65U) << "64 digits";
    tokens.insert(log("worker-0"));
  }
  EXPECT_EQ(tokens.size(), 2U);
  options_.environment["BRAID_TOKEN"] = "the user's own token";
  ASSERT_EQ(launch("echo $BRAID_TOKEN"), 0);
  EXPECT_EQ(log("worker-1"), "the user's own token\n");
}

TEST_F(LocalLauncherTest, StandardOutputIsTheLeadersAndEndsWithItsResult) {
  ASSERT_EQ(launch(R"(
    case $ME in
      worker-0) echo 'step 1'; echo 'result: {"steps": 1}'; echo table >&2;;
      worker-1) sleep 0.3; echo 'result: {}'; printf 'no newline';;
    esac)"),
            0);
  EXPECT_EQ(out(), "step 1\nresult: {\"steps\": 1}\n");
  EXPECT_THAT(err(), AllOf(HasSubstr("[worker 0] table\n"), HasSubstr("[worker 1] result: {}\n"),
                           HasSubstr("[worker 1] no newline\n")));
}

TEST_F(LocalLauncherTest, ResultStaysLastWhereBothOutputsAreOne) {
  options_.err = options_.out;
  ASSERT_EQ(launch("case $ME in worker-0) echo 'result: {}';; *) sleep 0.3; echo late >&2;; esac"), 0);
  EXPECT_EQ(out(), "[worker 1] late\nresult: {}\n");
}

/// Bytes that wait in a pipe.
int unread(const FileDescriptor& pipe) {
  int bytes = 0;
  ::ioctl(pipe.get(), FIONREAD, &bytes);
  return bytes;
}

TEST_F(LocalLauncherTest, OutputThatNobodyReadsHoldsUpNoSignal) {
  const Pipe pipe = make_pipe();
  options_.out = pipe.write_end.get();
  set_script(R"(
    trap 'exec >/dev/null; echo $$ > $DIR/$ME.new; mv $DIR/$ME.new $DIR/$ME; exit 143' TERM
    echo up > $DIR/$ME.up; yes 'a line of output' & wait)");
  std::jthread person([&] {
    EXPECT_TRUE(eventually([&] { return both_wrote(".up"); }));
    // What the launcher keeps is full, too, when its own pipe and those of the tasks are.
    EXPECT_TRUE(
        eventually([&] { return unread(pipe.read_end) >= ::fcntl(options_.out, F_GETPIPE_SZ) - 4096; }));
    std::this_thread::sleep_for(300ms);
    ::kill(::getpid(), SIGTERM);
    EXPECT_TRUE(eventually([&] {
      return both_wrote("") && is_gone(directory_ / "worker-0") && is_gone(directory_ / "worker-1");
    }));
    std::this_thread::sleep_for(kOneRequest + 100ms);
    ::kill(::getpid(), SIGINT);
  });
  const auto start = Clock::now();
  EXPECT_EQ(launch_local(options_), 143);
  EXPECT_LT(Clock::now() - start, kGrace);
  EXPECT_THAT(err(), AllOf(HasSubstr("[launch] asked to stop: passing on signal 15"),
                           ContainsRegex("the output has no reader: dropping the last [0-9]+ bytes")));
}

TEST_F(LocalLauncherTest, EndsOfTasksAreSeenWhileNobodyReads) {
  const Pipe pipe = make_pipe();
  options_.out = pipe.write_end.get();
  options_.grace = 200ms;
  EXPECT_EQ(launch("test $ME = worker-0 || exit 2; head -c 300000 /dev/zero | tr '\\0' '\\n'"), 2);
  EXPECT_THAT(err(), HasSubstr("[launch] worker 1 exited with code 2"));
}

TEST_F(LocalLauncherTest, ASlowReaderGetsEverything) {
  const Pipe pipe = make_pipe();
  ::fcntl(pipe.read_end.get(), F_SETFL, 0);
  options_.out = options_.err = pipe.write_end.get();
  options_.grace = 5s;
  std::string text;
  std::jthread reader([&] {
    std::array<char, 16 * 1024> part;
    while (!text.ends_with("result: end\n")) {
      std::this_thread::sleep_for(1ms);
      const ssize_t got = ::read(pipe.read_end.get(), part.data(), part.size());
      if (got <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(got));
    }
  });
  EXPECT_EQ(launch("yes $ME-abcdefghijklmnopqrstuvwxyz | head -n 40000; echo 'result: end'"), 0);
  reader.join();
  EXPECT_EQ(text.size(), 40'000 * (std::strlen("worker-0-abcdefghijklmnopqrstuvwxyz\n") +
                                   std::strlen("[worker 1] worker-1-abcdefghijklmnopqrstuvwxyz\n")) +
                             std::strlen("[worker 1] result: end\nresult: end\n"));
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    ASSERT_THAT(line, AnyOf("worker-0-abcdefghijklmnopqrstuvwxyz", "result: end", "[worker 1] result: end",
                            "[worker 1] worker-1-abcdefghijklmnopqrstuvwxyz"));
}

TEST_F(LocalLauncherTest, AWriterThatSharesThePipeIsNotMadeNonBlocking) {
  const Pipe pipe = make_pipe();
  options_.out = pipe.write_end.get();
  EXPECT_EQ(launch("echo $ME"), 0);
  EXPECT_EQ(::fcntl(options_.out, F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(LocalLauncherTest, PrefixesCanBeLeftOut) {
  options_.prefix_lines = false;
  ASSERT_EQ(launch("echo $ME >&2"), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("worker-1\n"), Not(HasSubstr("["))));
}

TEST_F(LocalLauncherTest, LongLinesAreNotLost) {
  ASSERT_EQ(launch("test $ME != worker-0 || head -c 300000 /dev/zero | tr '\\0' x"), 0);
  EXPECT_EQ(std::ranges::count(out(), 'x'), 300000);
  EXPECT_EQ(log("worker-0"), std::string(300000, 'x'));
}

TEST_F(LocalLauncherTest, OnATerminalTheLeaderWritesToItItself) {
  const FileDescriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.is_open());
  ASSERT_EQ(::grantpt(terminal.get()) + ::unlockpt(terminal.get()), 0);
  const FileDescriptor user(::open(::ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(user.is_open());
  options_.out = user.get();
  options_.err = user.get();
  ASSERT_EQ(launch(R"(
    case $ME in
      worker-0) [ -t 1 ] && [ -t 2 ] && printf 'bar'; touch $DIR/drawn;;
      *) while [ ! -e $DIR/drawn ]; do sleep 0.01; done; [ -t 1 ] || [ -t 2 ] || echo line;;
    esac)"),
            0);
  // A terminal hands out what was written in parts.
  std::string text;
  char part[256];
  while (!text.ends_with('\n')) {
    const ssize_t got = ::read(terminal.get(), part, sizeof(part));
    ASSERT_GT(got, 0) << text;
    text.append(part, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(text, "bar\r\x1b[K[worker 1] line\r\n");
}

TEST_F(LocalLauncherTest, ServersAreStoppedWhenWorkersAreDone) {
  options_.servers = 2;
  const auto start = Clock::now();
  EXPECT_EQ(launch(R"(
    case $ME in
      ps-0) trap 'echo saved; exit 0' TERM; touch $DIR/up; sleep 600 & wait;;
      ps-1) exec sleep 600;;
      *) while [ ! -e $DIR/up ]; do sleep 0.01; done;;
    esac)"),
            0);
  EXPECT_LT(Clock::now() - start, kGrace);
  EXPECT_EQ(log("ps-0"), "saved\n");
  EXPECT_THAT(err(), Not(HasSubstr("[launch]")));
}

TEST_F(LocalLauncherTest, ServersMayEndWithTheWorkersButNotFail) {
  options_.servers = 1;
  EXPECT_EQ(launch("case $ME in ps-0) exit 143;; *) sleep 0.2;; esac"), 0);
  options_.grace = 100ms;
  EXPECT_EQ(launch("case $ME in ps-0) exit 1;; *) exec sleep 600;; esac"), 1);
  EXPECT_THAT(err(), HasSubstr("[launch] ps 0 exited with code 1"));
}

TEST_F(LocalLauncherTest, FailureIsNamedAndEndsTheOthers) {
  options_.grace = 200ms;
  const auto start = Clock::now();
  EXPECT_EQ(launch("case $ME in worker-1) echo 'bad job' >&2; exit 2;; *) exec sleep 600;; esac"), 2);
  EXPECT_LT(Clock::now() - start, kGrace);
  EXPECT_THAT(
      err(), AllOf(HasSubstr("[worker 1] bad job\n"), HasSubstr("[launch] worker 1 exited with code 2, see "),
                   HasSubstr("worker-1.log; the others get 0.2 s to shut down\n")));
}

TEST_F(LocalLauncherTest, OthersMayEndByThemselvesWithinTheGracePeriod) {
  EXPECT_EQ(launch("case $ME in worker-1) kill -9 $$;; *) sleep 0.3; echo ended; exit 138;; esac"), 138);
  EXPECT_THAT(err(), HasSubstr("[launch] worker 1 was killed by signal 9 (Killed)"));
  EXPECT_EQ(out(), "ended\n");
}

TEST_F(LocalLauncherTest, WhoIgnoresTheSignalIsKilled) {
  options_.grace = 200ms;
  EXPECT_EQ(launch(R"(
    case $ME in
      worker-1) while [ ! -e $DIR/deaf ]; do sleep 0.01; done; exit 1;;
      *) trap '' TERM; touch $DIR/deaf; while :; do sleep 0.05; done;;
    esac)"),
            1);
  EXPECT_THAT(err(), HasSubstr("[launch] worker 0 did not end in time: killing it"));
}

TEST_F(LocalLauncherTest, WhoIsStoppedIsNotWaitedForWhenTheOthersEnd) {
  options_.grace = 600s;
  EXPECT_EQ(launch(R"(
    case $ME in
      worker-1) touch $DIR/there; kill -STOP $$;;
      *) while [ ! -e $DIR/there ]; do sleep 0.01; done; sleep 0.2; exit 138;;
    esac)"),
            138);
  EXPECT_THAT(err(), HasSubstr("[launch] worker 1 is stopped by a signal and cannot end: killing it"));
}

TEST_F(LocalLauncherTest, AShortStopIsNone) {
  options_.grace = 600s;
  EXPECT_EQ(launch(R"(
    case $ME in
      worker-1) (sleep 1; kill -CONT $$) & touch $DIR/there; kill -STOP $$; echo 'went on' >&2; exit 138;;
      *) while [ ! -e $DIR/there ]; do sleep 0.01; done; exit 138;;
    esac)"),
            138);
  EXPECT_THAT(err(), AllOf(HasSubstr("[worker 1] went on"), Not(HasSubstr("cannot end"))));
}

TEST_F(LocalLauncherTest, KeepGoingLetsTheOthersFinish) {
  options_.keep_going = true;
  options_.grace = 50ms;
  EXPECT_EQ(launch("case $ME in worker-1) exit 138;; *) sleep 0.5; echo finished;; esac"), 138);
  EXPECT_EQ(out(), "finished\n");
}

TEST_F(LocalLauncherTest, AskedToStopItLetsWorkersSaveWhileServersStay) {
  options_.servers = 1;
  set_script(R"(
    case $ME in
      ps-0) trap 'exit 0' TERM; echo up > $DIR/ps-0; sleep 600 & wait;;
      *) trap 'sleep 0.2; kill -0 $(cat $DIR/server) && echo saved; exit 143' TERM
         echo up > $DIR/$ME; sleep 600 & wait;;
    esac)");
  options_.command[2] =
      "[ -z \"$DIR\" ] || case $TF_CONFIG in *'type\":\"ps'*) echo $$ > $DIR/server;; esac; " +
      options_.command[2];
  std::jthread person([&] {
    EXPECT_TRUE(eventually([&] {
      return std::filesystem::exists(directory_ / "ps-0") &&
             std::filesystem::exists(directory_ / "worker-0") &&
             std::filesystem::exists(directory_ / "worker-1");
    }));
    ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(launch_local(options_), 143);
  EXPECT_EQ(log("worker-0"), "saved\n");
  EXPECT_EQ(log("worker-1"), "saved\n");
}

TEST_F(LocalLauncherTest, ASignalThatIsSentToTheGroupTooIsOneRequest) {
  set_script(R"(
    trap 'while ! test -e $DIR/asked; do sleep 0.05; done; echo saved; exit 143' TERM
    echo up > $DIR/$ME; sleep 600 & wait)");
  std::jthread scheduler([&] {
    EXPECT_TRUE(eventually([&] { return both_wrote(""); }));
    for (int i = 0; i < 5; ++i) {
      ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(20ms);
    }
    std::ofstream(directory_ / "asked") << "enough";
  });
  EXPECT_EQ(launch_local(options_), 143);
  EXPECT_EQ(log("worker-0"), "saved\n");
  EXPECT_EQ(log("worker-1"), "saved\n");
}

TEST_F(LocalLauncherTest, SecondSignalKills) {
  set_script("trap '' INT TERM; echo up > $DIR/$ME; while :; do sleep 0.05; done");
  std::jthread person([&] {
    EXPECT_TRUE(eventually([&] { return both_wrote(""); }));
    ::kill(::getpid(), SIGINT);
    EXPECT_TRUE(eventually([&] { return err().find("asked to stop:") != std::string::npos; }));
    std::this_thread::sleep_for(kOneRequest + 100ms);
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(launch_local(options_), 138);
}

TEST_F(LocalLauncherTest, WhenItsReaderIsGoneTheJobEndsInOrder) {
  set_script(R"(
    trap 'sleep 0.2; echo saved > $DIR/$ME; exit 143' TERM
    echo up > $DIR/$ME.up; while :; do echo line; sleep 0.05; done)");
  EXPECT_EQ(launch_and([](pid_t) {}), 143);
  EXPECT_EQ(read_file(directory_ / "worker-0"), "saved\n");
  EXPECT_EQ(read_file(directory_ / "worker-1"), "saved\n");
}

TEST_F(LocalLauncherTest, ASignalThatItsReaderGotTooIsNoSecondOne) {
  set_script(R"(
    trap 'sleep 0.2; echo line; echo saved > $DIR/$ME; exit 143' INT
    echo up > $DIR/$ME.up; while :; do sleep 0.05; done)");
  EXPECT_EQ(launch_and([](pid_t launcher) { ::kill(launcher, SIGINT); }), 143);
  EXPECT_EQ(read_file(directory_ / "worker-0"), "saved\n");
  EXPECT_EQ(read_file(directory_ / "worker-1"), "saved\n");
}

TEST_F(LocalLauncherTest, WhatItWasStartedToIgnoreItIgnores) {
  set_script("echo up > $DIR/$ME.up; sleep 0.5");
  ::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(launch_and([](pid_t launcher) { ::kill(launcher, SIGHUP); }), 0);
  ::signal(SIGHUP, SIG_DFL);
}

TEST_F(LocalLauncherTest, ATerminalThatIsClosedEndsTheJobInOrder) {
  FileDescriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::grantpt(terminal.get()) + ::unlockpt(terminal.get()), 0);
  const std::string name = ::ptsname(terminal.get());
  set_script(R"(
    trap 'sleep 0.2; echo saved > $DIR/$ME; exit 143' TERM
    echo up > $DIR/$ME.up; while :; do sleep 0.05; done)");
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    terminal.reset();
    ::setsid();
    options_.out = options_.err = ::open(name.c_str(), O_RDWR);  // becomes the session's
    ::_exit(launch_local(options_));
  }
  EXPECT_TRUE(eventually([&] { return both_wrote(".up"); }));
  terminal.reset();
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 143);
  EXPECT_EQ(read_file(directory_ / "worker-0"), "saved\n");
  EXPECT_EQ(read_file(directory_ / "worker-1"), "saved\n");
}

TEST_F(LocalLauncherTest, NobodyOutlivesTheLauncher) {
  set_script("echo $$ > $DIR/$ME.new; mv $DIR/$ME.new $DIR/$ME; exec sleep 600");
  const pid_t launcher = ::fork();
  if (launcher == 0) ::_exit(launch_local(options_));
  std::vector<pid_t> tasks;
  for (const char* name : {"worker-0", "worker-1"}) {
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory_ / name); }));
    tasks.push_back(std::stoi(read_file(directory_ / name)));
    EXPECT_TRUE(running(tasks.back()));
  }
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (const pid_t task : tasks) EXPECT_TRUE(eventually([&] { return !running(task); }));
}

TEST_F(LocalLauncherTest, WhatATaskLeavesRunningIsEnded) {
  EXPECT_EQ(launch("sleep 600 & echo $! > $DIR/$ME"), 0);
  const pid_t left = std::stoi(read_file(directory_ / "worker-0"));
  EXPECT_TRUE(eventually([&] { return !running(left); }));
}

TEST_F(LocalLauncherTest, BadOptionsAreRefused) {
  options_.command = {"/no/such/program"};
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }),
              EndsWith("cannot run '/no/such/program': No such file or directory"));
  options_.workers = 0;
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("at least one worker"));
  options_.workers = 1;
  options_.evaluators = 2;
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("at most one evaluator"));
  options_.evaluators = 0;
  options_.workers = 100'000;
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("at most 1024 workers"));
  options_.workers = 1;
  for (const auto grace : {std::chrono::milliseconds(-1), std::chrono::milliseconds::max()}) {
    options_.grace = grace;
    EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("the grace period must be from 0"));
  }
  options_.grace = kGrace;
  options_.log_dir = "/dev/null/logs";
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("[launch] logs: "));
  options_.log_dir.clear();
  options_.command.clear();
  EXPECT_THAT(refusal_of([&] { launch_local(options_); }), HasSubstr("no command"));
}

TEST(JobExitCodeTest, WhatCannotBeMendedBeatsWhatMay) {
  const auto code = [](std::vector<ExitStatus> statuses) { return job_exit_code(statuses); };
  const ExitStatus killed{137, SIGKILL};
  EXPECT_EQ(code({}), 0);
  EXPECT_EQ(code({{0}, {0}}), 0);
  EXPECT_EQ(code({{0}, {143}}), 143);
  EXPECT_EQ(code({{143}, {138}}), 138);
  EXPECT_EQ(code({killed, {0}}), 138);
  EXPECT_EQ(code({{138}, {1}}), 1);
  EXPECT_EQ(code({{138}, {1}, {2}}), 2);
  EXPECT_EQ(code({{7}, {1}}), 7);
  EXPECT_EQ(code({killed, {1}}), 1);
  EXPECT_EQ(code({{130, SIGINT}}), 130);
}

}  // namespace
}  // namespace braid::launch
