#include "cli/command_line.h"

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "engine/input/files/remote_files.h"
#include "worker/job/settings.h"
#include "worker/run/finite_loss.h"

namespace braid::cli {
namespace {

/// One line where Kubernetes looks for the reason of a container's end; nothing where there is no such file.
void write_termination_message(const std::string& message) {
  std::fstream out("/dev/termination-log", std::ios::in | std::ios::out | std::ios::ate);  // never made here
  if (out) out << message << "\n";
}

/// What a command line that cannot be read gets to hear: the fault, and where to look next.
std::string usage_error(const CLI::App* app, const CLI::Error& fault) {
  std::string command = app->get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  std::string text = fault.what();
  if (fault.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    std::string subcommands;
    for (const CLI::App* each :
         app->get_subcommands([](const CLI::App* any) { return !any->get_group().empty(); }))
      subcommands += (subcommands.empty() ? "" : ", ") + each->get_name();
    if (!subcommands.empty()) text += "\nThe subcommands of `" + command + "` are " + subcommands + ".";
    if (command == "braid train") text += "\nFields of the job are set by --set, e.g. --set steps=100.";
    if (command == "braid launch")
      text += "\nPut the command of each process after --: braid launch --workers 2 -- train --job FILE.";
  }
  return text + "\n`" + command + " --help` lists the options.\n";
}

/// A standard descriptor that is closed would be the next file's or socket's, and output would go into that.
void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != descriptor)
      std::exit(braid::kExitFailed);  // the lowest that is free is this one
}

std::vector<std::string> own_command_of_process;

/// Behind all that a command has opened.
struct StoresCloser {
  ~StoresCloser() { close_stores(); }
};

void add_subcommands(CLI::App& app, Action& action) {
  add_train(app, action);
  add_launch(app, action);
  add_predict(app, action);
  add_evaluate(app, action);
  add_infer(app, action);
  add_graph(app, action);
  add_data(app, action);
  add_ckpt(app, action);
  add_init(app, action);
  add_doctor(app, action);
  add_devices(app, action);
  add_top(app, action);
  add_trace(app, action);
  add_completion(app, action);
}

/// The code that a command ends with, once what it has printed is written: kExitFailed where that fails. A
/// pipe that nobody reads any more (`| head`) is no failure.
int after_output(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code;
  braid::log_error("standard output cannot be written: {}",
                   errno == 0 ? "an earlier write failed" : std::strerror(errno));
  return code == braid::kExitSuccess ? braid::kExitFailed : code;
}

/// Its exit code; what ends it by an exception is logged.
int run(const Action& action) {
  try {
    if (const auto level = braid::worker::log_level_setting(braid::launch::process_environment()))
      braid::set_log_level(*level);
    return action();
  } catch (const braid::worker::Diverged& e) {
    braid::log_error("{}", e.message());
    write_termination_message(e.message());
    return braid::exit_code_for(e.code());
  } catch (const braid::Error& e) {
    braid::log_error("{}: {}", braid::error_code_name(e.code()), e.message());
    write_termination_message(e.message());
    return braid::exit_code_for(e.code());
  } catch (const std::bad_alloc&) {
    constexpr const char* kText = "out of memory: the machine cannot give a block of the size that is needed";
    braid::log_error("OutOfMemory: {}", kText);
    write_termination_message(kText);
    return braid::kExitFailed;
  } catch (const std::exception&) {
    if (std::ferror(stdout) != 0)
      return braid::kExitSuccess;  // print() ended it: after_output() tells of that
    const braid::ErrorPtr error = braid::capture_current_exception();
    braid::log_error("{}: {}", braid::error_code_name(error->code), error->message);
    write_termination_message(error->message);
    return braid::exit_code_for(error->code);
  }
}

}  // namespace

const std::vector<std::string>& own_command() { return own_command_of_process; }

int run_command_line(int argc, const char* const* argv, std::vector<std::string> own) {
  own_command_of_process = std::move(own);
  open_standard_descriptors();
  const StoresCloser closer;
  CLI::App app(
      "Braid trains ranking and recommendation models over many streams, with parameter servers or "
      "all-reduce.");
  app.name("braid");
  app.set_version_flag("--version", "braid " BRAID_VERSION);
  app.failure_message(usage_error);
  app.footer(
      "`braid <subcommand> --help` describes each. Exit codes: 0 done, 1 failed; do not retry, 2 wrong "
      "configuration or input,\n"
      "138 a peer, server or device was lost; start again with --resume, 143 stopped by SIGTERM after a "
      "checkpoint.");
  Action action;
  add_subcommands(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return after_output(app.exit(e) == 0 ? 0 : braid::kExitBadInput);
  }
  if (!action) {
    const CLI::App* asked = &app;
    while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
    std::fprintf(stderr, "a subcommand is required\n%s", asked->help().c_str());
    return braid::kExitBadInput;
  }
  return after_output(run(action));
}

}  // namespace braid::cli
