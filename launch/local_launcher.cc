#include "launch/local_launcher.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "launch/cluster_spec.h"
#include "launch/job_results.h"
#include "launch/launch_plan.h"
#include "launch/output_forwarder.h"
#include "launch/port_reservation.h"
#include "launch/remote_task.h"
#include "launch/signal_pipe.h"
#include "launch/tf_config.h"

namespace braid::launch {
namespace {

using Clock = std::chrono::steady_clock;

// As long as so much of the launcher's own output is not read, it takes no more of the tasks'; they then wait
// in their writes. Who is to end must not wait there, so what ends a job may pile up further.
constexpr std::size_t kMostPending = std::size_t{1} << 20;
constexpr std::size_t kMostPendingAtEnd = std::size_t{64} << 20;
constexpr std::chrono::seconds kLeastDrain{1};
// Who is stopped by a signal for so long while the others end will not end by itself.
constexpr std::chrono::seconds kStopped{2};
constexpr std::chrono::milliseconds kLookForStopped{250};
constexpr int kExitOfSsh = 255;  // it cannot connect, or the connection is lost

void make_log_directory(const std::filesystem::path& directory) {
  try {
    make_directories(directory);
  } catch (const Unavailable& error) {
    throw InvalidArgument("[launch] logs: " + error.message());
  }
}

/// One task: its process and what it writes.
struct Running {
  Task task;
  std::optional<File> log;
  std::optional<RemoteControl> remote;  // of a task on another host
  std::optional<ChildProcess> process;
  std::deque<OutputForwarder> outputs;
  bool ended = false;
  std::optional<Clock::time_point> stopped_since;  // as the launcher saw it

  bool is_server() const { return task.type == TaskType::Ps; }
  void signal(int number) {
    if (remote) remote->signal(number);
    if (!remote || number == SIGKILL) process->signal(number);
  }
};

class LocalJob {
 public:
  explicit LocalJob(const LocalLaunchOptions& options)
      : options_(options),
        ports_(reserve_ports(options)),
        plan_(plan_launch(options, ports_.addresses())),
        err_(options.err) {
    if (!LineSink::same_target(options.out, options.err)) own_out_.emplace(options.out);
  }

  int run();

 private:
  void start(const Task& task);
  void make_remote(Running& child, ChildCommand& command, const std::string& host);
  void wait_for_events();
  void write_results();
  void drain();
  void handle_signals();
  void reap();
  void on_end(Running& child, const ExitStatus& status);
  bool goes_on_without(const Running& child) const;
  void replace(const Running& child, const ExitStatus& status);
  void advance();
  void end_stopped(Clock::time_point now);
  bool ends_others() const { return terminate_at_ || kill_at_; }
  void signal_all(int number, bool servers_too);
  bool all_ended(bool servers_too) const;
  void say(const std::string& text) { err_.write_line("[launch] ", text); }
  /// Standard output and error, or one for both, so that their lines do not run into each other.
  LineSink& out() { return own_out_ ? *own_out_ : err_; }
  std::size_t pending() { return own_out_ ? own_out_->pending() + err_.pending() : err_.pending(); }
  bool takes_output_for(const LineSink& sink) const {
    const bool ending = failed_ || asked_to_stop_ || servers_told_;
    return sink.pending() < (ending ? kMostPendingAtEnd : kMostPending);
  }
  double grace_seconds() const { return std::chrono::duration<double>(options_.grace).count(); }

