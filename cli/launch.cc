// `braid launch`: a whole cluster on this host.
#include <fmt/core.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "launch/local_launcher.h"

namespace braid::cli {
namespace {

constexpr double kMostGraceSeconds = 1e7;

struct LaunchCommandOptions {
  launch::LocalLaunchOptions launch;
  double grace_seconds = std::chrono::duration<double>(launch.grace).count();
  bool evaluator = false;
  int max_restarts = 0;
  int min_workers = 0, max_workers = 0;
  std::string hosts;
  std::string ssh;
  CLI::Option* workers = nullptr;
  std::vector<std::string> command;
};

/// All slots of the hosts are for workers where nobody says how many.
void read_hosts(LaunchCommandOptions& options) {
  launch::LocalLaunchOptions& launch = options.launch;
  if (options.hosts.empty()) {
    if (!options.ssh.empty() || launch.first_port > 0)
      throw InvalidArgument("--ssh and --first-port are for --hosts");
    return;
  }
  if (launch.watch_port > 0) throw InvalidArgument("--watch-port is for one host; --watch finds ports");
  launch.hosts = launch::parse_host_file(read_file(options.hosts), options.hosts);
  if (options.workers->count() == 0) {
    launch.workers = launch.with_chief ? -1 : 0;
    for (const launch::Host& host : launch.hosts) launch.workers += host.slots;
  }
  if (!options.ssh.empty()) {
    std::istringstream words(options.ssh);
    launch.ssh.clear();
    for (std::string word; words >> word;) launch.ssh.push_back(word);
    if (launch.ssh.empty()) throw InvalidArgument("--ssh: no program");
  }
}

/// A file that can be executed, found as a shell finds it.
bool is_program(const std::string& word) {
  if (word.find('/') != std::string::npos) return ::access(word.c_str(), X_OK) == 0;
  std::istringstream path(env_string("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');)
    if (::access((std::filesystem::path(folder) / word).c_str(), X_OK) == 0) return true;
  return false;
}

/// Says to each task how many workers the job needs and takes.
void make_elastic(LaunchCommandOptions& options, bool is_subcommand) {
  options.launch.elastic = options.min_workers > 0 || options.max_workers > 0;
  if (!options.launch.elastic) return;
  if (!is_subcommand || options.command.front() != "train")
    throw InvalidArgument(
        "--min-workers and --max-workers are for braid launch ... -- train; a program sets strategy.elastic "
        "in its job");
  const auto add = [&](const char* field, int value) {
    if (value == 0) return;
    options.launch.command.push_back("--set");
    options.launch.command.push_back(fmt::format("strategy.elastic.{}={}", field, value));
  };
  add("min_workers", options.min_workers);
  add("max_workers", options.max_workers);
}

int run_launch(LaunchCommandOptions& options, bool is_subcommand) {
  options.launch.evaluators = options.evaluator ? 1 : 0;
  options.launch.watch = options.launch.watch || options.launch.watch_port > 0;
  if (!(options.grace_seconds >= 0 && options.grace_seconds <= kMostGraceSeconds))
    throw InvalidArgument(fmt::format("--grace must be from 0 to {:g} seconds, got {:g}", kMostGraceSeconds,
                                      options.grace_seconds));
  options.launch.grace = std::chrono::milliseconds(static_cast<std::int64_t>(options.grace_seconds * 1000));
  read_hosts(options);
  options.launch.environment["BRAID_LOG_ROLE"] = "off";  // the launcher says whose line it is
  options.launch.command = is_subcommand ? own_command() : std::vector<std::string>{};
  if (!is_subcommand && !is_program(options.command.front()))
    throw InvalidArgument("'" + options.command.front() + "' is neither a subcommand of braid nor a program");
  options.launch.command.insert(options.launch.command.end(), options.command.begin(), options.command.end());
  make_elastic(options, is_subcommand);
  int left = options.max_restarts;
  options.launch.restarts = &left;
  for (;;) {
    const int code = launch::launch_local(options.launch);
    // What was asked to stop, or is wrong, would end alike again.
    if (code != kExitPeerLost || left == 0) return code;
    --left;
    std::vector<std::string>& command = options.launch.command;
    if (is_subcommand && options.command.front() == "train") {
      std::erase(command, "--overwrite");
      if (std::find(command.begin(), command.end(), "--resume") == command.end())
        command.push_back("--resume");
    }
    log_warning("the job has lost a process (exit code {}): starting it again, {} of {}", code,
                options.max_restarts - left, options.max_restarts);
  }
}

/// Which tasks there are.
void add_tasks(CLI::App& launch, LaunchCommandOptions& options) {
  options.workers = launch
                        .add_option("--workers", options.launch.workers,
                                    "Workers; worker 0 leads unless there is a chief. With --hosts: as "
                                    "many as there are slots")
                        ->check(CLI::Range(0, std::numeric_limits<int>::max()))
                        ->capture_default_str();
  launch.add_option("--ps", options.launch.servers, "Parameter servers")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  launch.add_flag("--chief", options.launch.with_chief, "Also start a chief");
  launch.add_flag("--evaluator", options.evaluator, "Also start an evaluator");
}

/// Where they run.
void add_hosts(CLI::App& launch, LaunchCommandOptions& options) {
  launch
      .add_option("--hosts", options.hosts,
                  "Start the tasks on these hosts over ssh: a file with lines 'host slots=2'. Program and "
                  "directory are at\nthe same place on all of them; variables of Braid and NCCL go along")
      ->check(CLI::ExistingFile);
  launch.add_option("--ssh", options.ssh,
                    "With --hosts: the program that runs a command on a host, and its arguments; default: "
                    "ssh -o BatchMode=yes -o ConnectTimeout=20");
  launch
      .add_option("--first-port", options.launch.first_port,
                  "With --hosts: the tasks of each host listen on this port and those behind it; default: "
                  "by chance, from 20000 to 28000")
      ->check(CLI::Range(1, 60000));
}

/// Where to look at them.
void add_output(CLI::App& launch, LaunchCommandOptions& options) {
  launch.add_option("--log-dir", options.launch.log_dir,
                    "Also write each task's output to <log-dir>/<task>.log");
  launch.add_flag("--watch", options.launch.watch, "Give each process a page, and say where the job's is");
  launch
      .add_option("--watch-port", options.launch.watch_port,
                  "The same with this port for the job's page, on 127.0.0.1")
      ->check(CLI::Range(1, 65535));
}

/// What happens when one is lost.
void add_losses(CLI::App& launch, LaunchCommandOptions& options) {
  launch
      .add_option("--grace", options.grace_seconds,
                  "Seconds before remaining tasks are killed, after one failed or after a signal")
      ->capture_default_str();
  launch
      .add_option("--min-workers", options.min_workers,
                  "The job is elastic: it goes on without workers that are lost, as long as so many are left")
      ->check(CLI::Range(1, 1024));
  launch
      .add_option("--max-workers", options.max_workers,
                  "The job is elastic: it takes in workers that join it, up to so many")
      ->check(CLI::Range(1, 1024));
  launch.add_flag("--keep-going", options.launch.keep_going, "Let the other tasks continue after one failed");
  launch
      .add_option(
          "--max-restarts", options.max_restarts,
          "Start the job again, with --resume, so often after it has lost a process (exit code 138); of "
          "an elastic job,\nstart the worker again that is lost")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
}

}  // namespace

void add_launch(CLI::App& app, Action& action) {
  auto options = std::make_shared<LaunchCommandOptions>();
  CLI::App* launch =
      app.add_subcommand("launch",
                         "Start a cluster of processes on this host, or on --hosts, each running the same "
                         "braid command line, or the same\nprogram, with its own TF_CONFIG.\n"
                         "Example: braid launch --workers 2 --ps 1 -- train --job "
                         "examples/jobs/fashion_mnist_cnn.pbtxt --set strategy.kind=PS");
  add_tasks(*launch, *options);
  add_hosts(*launch, *options);
  add_output(*launch, *options);
  add_losses(*launch, *options);
  launch
      ->add_option(
          "COMMAND", options->command,
          "After --: the subcommand and its arguments, or a program and its arguments: -- python train.py")
      ->required();
  launch->callback([options, &app, &action] {
    bool is_subcommand = false;
    for (const CLI::App* each : app.get_subcommands({}))
      is_subcommand = is_subcommand || each->get_name() == options->command.front();
    action = [options, is_subcommand] { return run_launch(*options, is_subcommand); };
  });
}

}  // namespace braid::cli
