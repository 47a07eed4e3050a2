// `braid doctor`: what this machine has for Braid, what is missing, and what to type; `braid doctor ADDR`:
// what limits a running job (watch/rules.h).
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/watched_job.h"
#include "watch/top_view.h"

namespace braid::cli {
namespace {

struct DoctorOptions {
  std::vector<std::string> roles;
  std::string directory = ".";
  bool json = false;
  WatchedFlags watched;
  double seconds = 6;
};

struct Role {
  const char* name;
  const char* what;
};
constexpr std::array<Role, 4> kRoles{{{"train", "train on CPUs"},
                                      {"cuda", "train on NVIDIA GPUs"},
                                      {"nccl", "all-reduce between GPUs"},
                                      {"mpi", "start with mpirun"}}};

bool is_needed(const Finding& finding, const std::vector<std::string>& roles) {
  return std::any_of(roles.begin(), roles.end(), [&](const std::string& role) {
    return std::find(finding.needed_for.begin(), finding.needed_for.end(), role) != finding.needed_for.end();
  });
}

std::string word_of(const Finding& finding, bool needed) {
  switch (finding.state) {
    case Finding::State::Good:
      return "ok";
    case Finding::State::Poor:
      return "low";
    case Finding::State::Missing:
      break;
  }
  return needed ? "MISSING" : "absent";
}

void print_text(const std::vector<Finding>& findings, const std::vector<std::string>& roles) {
  for (const Finding& finding : findings) {
    const bool needed = is_needed(finding, roles);
    fmt::print("{:<8} {:<14} {}\n", word_of(finding, needed), finding.name, finding.found);
    if (finding.state != Finding::State::Good && !finding.advice.empty())
      fmt::print("{:<23} -> {}\n", "", finding.advice);
  }
}

void print_json(const std::vector<Finding>& findings, const std::vector<std::string>& roles, bool good) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json check{{"name", finding.name},
                                 {"state", finding.state == Finding::State::Good   ? "ok"
                                           : finding.state == Finding::State::Poor ? "low"
                                                                                   : "missing"},
                                 {"needed", is_needed(finding, roles)},
                                 {"found", finding.found}};
    if (finding.state != Finding::State::Good && !finding.advice.empty()) check["advice"] = finding.advice;
    checks.push_back(std::move(check));
  }
  const nlohmann::ordered_json json{
      {"version", BRAID_VERSION}, {"for", roles}, {"ok", good}, {"checks", checks}};
  fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Of a running job. A peer that stands still is known by its silence, so it is asked more than once.
int examine_job(const DoctorOptions& options) {
  constexpr std::chrono::milliseconds kAnswer{1000};
  WatchedJob job(options.watched);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(static_cast<std::int64_t>(1000 * options.seconds));
  watch::JobStatus now = job.ask_all(kAnswer);
  const auto all_answer = [&] {
    return std::all_of(now.peers.begin(), now.peers.end(), [](const watch::Peer& p) { return p.answers(); });
  };
  while (!all_answer() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    now = job.ask(kAnswer);
  }
  const auto answering = std::count_if(now.peers.begin(), now.peers.end(),
                                       [](const watch::Peer& peer) { return peer.answers(); });
  if (answering == 0) {
    const watch::Peer& first = now.peers.front();
    throw Unavailable("nobody answers: " + first.address + ": " + first.error);
  }
  if (options.json) {
    fmt::print("{}\n", to_json(now));
  } else {
    for (const watch::Warning& warning : now.warnings)
      fmt::print("{:<13} {}{}\n{:<13} -> {}\n", warning.rule,
                 warning.task.empty() ? "" : watch::plain_text(warning.task) + ": ",
                 watch::plain_text(warning.text), "", watch::plain_text(warning.advice));
    fmt::print("{}{} of {} processes answer.\n",
               now.warnings.empty() ? "No rule finds what limits this job. " : "", answering,
               now.peers.size());
  }
  return now.warnings.empty() ? kExitSuccess : kExitFailed;
}

int run_doctor(const DoctorOptions& options) {
  if (!options.watched.addresses.empty() || !options.watched.cluster.empty()) return examine_job(options);
  const std::vector<std::string> roles =
      options.roles.empty() ? std::vector<std::string>{"train"} : options.roles;
  const std::vector<Finding> findings = examine_machine({.directory = options.directory});
  const auto lacking = std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.state == Finding::State::Missing && is_needed(finding, roles);
  });
  if (options.json) {
    print_json(findings, roles, lacking == 0);
  } else {
    print_text(findings, roles);
    fmt::print("\n{} for: {}.", lacking == 0 ? "Nothing is missing" : fmt::format("{} missing", lacking),
               fmt::join(roles, ", "));
    fmt::print("{}\n", options.roles.empty() ? " `--for cuda,nccl,mpi` asks for more." : "");
  }
  return lacking == 0 ? kExitSuccess : kExitFailed;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* sub = app.add_subcommand(
      "doctor",
      "Look at this machine: compiler, GPU, driver, NCCL, MPI, ports, shared memory, limits, cores, memory "
      "and\n"
      "disk. Says what is missing and what to type. Exit code 1: something that --for needs is missing.\n"
      "With ADDR: what limits a running job, and the setting to change. Exit code 1: something does.");
  std::vector<std::string> names;
  std::string described;
  for (const Role& role : kRoles) {
    names.emplace_back(role.name);
    described += fmt::format("{}{} ({})", described.empty() ? "" : ", ", role.name, role.what);
  }
  sub->add_option("--for", options->roles,
                  "What must work, separated by commas: " + described + "; default: train")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names).description(""));
  sub->add_option("--directory", options->directory, "Where checkpoints will be; its free space is checked")
      ->capture_default_str();
  add_watched_flags(*sub, options->watched);
  sub->add_option("--seconds", options->seconds, "With ADDR: how long a silent process is waited for")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  sub->add_flag("--json", options->json, "Print one JSON object, for bug reports");
  sub->callback([options, &action] { action = [options] { return run_doctor(*options); }; });
}

}  // namespace braid::cli