  const LocalLaunchOptions& options_;
  SignalPipe signals_;
  PortReservation ports_;
  const LaunchPlan plan_;
  const ClusterSpec& cluster_ = plan_.placement.cluster;
  LineSink err_;
  std::optional<LineSink> own_out_;
  std::deque<Running> children_;
  std::vector<Task> to_start_;  // again, once no child is looked at
  int started_again_ = 0;
  std::vector<ExitStatus> statuses_;
  JobResults results_;
  bool failed_ = false;
  bool asked_to_stop_ = false;
  Clock::time_point asked_at_;
  bool servers_told_ = false;
  /// When those who still run get SIGTERM, and SIGKILL; at the end, when what is unread is given up.
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
};

int LocalJob::run() {
  if (!options_.log_dir.empty()) make_log_directory(options_.log_dir);
  if (options_.watch) {
    const std::string& page = plan_.pages.at(cluster_.leader());
    say(fmt::format("watch the job at http://{}/ or by: braid top {}", page, page));
  }
  for (const Task& task : cluster_.tasks()) start(task);
  while (!all_ended(true)) {
    wait_for_events();
    handle_signals();
    reap();
    advance();
  }
  write_results();
  drain();
  return job_exit_code(statuses_);
}

/// One table and one "result:" line of the whole job, the latter last.
void LocalJob::write_results() {
  std::string held;
  for (Running& child : children_)
    for (OutputForwarder& output : child.outputs)
      if (auto line = output.take_held()) held = std::move(*line);
  for (const std::string& line : results_.last_lines(cluster_.leader(), held)) out().write_line("", line);
}

/// Writes what is left, as long as somebody reads it.
void LocalJob::drain() {
  const auto drain_time = std::max<std::chrono::milliseconds>(options_.grace, kLeastDrain);
  kill_at_ = Clock::now() + drain_time;
  while (pending() > 0 && Clock::now() < *kill_at_) {
    const std::size_t before = pending();
    wait_for_events();
    handle_signals();
    if (pending() < before && !asked_to_stop_) kill_at_ = Clock::now() + drain_time;
  }
  if (const std::size_t lost = pending(); lost > 0)
    say(fmt::format("the output has no reader: dropping the last {} bytes", lost));
}

void LocalJob::start(const Task& task) {
  Running& child = children_.emplace_back();
  child.task = task;
  if (!options_.log_dir.empty())
    child.log = File::create(options_.log_dir /
                             fmt::format("{}-{}{}.log", job_name(task.type), task.index,
                                         started_again_ > 0 ? fmt::format("-again-{}", started_again_) : ""));
  File* log = child.log ? &*child.log : nullptr;
  const std::string prefix = options_.prefix_lines ? fmt::format("[{}] ", task_name(task)) : "";

  ChildCommand command{options_.command, options_.environment, options_.out, options_.err};
  command.environment["TF_CONFIG"] = write_tf_config(cluster_, task);
  if (!plan_.token.empty()) command.environment["BRAID_TOKEN"] = plan_.token;
  if (const auto page = plan_.pages.find(task); page != plan_.pages.end()) {
    command.environment["BRAID_HTTP"] = page->second;
    command.environment["BRAID_HTTP_PEERS"] = plan_.page_list;
  }
  // The write ends close when the child has its own copies, so that the end of its output can be seen.
  std::vector<FileDescriptor> write_ends;
  const auto capture = [&](int& target, LineSink& sink, OutputForwarder::Options forwarding) {
    Pipe pipe = make_pipe();
    target = pipe.write_end.get();
    write_ends.push_back(std::move(pipe.write_end));
    child.outputs.emplace_back(std::move(pipe.read_end), sink, std::move(forwarding));
  };
  const bool leads = task == cluster_.leader();
  const auto on_result = [this, task](std::string_view line) { results_.add(task, line); };
  if (!leads) {
    capture(command.out, err_, {prefix, false, on_result, log});
  } else if (::isatty(options_.out) == 0) {
    capture(command.out, out(), {"", true, on_result, log});
  }
  // Who writes to a terminal by itself leaves its result in a file.
  if (leads && ::isatty(options_.out) != 0) command.environment["BRAID_RESULT_FILE"] = results_.own_file();
  if (!leads || ::isatty(options_.err) == 0) capture(command.err, err_, {prefix, false, nullptr, log});
  if (const auto host = plan_.placement.host_of.find(task); host != plan_.placement.host_of.end())
    make_remote(child, command, host->second);
  child.process.emplace(command);
  if (child.remote) child.remote->read_end().reset();
}

/// `command` becomes the ssh that starts it on `host`.
void LocalJob::make_remote(Running& child, ChildCommand& command, const std::string& host) {
  RemoteCommand remote{options_.ssh,
                       host,
                       command.argv,
                       std::filesystem::current_path().string(),
                       variables_to_send(command.environment),
                       static_cast<int>(std::chrono::ceil<std::chrono::seconds>(options_.grace).count())};
  remote.environment["TF_CONFIG"] = command.environment["TF_CONFIG"];
  remote.environment.erase("BRAID_RESULT_FILE");
  // Its page is there for other hosts.
  if (const auto page = remote.environment.find("BRAID_HTTP");
      page != remote.environment.end() && !host.starts_with("127."))
    page->second = "0.0.0.0" + page->second.substr(page->second.rfind(':'));
  child.remote.emplace(plan_.token);
  command.argv = remote_argv(remote);
  command.environment = options_.environment;
  command.in = child.remote->read_end().get();
}

void LocalJob::wait_for_events() {
  std::vector<pollfd> waits{{signals_.descriptor(), POLLIN, 0}};
  for (const Running& child : children_)
    for (const OutputForwarder& output : child.outputs)
      if (output.is_open() && takes_output_for(output.sink()))
        waits.push_back({output.descriptor(), POLLIN, 0});
  for (LineSink* sink : {&out(), &err_})
    if (sink->pending() > 0) waits.push_back({sink->descriptor(), POLLOUT, 0});
  int timeout = -1;
  for (const auto& at : {terminate_at_, kill_at_}) {
    if (!at) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at - Clock::now()).count();
    const int bounded = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
    timeout = timeout < 0 ? bounded : std::min(timeout, bounded);
  }
  if (ends_others() && !all_ended(true))
    timeout = std::min(timeout, static_cast<int>(kLookForStopped.count()));
  ::poll(waits.data(), waits.size(), timeout);
  out().flush();
  err_.flush();
  for (Running& child : children_)
    for (OutputForwarder& output : child.outputs)
      if (takes_output_for(output.sink())) output.forward();
}

void LocalJob::handle_signals() {
  for (const int number : signals_.take()) {
    if (number == SIGCHLD) continue;
    if (asked_to_stop_ && (number != SIGINT || Clock::now() < asked_at_ + kOneRequest)) continue;
    kill_at_ = asked_to_stop_ ? Clock::now() : Clock::now() + options_.grace;
    if (asked_to_stop_) {
      say("asked to stop again: killing what still runs");
      continue;
    }
    asked_to_stop_ = true;
    asked_at_ = Clock::now();
    say(fmt::format("asked to stop: passing on signal {}; tasks that still run after {:g} s are killed",
                    number, grace_seconds()));
    signal_all(number == SIGINT ? SIGINT : SIGTERM, false);
  }
}

void LocalJob::reap() {
  for (Running& child : children_) {
    if (child.ended) continue;
    const std::optional<ExitStatus> status = child.process->poll();
    if (!status) continue;
    child.ended = true;
    for (OutputForwarder& output : child.outputs) output.finish();
    on_end(child, *status);
  }
}

/// Of an elastic job, whose leader still runs.
bool LocalJob::goes_on_without(const Running& child) const {
  if (!options_.elastic || asked_to_stop_ || ends_others() || child.task.type != TaskType::Worker)
    return false;
  const Task leader = cluster_.leader();
  return child.task != leader && std::any_of(children_.begin(), children_.end(), [&](const Running& other) {
           return other.task == leader && !other.ended;
         });
}

void LocalJob::replace(const Running& child, const ExitStatus& status) {
  std::string text = fmt::format("{} {}; the others go on", task_name(child.task), describe_exit(status));
  if (job_exit_code({status}) == kExitPeerLost && options_.restarts && *options_.restarts > 0) {
    --*options_.restarts;
    to_start_.push_back(child.task);
    text += ", and it is started again";
  }
  say(text);
}

void LocalJob::on_end(Running& child, const ExitStatus& status) {
  results_.ended(child.task, status);
  if (status.code != 0 && goes_on_without(child)) return replace(child, status);
  const bool stopped_server = child.is_server() && (status.code == 0 || status.code == 128 + SIGTERM);
  statuses_.push_back(stopped_server ? ExitStatus{} : status);
  if (stopped_server || status.code == 0) return;
  const bool first = !failed_ && !asked_to_stop_;
  failed_ = true;
  std::string text = fmt::format("{} {}", task_name(child.task), describe_exit(status));
  if (child.remote && status.code == kExitOfSsh)
    text += fmt::format(": no connection to host {}", plan_.placement.host_of.at(child.task));
  if (child.log) text += fmt::format(", see {}", child.log->path().string());
  if (first && !options_.keep_going && !all_ended(true)) {
    text += fmt::format("; the others get {:g} s to shut down", grace_seconds());
    terminate_at_ = Clock::now() + options_.grace;
  }
  say(text);
}

void LocalJob::advance() {
  const auto now = Clock::now();
  for (const Task& task : std::exchange(to_start_, {})) {
    if (asked_to_stop_ || ends_others()) break;
    ++started_again_;
    start(task);
  }
  if (all_ended(false) && !servers_told_ && !all_ended(true)) {
    servers_told_ = true;
    signal_all(SIGTERM, true);
    terminate_at_.reset();
    kill_at_ = now + options_.grace;
  }
  end_stopped(now);
  if (terminate_at_ && now >= *terminate_at_) {
    terminate_at_.reset();
    servers_told_ = true;
    say("ending what still runs");
    signal_all(SIGTERM, true);
    kill_at_ = now + options_.grace;
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    for (const Running& child : children_)
      if (!child.ended) say(fmt::format("{} did not end in time: killing it", task_name(child.task)));
    signal_all(SIGKILL, true);
  }
}

/// Nobody need wait for who cannot end. A stop that somebody takes back in time is none.
void LocalJob::end_stopped(Clock::time_point now) {
  if (!ends_others()) return;
  for (Running& child : children_) {
    if (child.ended || !child.process->is_stopped()) {
      child.stopped_since.reset();
    } else if (!child.stopped_since) {
      child.stopped_since = now;
    } else if (now >= *child.stopped_since + kStopped) {
      say(fmt::format("{} is stopped by a signal and cannot end: killing it", task_name(child.task)));
      child.signal(SIGKILL);
      child.stopped_since.reset();
    }
  }
}

void LocalJob::signal_all(int number, bool servers_too) {
  for (Running& child : children_)
    if (servers_too || !child.is_server()) child.signal(number);
}

bool LocalJob::all_ended(bool servers_too) const {
  return std::all_of(children_.begin(), children_.end(), [&](const Running& child) {
    return child.ended || (child.is_server() && !servers_too);
  });
}

}  // namespace

int launch_local(const LocalLaunchOptions& options) {
  check_launch(options);
  return LocalJob(options).run();
}

int job_exit_code(const std::vector<ExitStatus>& statuses) {
  const auto severity = [](int code) {
    if (code == kExitBadInput) return 4;
    if (code > 0 && code < 128) return 3;
    if (code == kExitTerminated || code == 128 + SIGINT) return 1;
    return code == 0 ? 0 : 2;
  };
  int worst = 0;
  for (const ExitStatus& status : statuses)
    if (severity(status.code) > severity(worst)) worst = status.code;
  return severity(worst) == 2 ? kExitPeerLost : worst;
}

}  // namespace braid::launch
