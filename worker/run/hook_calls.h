// One call of a user's hook: a program, or a function of a shared library, with a deadline. Thread rule: one
// thread, which may wait in call() until the deadline.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

namespace braid::worker {

struct HookEvent {
  std::string json;                              // all of it, an object
  std::map<std::string, std::string> variables;  // BRAID_STEP and so on, for programs
};

class HookCall {
 public:
  virtual ~HookCall() = default;
  /// Returns what is wrong, empty when nothing is: it failed, it ran past the deadline, or it could not be
  /// started. `stop`: ends a program at once.
  virtual std::string call(const HookEvent& event, std::chrono::milliseconds deadline,
                           std::stop_token stop) = 0;
};

/// `line` for /bin/sh, with the event in variables and what it prints in the log, up to 64 KiB a call; the
/// job's token is not among its variables. One that runs past its deadline is killed with all that it
/// started. Throws: InvalidArgument when the first word is a plain name that is no command.
std::unique_ptr<HookCall> make_program_hook(const std::string& field, const std::string& line);

/// `int braid_hook(const char* event_json)` of a shared library, 0 when all is well. It runs on a thread of
/// its own; one that runs past its deadline is left alone, and never called again. Throws: InvalidArgument
/// when it cannot be loaded, or has no such function.
std::unique_ptr<HookCall> make_library_hook(const std::string& field, const std::string& file);

/// A line whose only word ends in .so is a library.
std::unique_ptr<HookCall> make_hook(const std::string& field, const std::string& line);

}  // namespace braid::worker
