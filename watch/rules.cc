#include "watch/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid::watch {
namespace {

constexpr double kLeastWindow = 0.5;  // shares of less say nothing
constexpr double kGiB = 1024.0 * 1024 * 1024;

bool has_rates(const Status& status) { return status.window_seconds >= kLeastWindow; }
bool is_training(const Status& s) { return s.trains && s.state == "training" && has_rates(s); }

std::vector<const Status*> training(const JobStatus& job) {
  std::vector<const Status*> all;
  for (const Peer& peer : job.peers)
    if (peer.answers() && is_training(*peer.status)) all.push_back(&*peer.status);
  return all;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// The share of time in which a worker's compute streams waited for that cause: the most of any that works.
double wait_share(const Status& status, std::initializer_list<const char*> causes) {
  double most = 0;
  for (const Stream& stream : status.streams) {
    if (stream.cause != "compute") continue;
    double sum = 0;
    for (const char* cause : causes)
      if (const auto at = stream.wait.find(cause); at != stream.wait.end()) sum += at->second;
    most = std::max(most, sum);
  }
  return most;
}

double input_wait(const Status& s) { return wait_share(s, {"input"}); }
/// What a compute stream waits for itself, and what the lanes' waits hold up: a worker that waits for others
/// has steps in flight and its streams stand idle behind them.
double peer_wait(const Status& s) { return wait_share(s, {"pull", "push", "comm"}); }

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Warning> stopped_peer(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  const auto answering = std::count_if(job.peers.begin(), job.peers.end(), [](const Peer& p) {
    return p.answers() && p.status->state != "ended" && p.status->state != "stopping";
  });
  for (const Peer& peer : job.peers) {
    const std::string who = peer.task.empty() ? peer.address : peer.task;
    if (!peer.answers()) {
      if (answering == 0) continue;  // nobody is left, or nobody can be reached
      if (peer.silent_seconds < limits.stopped_seconds && (peer.status || peer.error == kNotAskedYet))
        continue;
      found.push_back(
          {"stopped_peer", who,
           fmt::format("{} at {} does not answer ({}){}", who, peer.address, peer.error,
                       peer.silent_seconds >= 1 ? fmt::format(" since {:.0f} s", peer.silent_seconds) : ""),
           "look at its log and whether its process runs; the others give up after "
           "strategy.deadline_seconds, then start the job again with --resume"});
      continue;
    }
    const Status& s = *peer.status;
    if (s.trains && s.state == "training" && s.idle_seconds_since_step >= limits.stopped_seconds &&
        s.idle_seconds_since_step > 10 * s.step_seconds && job.peers.size() == 1)
      found.push_back({"stopped_peer", who,
                       fmt::format("{} has ended no step for {:.0f} s", who, s.idle_seconds_since_step),
                       "look at its streams for what it waits for; braid trace shows one step"});
  }
  return found;
}

std::vector<Warning> slow_disk(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  for (const Peer& peer : job.peers) {
    if (!peer.answers() || !peer.status->checkpoints) continue;
    const Status& s = *peer.status;
    const Checkpoints& c = *s.checkpoints;
    const double training = std::max(s.step_seconds_total, s.compute_busy_seconds) + s.pause_seconds;
    const double share = training > 0 ? c.spent_seconds / training : 0;
    if (c.saved == 0 || share < limits.checkpoint_share) continue;
    found.push_back({"slow_disk", s.task,
                     fmt::format("checkpoints take {} of the time: {} of them, the last in {:.2f} s",
                                 percent(std::min(share, 1.0)), c.saved, c.duration_seconds),
                     "save less often (a larger checkpoint.every_steps or every_seconds), or put "
                     "checkpoint.directory on a faster disk"});
  }
  return found;
}

std::vector<Warning> memory_near_limit(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  const auto say = [&](const Status& s, const std::string& what, double used, double limit,
                       const std::string& advice) {
    if (limit > 0 && used / limit >= limits.memory)
      found.push_back({"memory", s.task,
                       fmt::format("{} of {} is in use: {:.2f} of {:.2f} GiB", percent(used / limit), what,
                                   used / kGiB, limit / kGiB),
                       advice});
  };
  for (const Peer& peer : job.peers) {
    if (!peer.answers()) continue;
    const Status& s = *peer.status;
    say(s, "the memory that the process may use", static_cast<double>(s.process.resident_bytes),
        static_cast<double>(s.process.memory_limit_bytes),
        s.role == "ps" ? "start more servers: each holds a part of the tables"
                       : "give the process more memory, or read a part of the data: input.shard ROWS or "
                         "FILES");
    for (const Gpu& gpu : s.gpus) {
      const std::string advice =
          "a smaller input.global_batch_size, optimizer.accumulate_steps: 2, or fewer streams "
          "(streams.count)";
      if (gpu.memory_limit_bytes > 0)
        say(s, "runtime.device_memory_limit", static_cast<double>(gpu.memory_held_bytes),
            static_cast<double>(gpu.memory_limit_bytes), advice);
      else if (gpu.memory_used_bytes && gpu.memory_total_bytes)
        say(s, "the memory of " + gpu.name, static_cast<double>(*gpu.memory_used_bytes),
            static_cast<double>(*gpu.memory_total_bytes), advice);
    }
  }
  return found;
}

std::vector<Warning> slow_input(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  for (const Status* s : training(job)) {
    const double share = input_wait(*s);
    if (share < limits.input_wait) continue;
    std::string advice = "staging.enabled: true, so that batches are made ahead of the step";
    if (s->stage_threads_set > 0) {
      const int threads = s->stages.empty() ? s->stage_threads_set : s->stages.front().threads;
      advice = threads >= std::max(1, s->process.cores)
                   ? "cheaper input: fewer or smaller columns, data in memory, or more cores"
                   : fmt::format("staging.num_threads: {}",
                                 std::min(2 * std::max(1, threads), std::max(2, s->process.cores)));
    }
    found.push_back(
        {"slow_input", s->task,
         fmt::format("input-bound: {} of the compute streams' time waits for batches", percent(share)),
         "try " + advice});
  }
  return found;
}

/// Workers that wait for each other all have the slowest one's pace, and the slowest one waits least.
std::vector<Warning> slow_worker(const JobStatus& job, const RuleLimits& limits) {
  const std::vector<const Status*> workers = training(job);
  if (workers.size() < 2) return {};
  const auto waits = [](const Status* s) {
    // A stream without work behind a step that waits for peers is idle.
    double most = peer_wait(*s);
    for (const Stream& stream : s->streams)
      if (stream.cause == "comm" || stream.cause == "pull") most = std::max(most, stream.busy);
    return most;
  };
  const auto slowest = *std::min_element(
      workers.begin(), workers.end(), [&](const Status* a, const Status* b) { return waits(a) < waits(b); });
  std::vector<double> others, rates;
  for (const Status* s : workers)
    if (s != slowest) others.push_back(waits(s));
  const double usual = median_of(others);
  const double own = waits(slowest);
  std::vector<Warning> found;
  if (usual >= limits.peer_wait && own <= limits.slow_worker * usual)
    found.push_back({"slow_worker", slowest->task,
                     fmt::format("{} is slower than the others: they spend {} of their time on pulls and "
                                 "collectives, waiting for it, and it {}",
                                 slowest->task, percent(usual), percent(own)),
                     "look at its host" + (slowest->host.empty() ? "" : " (" + slowest->host + ")") +
                         " for other processes, fewer cores or a slower card; its own streams show what "
                         "takes the time"});
  // Workers that do not wait for each other differ in their rates.
  for (const Status* s : workers) rates.push_back(s->examples_per_second);
  const double rate = median_of(rates);
  for (const Status* s : workers)
    if (found.empty() && rate > 0 && s->examples_per_second < limits.slow_rate * rate)
      found.push_back({"slow_worker", s->task,
                       fmt::format("{} makes {:.0f} examples a second, the others {:.0f}", s->task,
                                   s->examples_per_second, rate),
                       "look at its host" + (s->host.empty() ? "" : " (" + s->host + ")") +
                           " for other processes, fewer cores or a slower card"});
  return found;
}

std::vector<Warning> hot_server(const JobStatus& job, const RuleLimits& limits) {
  std::vector<const Status*> servers;
  for (const Peer& peer : job.peers)
    if (peer.answers() && peer.status->server && has_rates(*peer.status)) servers.push_back(&*peer.status);
  std::vector<double> waits;
  for (const Status* s : training(job)) {
    double pull = peer_wait(*s);
    for (const Stream& stream : s->streams)
      if (stream.cause == "pull" || stream.cause == "push") pull = std::max(pull, stream.busy);
    waits.push_back(pull);
  }
  const double wait = median_of(waits);
  if (servers.empty() || wait < limits.peer_wait) return {};
  double bytes = 0, cores = 0;
  for (const Status* s : servers) {
    bytes += s->server->bytes_per_second;
    cores += s->process.cores_used;
  }
  const double count = static_cast<double>(servers.size());
  std::vector<Warning> found;
  for (const Status* s : servers) {
    const double of_bytes = bytes > 0 ? s->server->bytes_per_second / (bytes / count) : 1;
    const double of_cores = cores > 0 ? s->process.cores_used / (cores / count) : 1;
    const bool works_more = of_cores >= limits.hot_server && s->process.cores_used >= 0.1;
    if (servers.size() > 1 && (of_bytes >= limits.hot_server || works_more))
      found.push_back({"hot_server", s->task,
                       fmt::format("{} carries {:.1f} times the bytes and {:.1f} times the work of a server "
                                   "on average; workers spend {} of their time on pulls and pushes",
                                   s->task, of_bytes, of_cores, percent(wait)),
                       "spread what is asked for most: more hash buckets for a column of few ids, or its "
                       "table on the workers (model.sparse_tables: false)"});
    else if (s->process.cores > 0 && s->process.cores_used >= 0.8 * s->process.cores)
      found.push_back({"hot_server", s->task,
                       fmt::format("{} uses {:.1f} of its {} cores; workers spend {} of their time on pulls "
                                   "and pushes",
                                   s->task, s->process.cores_used, s->process.cores, percent(wait)),
                       "start more servers, or give this one more cores"});
  }
  return found;
}

std::vector<Warning> no_overlap(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  for (const Status* s : training(job)) {
    const auto working = std::count_if(s->streams.begin(), s->streams.end(), [](const Stream& stream) {
      return stream.cause == "compute" && stream.busy > 0.02;
    });
    if (working >= 2 && s->compute_busy >= limits.compute_busy && s->overlap < limits.little_overlap)
      found.push_back(
          {"no_overlap", s->task,
           fmt::format("{} compute streams work one after another: overlap {:.2f}", working, s->overlap),
           "streams.policy: AUTO, which measures, or streams.count: 1, which spares the events"});
    for (const Gpu& gpu : s->gpus) {
      const auto computing = std::count_if(gpu.streams.begin(), gpu.streams.end(), [](const GpuStream& each) {
        return each.name.starts_with("compute") && each.busy > 0.02;
      });
      if (computing >= 2 && gpu.busy >= limits.compute_busy && gpu.overlap < limits.little_overlap)
        found.push_back({"no_overlap", s->task,
                         fmt::format("{} compute streams of {} work one after another: overlap {:.2f}",
                                     computing, gpu.name, gpu.overlap),
                         "streams.policy: AUTO, which measures, or streams.count: 1"});
    }
  }
  return found;
}

std::vector<Warning> small_batches(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> found;
  for (const Status* s : training(job)) {
    double busy = 0, nodes = 0;
    for (const Stream& stream : s->streams)
      if (stream.cause == "compute" && stream.node_seconds > 0) {
        busy += stream.busy;
        nodes += stream.busy / stream.node_seconds;
      }
    const double mean = nodes > 0 ? busy / nodes : 0;
    if (mean > 0 && mean < limits.small_node_seconds && s->compute_busy >= limits.compute_busy)
      found.push_back({"small_batches", s->task,
                       fmt::format("a node of the step takes {:.1f} us on average with {} rows a worker: "
                                   "most of that is its start",
                                   1e6 * mean, s->batch_rows),
                       fmt::format("try input.global_batch_size: {}, and a learning rate for it",
                                   std::max<std::int64_t>(1, s->global_batch_rows) * 8)});
  }
  return found;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules{
      {"stopped_peer", "a process does not answer for 3 s while others do, or a lone one ends no step",
       stopped_peer},
      {"memory", "90 % of the memory that a process may use, or of a card's, is in use", memory_near_limit},
      {"slow_disk", "checkpoints take 10 % of the time", slow_disk},
      {"slow_input", "compute streams wait for batches in 20 % of their time", slow_input},
      {"slow_worker",
       "the others spend 20 % of their time on pulls and collectives, one at most 0.45 of that; or its rate "
       "is below 0.7 of theirs",
       slow_worker},
      {"hot_server",
       "workers spend 20 % of their time on pulls and pushes, and a server has 1.5 times the mean of bytes "
       "or "
       "work, or uses 80 % of its cores",
       hot_server},
      {"no_overlap", "two or more compute streams work, and their times overlap by less than 10 %",
       no_overlap},
      {"small_batches", "a node takes less than 4 us on average", small_batches},
  };
  return kRules;
}

std::vector<Warning> find_warnings(const JobStatus& job, const RuleLimits& limits) {
  std::vector<Warning> all;
  for (const Rule& rule : rules())
    for (Warning& warning : rule.find(job, limits)) all.push_back(std::move(warning));
  return all;
}

std::vector<Warning> find_warnings(const Status& status) {
  JobStatus job;
  job.job = status.job;
  job.time = status.time;
  Peer peer;
  peer.task = status.task;
  peer.status = status;
  job.peers.push_back(std::move(peer));
  return find_warnings(job);
}

}  // namespace braid::watch
