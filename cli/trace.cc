// `braid trace`: a few steps of all workers of a running job in one file, on one clock.
#include <fmt/core.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/http_client.h"
#include "cli/commands.h"
#include "cli/watched_job.h"
#include "comm/transport/security.h"
#include "watch/trace_merge.h"
#include "worker/watch/page_access.h"

namespace braid::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime{3000};
constexpr int kClockLooks = 9;
constexpr double kLeadSeconds = 0.5;  // from asking all of them to the first step of the window

struct TraceFlags {
  WatchedFlags watched;
  int steps = 5;
  std::string out = "trace.json";
  std::string token_file;
  double timeout = 40;
};

struct Traced {
  std::string task, address;
  double clock_us = 0, error_us = 0;
  std::string window;
  bool synchronous = true;
  std::uint64_t step = 0;
  double steps_per_second = 0;
};

double to_us(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

comm::JobToken token_of(const TraceFlags& flags) {
  if (!flags.token_file.empty()) return {read_file(flags.token_file), "--token-file"};
  if (const auto file = env_string("BRAID_TOKEN_FILE")) return {read_file(*file), "BRAID_TOKEN_FILE"};
  if (const auto text = env_string("BRAID_TOKEN")) return {*text, "BRAID_TOKEN"};
  return {};
}

class Tracing {
 public:
  explicit Tracing(const TraceFlags& flags) : flags_(flags), token_(token_of(flags)) {}

  int run() {
    find_workers();
    for (Traced& each : workers_) set_clock(each);
    start();
    const std::vector<watch::ProcessTrace> traces = collect();
    const watch::MergedTrace merged = watch::merge_traces(traces);
    std::ofstream out(flags_.out);
    out << merged.json << '\n';
    if (!out.flush()) throw InvalidArgument("-o: cannot write '" + flags_.out + "'");
    double clocks = 0;
    for (const Traced& each : workers_) clocks = std::max(clocks, each.error_us);
    fmt::print("{}: {} processes, {} slices, {} arrows between processes; clocks agree to {:.0f} us\n",
               flags_.out, traces.size(), merged.slices, merged.arrows, clocks);
    if (merged.worst_us > 0)
      fmt::print("arrows that went back in time, by {:.0f} us at most, are left out\n", merged.worst_us);
    return kExitSuccess;
  }

 private:
  void find_workers() {
    WatchedJob job(flags_.watched);
    std::string silent;
    for (const watch::Peer& peer : job.ask_all(kAnswerTime).peers) {
      if (!peer.answers()) {
        silent += (silent.empty() ? "" : ", ") + (peer.task.empty() ? peer.address : peer.task) + " (" +
                  peer.error + ")";
        continue;
      }
      if (!peer.status->trains) continue;
      workers_.push_back({peer.task, peer.address, 0, 0, "", peer.status->synchronous, peer.status->step,
                          peer.status->steps_per_second});
    }
    if (workers_.empty())
      throw Unavailable("no worker that trains answers" + (silent.empty() ? "" : ": " + silent));
    if (!silent.empty()) fmt::print(stderr, "left out, since they do not answer: {}\n", silent);
  }

  /// Of several looks the quickest says most: half its round trip is what the clock may be off by.
  void set_clock(Traced& worker) {
    double least = 1e300;
    for (int look = 0; look < kClockLooks; ++look) {
      const HttpAnswer answer = http_get({worker.address, "/clock.json"}, kAnswerTime);
      const auto json = nlohmann::json::parse(answer.body, nullptr, false);
      if (!answer.ok() || !json.is_object() || !json.contains("steady_us") || !json["steady_us"].is_number())
        throw Unavailable(worker.task + " at " + worker.address + ": " +
                          (answer.error.empty() ? "does not tell its clock" : answer.error));
      const double asked = to_us(answer.asked), answered = to_us(answer.answered);
      if (answered - asked >= least) continue;
      least = answered - asked;
      worker.error_us = least / 2;
      worker.clock_us = (asked + answered) / 2 - json["steady_us"].get<double>();
      if (json.value("boot_id", "") == own_boot_id()) {  // the same machine has one steady clock
        worker.clock_us = worker.error_us = 0;
        return;
      }
    }
  }

  static std::string own_boot_id() {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(in, text);
    return text.empty() ? "none" : text;
  }

  std::vector<HttpAnswer> ask(const std::function<std::string(const Traced&)>& target) const {
    std::vector<HttpGet> requests;
    const auto now =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    for (const Traced& worker : workers_) {
      const std::string path = target(worker);
      requests.push_back({worker.address, path, token_.empty() ? "" : worker::http_proof(token_, path, now)});
    }
    return http_get_all(requests, kAnswerTime);
  }

  void start() {
    std::uint64_t first = 0;
    for (const Traced& worker : workers_)
      first = std::max(first, worker.step + 3 +
                                  static_cast<std::uint64_t>(
                                      std::clamp(kLeadSeconds * worker.steps_per_second, 0.0, 1e5)));
    // Workers that do not wait for each other have steps of their own.
    const bool together =
        std::all_of(workers_.begin(), workers_.end(), [](const Traced& w) { return w.synchronous; });
    const std::vector<HttpAnswer> answers = ask([&](const Traced&) {
      return fmt::format("/trace/start?steps={}{}", flags_.steps,
                         together ? fmt::format("&first={}", first) : "");
    });
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (!answers[i].ok())
        throw Unavailable(
            workers_[i].task + " at " + workers_[i].address + ": " + answers[i].error +
            (answers[i].body.empty() ? "" : ": " + answers[i].body.substr(0, answers[i].body.find('\n'))) +
            (answers[i].status == 401 ? "; give --token-file or BRAID_TOKEN" : ""));
      const auto json = nlohmann::json::parse(answers[i].body, nullptr, false);
      workers_[i].window = json.is_object() && json.contains("window") ? json["window"].dump() : "0";
    }
  }

  std::vector<watch::ProcessTrace> collect() const {
    const auto end =
        std::chrono::steady_clock::now() + milliseconds(static_cast<std::int64_t>(1000 * flags_.timeout));
    for (;;) {
      const std::vector<HttpAnswer> answers =
          ask([](const Traced& worker) { return "/trace.json?window=" + worker.window; });
      std::vector<watch::ProcessTrace> traces;
      std::string missing;
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (answers[i].ok())
          traces.push_back(
              {workers_[i].task, answers[i].body, workers_[i].clock_us, workers_[i].synchronous});
        else
          missing += (missing.empty() ? "" : ", ") + workers_[i].task + " (" +
                     (answers[i].status == 202 ? "still records" : answers[i].error) + ")";
      }
      if (missing.empty()) return traces;
      if (std::chrono::steady_clock::now() >= end)
        throw DeadlineExceeded("no trace within --timeout of " + missing);
      std::this_thread::sleep_for(milliseconds(100));
    }
  }

  const TraceFlags& flags_;
  const comm::JobToken token_;
  std::vector<Traced> workers_;
};

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* sub = app.add_subcommand(
      "trace",
      "Record a few steps of all workers of a running job, on one clock, as one file for ui.perfetto.dev:\n"
      "a process a worker, a track a stream, arrows where one waits for another.");
  add_watched_flags(*sub, flags->watched);
  sub->add_option("--steps", flags->steps, "How many steps")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("-o,--out", flags->out, "The file")->capture_default_str();
  sub->add_option(
      "--token-file", flags->token_file,
      "Holds the job's token, where its pages can be reached from other hosts; default: the variables "
      "BRAID_TOKEN_FILE and BRAID_TOKEN");
  sub->add_option("--timeout", flags->timeout, "Seconds for the steps to end")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  sub->callback([flags, &action] { action = [flags] { return Tracing(*flags).run(); }; });
}

}  // namespace braid::cli
