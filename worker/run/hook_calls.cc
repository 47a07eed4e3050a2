#include "worker/run/hook_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/child_process.h"
#include "launch/file_descriptor.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 64 * 1024;  // of a call, in the log
constexpr std::size_t kLongestLine = 4096;
constexpr std::chrono::milliseconds kHookPoll{50};
constexpr std::chrono::seconds kCheckTime{10};

/// What a program prints, in the log line by line.
class HookOutput {
 public:
  HookOutput(const std::string& field, launch::FileDescriptor source)
      : field_(field), source_(std::move(source)) {}

  /// Waits so long for more; false at the end.
  bool take(std::chrono::milliseconds wait) {
    pollfd ready{source_.get(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(wait.count()));
    std::array<char, 16 * 1024> bytes;
    const ssize_t got = ::read(source_.get(), bytes.data(), bytes.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    add({bytes.data(), static_cast<std::size_t>(got)});
    return got > 0;
  }

  void finish() {
    if (!line_.empty()) emit();
    if (left_out_ > 0) log_warning("{}: {} more bytes of its output are left out", field_, left_out_);
  }

 private:
  void add(std::string_view text) {
    for (const char c : text) {
      if (shown_ >= kMostOutput) {
        ++left_out_;
      } else if (c == '\n' || line_.size() >= kLongestLine) {
        emit();
        if (c != '\n') line_ += c;
      } else {
        line_ += c;
        ++shown_;
      }
    }
  }
  void emit() {
    log_info("{}: {}", field_, line_);
    line_.clear();
  }

  const std::string field_;
  launch::FileDescriptor source_;
  std::string line_;
  std::size_t shown_ = 0, left_out_ = 0;
};

launch::Environment hook_environment(const HookEvent& event) {
  launch::Environment environment = launch::process_environment();
  for (const char* secret : {"BRAID_TOKEN", "BRAID_TOKEN_FILE", "TF_CONFIG"}) environment.erase(secret);
  for (const auto& [name, value] : event.variables) environment[name] = value;
  environment["BRAID_HOOK_EVENT"] = event.json;
  return environment;
}

class ProgramHook final : public HookCall {
 public:
  ProgramHook(std::string field, std::string line) : field_(std::move(field)), line_(std::move(line)) {}

  std::string call(const HookEvent& event, std::chrono::milliseconds deadline,
                   std::stop_token stop) override {
    launch::Pipe pipe = launch::make_pipe();
    launch::ChildCommand command{
        {"/bin/sh", "-c", line_}, hook_environment(event), pipe.write_end.get(), pipe.write_end.get()};
    launch::ChildProcess process(command);
    pipe.write_end.reset();
    HookOutput output(field_, std::move(pipe.read_end));
    const auto end = Clock::now() + deadline;
    bool open = true;
    std::optional<launch::ExitStatus> status;
    while (!(status = process.poll()) && Clock::now() < end && !stop.stop_requested()) {
      if (open)
        open = output.take(kHookPoll);
      else
        std::this_thread::sleep_for(kHookPoll);
    }
    if (!status) process.signal(SIGKILL);
    // Whoever else holds the pipe is not waited for.
    for (const auto last = Clock::now() + kHookPoll; open && Clock::now() < last;)
      open = output.take(std::chrono::milliseconds(10));
    output.finish();
    if (!status)
      return stop.stop_requested()
                 ? "is killed, as the run ends"
                 : fmt::format("is killed after {:g} s, its deadline (hooks.deadline_seconds)",
                               std::chrono::duration<double>(deadline).count());
    return status->code == 0 ? "" : describe_exit(*status);
  }

 private:
  const std::string field_, line_;
};

/// What a library's thread and the caller share; the thread may outlive the hook.
struct LibraryState {
  std::mutex mutex;
  std::condition_variable_any changed;
  int (*function)(const char*) = nullptr;
  std::string event;
  bool asked = false, ended = false, closed = false;
  int code = 0;
  std::string thrown;  // in place of a code
};

void serve_library(const std::shared_ptr<LibraryState>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->asked || state->closed; });
    if (state->closed) return;
    state->asked = false;
    const std::string event = state->event;
    lock.unlock();
    int code = 0;
    std::string thrown;
    try {
      code = state->function(event.c_str());
    } catch (const std::exception& error) {
      thrown = fmt::format("threw: {}", error.what());
    } catch (...) {
      thrown = "threw what is no std::exception";
    }
    lock.lock();
    state->code = code;
    state->thrown = std::move(thrown);
    state->ended = true;
    state->changed.notify_all();
  }
}

class LibraryHook final : public HookCall {
 public:
  explicit LibraryHook(int (*function)(const char*)) {
    state_->function = function;
    std::thread([state = state_] { serve_library(state); }).detach();
  }
  ~LibraryHook() override {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
  }

  std::string call(const HookEvent& event, std::chrono::milliseconds deadline,
                   std::stop_token stop) override {
    if (hangs_) return "still hangs, and is not called";
    std::unique_lock lock(state_->mutex);
    state_->event = event.json;
    state_->asked = true;
    state_->ended = false;
    state_->changed.notify_all();
    if (!state_->changed.wait_for(lock, stop, deadline, [&] { return state_->ended; })) {
      hangs_ = true;
      return fmt::format("has not returned after {:g} s, its deadline, and is not called again",
                         std::chrono::duration<double>(deadline).count());
    }
    if (!state_->thrown.empty()) return state_->thrown;
    return state_->code == 0 ? "" : fmt::format("returned {}", state_->code);
  }

 private:
  const std::shared_ptr<LibraryState> state_ = std::make_shared<LibraryState>();
  bool hangs_ = false;
};

/// A first word that needs no shell to be understood; else empty.
std::string plain_command(const std::string& line) {
  const std::string word = line.substr(0, line.find_first_of(" \t"));
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-' || c == '+';
  });
  return plain ? word : "";
}

bool shell_knows(const std::string& word) {
  const launch::FileDescriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  launch::ChildProcess process({{"/bin/sh", "-c", "command -v -- \"$0\"", word},
                                launch::process_environment(),
                                nowhere.get(),
                                nowhere.get()});
  const auto end = Clock::now() + kCheckTime;
  std::optional<launch::ExitStatus> status;
  while (!(status = process.poll()) && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return !status || status->code == 0;
}

}  // namespace

std::unique_ptr<HookCall> make_program_hook(const std::string& field, const std::string& line) {
  const std::string word = plain_command(line);
  if (!word.empty() && !shell_knows(word))
    throw InvalidArgument(fmt::format("{}: '{}' is no program that can be run", field, word));
  return std::make_unique<ProgramHook>(field, line);
}

std::unique_ptr<HookCall> make_library_hook(const std::string& field, const std::string& file) {
  const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it may run to the end
  if (library == nullptr) throw InvalidArgument(fmt::format("{}: {}", field, ::dlerror()));
  void* function = ::dlsym(library, "braid_hook");
  if (function == nullptr)
    throw InvalidArgument(fmt::format(
        "{}: '{}' has no function extern \"C\" int braid_hook(const char* event_json)", field, file));
  return std::make_unique<LibraryHook>(reinterpret_cast<int (*)(const char*)>(function));
}

std::unique_ptr<HookCall> make_hook(const std::string& field, const std::string& line) {
  const bool is_library = line.ends_with(".so") && line.find_first_of(" \t;&|") == std::string::npos;
  return is_library ? make_library_hook(field, line) : make_program_hook(field, line);
}

}  // namespace braid::worker
