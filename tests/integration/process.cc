#include "tests/integration/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "launch/file_descriptor.h"

namespace braid::integration {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What says to a process of the product that it is a task of a cluster, or how to run.
bool is_foreign(std::string_view variable) {
  for (const char* prefix :
       {"OMPI_", "PMIX_", "PMI_", "SLURM_", "BRAID_", "TF_CONFIG=", "RANK=", "WORLD_SIZE="})
    if (variable.starts_with(prefix)) return true;
  return false;
}

/// This process's, with `variables` in the place of its own of that name.
std::vector<std::string> environment_with(const Variables& variables) {
  const auto is_given = [&](std::string_view entry) {
    return variables.contains(std::string(entry.substr(0, entry.find('='))));
  };
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_foreign(*entry) && !is_given(*entry)) all.emplace_back(*entry);
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// An empty file, whatever was there.
launch::FileDescriptor create(const std::string& file) {
  launch::FileDescriptor fd(::open(file.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
  EXPECT_TRUE(fd.is_open()) << file;
  return fd;
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const Variables& variables,
                 std::filesystem::path log)
    : log_(std::move(log)) {
  std::filesystem::create_directories(log_.parent_path());
  std::vector<std::string> words = command;
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> arguments = pointers(words), entries = pointers(environment);
  const launch::FileDescriptor out = create(log_.string() + ".out"), err = create(log_.string() + ".err");
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
    if (::getppid() != parent || ::dup2(out.get(), STDOUT_FILENO) < 0 || ::dup2(err.get(), STDERR_FILENO) < 0)
      ::_exit(127);
    ::execvpe(arguments[0], arguments.data(), entries.data());
    ::_exit(127);
  }
  EXPECT_GT(pid_, 0) << "fork";
}

Process::~Process() {
  if (code_) return;
  // SIGTERM first: mpirun takes its ranks along only when it may end by itself.
  signal(SIGCONT);
  signal(SIGTERM);
  if (wait(milliseconds(1500))) return;
  signal(SIGKILL);
  wait(std::chrono::seconds(10));
}

void Process::signal(int number) const {
  if (pid_ <= 0 || code_) return;
  ::kill(pid_, number);
  siginfo_t stopped;
  if (number == SIGSTOP) ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<int> Process::wait(milliseconds limit) {
  for (const auto end = Clock::now() + limit; !code_; std::this_thread::sleep_for(milliseconds(2))) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    else if (Clock::now() >= end)
      break;
  }
  return code_;
}

int Process::exit_code(milliseconds limit) {
  if (const auto code = wait(limit)) return *code;
  ADD_FAILURE() << log_ << " runs after " << limit.count() << " ms:\n" << err() << out();
  signal(SIGKILL);
  wait(std::chrono::seconds(10));
  return -1;
}

std::string Process::out() const { return text_of(log_.string() + ".out"); }
std::string Process::err() const { return text_of(log_.string() + ".err"); }

bool Process::says(std::string_view text, milliseconds limit) {
  for (const auto end = Clock::now() + limit;; std::this_thread::sleep_for(milliseconds(2))) {
    const bool over = Clock::now() >= end || wait(milliseconds(0)).has_value();
    if (err().find(text) != std::string::npos || out().find(text) != std::string::npos) return true;
    if (over) return false;
  }
}

int processes_with(const std::string& text) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string command((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    count += command.find(text) != std::string::npos ? 1 : 0;
  }
  return count;
}

pid_t child_with(pid_t parent, const std::string& text) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text_of(entry.path() / "status").find("\nPPid:\t" + std::to_string(parent) + "\n") ==
        std::string::npos)
      continue;
    if (text_of(entry.path() / "environ").find(text) != std::string::npos) return std::stoi(name);
  }
  return 0;
}

}  // namespace braid::integration
