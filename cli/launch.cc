// `braid launch`: a whole cluster on this host.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "base/error.h"
#include "cli/commands.h"
#include "launch/local_launcher.h"

namespace braid::cli {
namespace {

constexpr double kMostGraceSeconds = 1e7;

struct LaunchCommandOptions {
  launch::LocalLaunchOptions launch;
  double grace_seconds = std::chrono::duration<double>(launch.grace).count();
  bool evaluator = false;
  std::vector<std::string> command;
};

int run_launch(LaunchCommandOptions& options) {
  options.launch.evaluators = options.evaluator ? 1 : 0;
  if (!(options.grace_seconds >= 0 && options.grace_seconds <= kMostGraceSeconds))
    throw InvalidArgument(fmt::format("--grace must be from 0 to {:g} seconds, got {:g}", kMostGraceSeconds,
                                      options.grace_seconds));
  options.launch.grace = std::chrono::milliseconds(static_cast<std::int64_t>(options.grace_seconds * 1000));
  options.launch.environment["BRAID_LOG_ROLE"] = "off";  // the launcher says whose line it is
  options.launch.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.launch.command.insert(options.launch.command.end(), options.command.begin(), options.command.end());
  return launch::launch_local(options.launch);
}

}  // namespace

void add_launch(CLI::App& app, Action& action) {
  auto options = std::make_shared<LaunchCommandOptions>();
  CLI::App* launch = app.add_subcommand("launch",
                                        "Start a cluster of processes on this host, each running the same "
                                        "braid command line with its own TF_CONFIG.\n"
                                        "Example: braid launch --workers 2 --ps 1 -- train --job "
                                        "examples/jobs/fashion_mnist_cnn.pbtxt --set strategy.kind=PS");
  launch->add_option("--workers", options->launch.workers, "Workers; worker 0 leads unless there is a chief")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  launch->add_option("--ps", options->launch.servers, "Parameter servers")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  launch->add_flag("--chief", options->launch.with_chief, "Also start a chief");
  launch->add_flag("--evaluator", options->evaluator, "Also start an evaluator");
  launch->add_option("--log-dir", options->launch.log_dir,
                     "Also write each task's output to <log-dir>/<task>.log");
  launch
      ->add_option("--grace", options->grace_seconds,
                   "Seconds before remaining tasks are killed, after one failed or after a signal")
      ->capture_default_str();
  launch->add_flag("--keep-going", options->launch.keep_going,
                   "Let the other tasks continue after one failed");
  launch->add_option("COMMAND", options->command, "After --: the subcommand and its arguments")->required();
  launch->callback([options, &action] { action = [options] { return run_launch(*options); }; });
}

}  // namespace braid::cli
