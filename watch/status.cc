#include "watch/status.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "watch/json_fields.h"
#include "watch/status_json.h"

namespace braid::watch {
namespace {

/// What was counted since `before`; an earlier total that is larger is another process's.
template <class T>
double grown(T now, T before) {
  return now > before ? static_cast<double>(now - before) : 0.0;
}

void set_stream_shares(Stream& now, const Stream& earlier, double seconds) {
  const auto share = [&](double later, double before) {
    return std::clamp(grown(later, before) / seconds, 0.0, 1.0);
  };
  now.busy = share(now.busy_seconds, earlier.busy_seconds);
  now.wait.clear();
  for (const auto& [cause, total] : now.wait_seconds) {
    const auto before = earlier.wait_seconds.find(cause);
    now.wait[cause] = share(total, before == earlier.wait_seconds.end() ? 0 : before->second);
  }
  const double launches = grown(now.launches, earlier.launches);
  now.node_seconds = launches > 0 ? grown(now.busy_seconds, earlier.busy_seconds) / launches : 0;
}

template <class Row>
const Row& row_of(const std::vector<Row>& rows, const std::string& name, const Row& none) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return at == rows.end() ? none : *at;
}

void set_server_rates(Server& now, const Server& earlier, double seconds) {
  const double pushes = grown(now.pushes, earlier.pushes);
  now.pushes_per_second = pushes / seconds;
  now.pulls_per_second = grown(now.pulls, earlier.pulls) / seconds;
  now.rows_per_second =
      (grown(now.rows_pushed, earlier.rows_pushed) + grown(now.rows_pulled, earlier.rows_pulled)) / seconds;
  now.bytes_per_second =
      (grown(now.bytes_received, earlier.bytes_received) + grown(now.bytes_sent, earlier.bytes_sent)) /
      seconds;
  now.stale_share = pushes > 0 ? std::min(1.0, grown(now.stale_pushes, earlier.stale_pushes) / pushes) : 0;
}

template <class Io, class T>
void stream_fields(Io& io, T& s) {
  io.field("name", s.name);
  io.field("cause", s.cause);
  io.field("busy", s.busy);
  io.field("wait", s.wait);
  io.field("node_seconds", s.node_seconds);
  io.field("busy_seconds", s.busy_seconds);
  io.field("wait_seconds", s.wait_seconds);
  io.field("launches", s.launches);
  io.field("bytes", s.bytes);
}

template <class Io, class T>
void stage_fields(Io& io, T& s) {
  io.field("name", s.name);
  io.field("ready", s.ready);
  io.field("capacity", s.capacity);
  io.field("threads", s.threads);
  io.field("occupancy", s.occupancy);
  io.field("taken", s.taken);
  io.field("late", s.late);
  io.field("late_share", s.late_share);
}

template <class Io, class T>
void input_reads_fields(Io& io, T& r) {
  io.field("bytes", r.bytes);
  io.field("direct_bytes", r.direct_bytes);
  io.field("seconds", r.seconds);
}

template <class Io, class T>
void gpu_process_fields(Io& io, T& p) {
  io.field("pid", p.pid);
  io.field("name", p.name);
  io.field("memory_bytes", p.memory_bytes);
}

template <class Io, class T>
void gpu_stream_fields(Io& io, T& s) {
  io.field("name", s.name);
  io.field("busy", s.busy);
  io.field("pieces", s.pieces);
}

template <class Io, class T>
void gpu_fields(Io& io, T& g) {
  io.field("name", g.name);
  io.field("utilization", g.utilization);
  io.field("memory_used_bytes", g.memory_used_bytes);
  io.field("memory_total_bytes", g.memory_total_bytes);
  io.field("memory_held_bytes", g.memory_held_bytes);
  io.field("memory_limit_bytes", g.memory_limit_bytes);
  io.field("temperature_celsius", g.temperature_celsius);
  io.field("power_watts", g.power_watts);
  io.field("power_limit_watts", g.power_limit_watts);
  io.list("processes", g.processes, [](auto& one, auto& p) { gpu_process_fields(one, p); });
  io.field("sampled_seconds", g.sampled_seconds);
  io.field("busy", g.busy);
  io.field("overlap", g.overlap);
  io.field("input_copies", g.input_copies);
  io.field("input_copy_bytes", g.input_copy_bytes);
  io.field("input_copy_seconds", g.input_copy_seconds);
  io.field("input_copy_hidden_seconds", g.input_copy_hidden_seconds);
  io.list("streams", g.streams, [](auto& one, auto& s) { gpu_stream_fields(one, s); });
}

template <class Io, class T>
void server_fields(Io& io, T& s) {
  io.field("index", s.index);
  io.field("rows_made", s.rows_made);
  io.field("pushes", s.pushes);
  io.field("pulls", s.pulls);
  io.field("stale_pushes", s.stale_pushes);
  io.field("rows_pushed", s.rows_pushed);
  io.field("rows_pulled", s.rows_pulled);
  io.field("rounds", s.rounds);
  io.field("bytes_received", s.bytes_received);
  io.field("bytes_sent", s.bytes_sent);
  io.field("refused", s.refused);
  io.field("parked_pulls", s.parked_pulls);
  io.field("pushes_per_second", s.pushes_per_second);
  io.field("pulls_per_second", s.pulls_per_second);
  io.field("rows_per_second", s.rows_per_second);
  io.field("bytes_per_second", s.bytes_per_second);
  io.field("stale_share", s.stale_share);
}

template <class Io, class T>
void checkpoint_fields(Io& io, T& c) {
  io.field("saved", c.saved);
  io.field("last_step", c.last_step);
  io.field("age_seconds", c.age_seconds);
  io.field("duration_seconds", c.duration_seconds);
  io.field("spent_seconds", c.spent_seconds);
}

template <class Io, class T>
void process_fields(Io& io, T& p) {
  io.field("pid", p.pid);
  io.field("cpu_seconds", p.cpu_seconds);
  io.field("cores_used", p.cores_used);
  io.field("cores", p.cores);
  io.field("resident_bytes", p.resident_bytes);
  io.field("memory_limit_bytes", p.memory_limit_bytes);
  io.field("threads", p.threads);
}

template <class Io, class T>
void network_fields(Io& io, T& n) {
  io.field("received_bytes", n.received_bytes);
  io.field("sent_bytes", n.sent_bytes);
  io.field("received_per_second", n.received_per_second);
  io.field("sent_per_second", n.sent_per_second);
}

template <class Io, class T>
void warning_fields(Io& io, T& w) {
  io.field("rule", w.rule);
  io.field("task", w.task);
  io.field("text", w.text);
  io.field("advice", w.advice);
}

template <class Io, class T>
void training_fields(Io& io, T& s) {
  io.field("synchronous", s.synchronous);
  io.field("step", s.step);
  io.field("target_steps", s.target_steps);
  io.field("steps_total", s.steps_total);
  io.field("examples_total", s.examples_total);
  io.field("steps_per_second", s.steps_per_second);
  io.field("examples_per_second", s.examples_per_second);
  io.field("step_seconds", s.step_seconds);
  io.field("step_seconds_total", s.step_seconds_total);
  io.field("loss", s.loss);
  io.field("learning_rate", s.learning_rate);
  io.field("skipped_steps", s.skipped_steps);
  io.field("metrics", s.metrics);
  io.field("metrics_step", s.metrics_step);
  io.field("batch_rows", s.batch_rows);
  io.field("global_batch_rows", s.global_batch_rows);
  io.field("idle_seconds_since_step", s.idle_seconds_since_step);
  io.field("pause_seconds", s.pause_seconds);
  io.field("stage_threads_set", s.stage_threads_set);
  io.field("compute_busy_seconds", s.compute_busy_seconds);
  io.field("compute_busy", s.compute_busy);
  io.field("overlap", s.overlap);
}

template <class Io, class T>
void status_fields(Io& io, T& s) {
  io.field("task", s.task);
  io.field("role", s.role);
  io.field("job", s.job);
  io.field("host", s.host);
  io.field("state", s.state);
  io.field("time", s.time);
  io.field("uptime_seconds", s.uptime_seconds);
  io.field("window_seconds", s.window_seconds);
  io.field("leads", s.leads);
  io.field("trains", s.trains);
  if (s.trains) training_fields(io, s);
  io.list("streams", s.streams, [](auto& one, auto& stream) { stream_fields(one, stream); });
  io.list("stages", s.stages, [](auto& one, auto& stage) { stage_fields(one, stage); });
  io.maybe("input_reads", s.input_reads, [](auto& one, auto& r) { input_reads_fields(one, r); });
  io.list("gpus", s.gpus, [](auto& one, auto& gpu) { gpu_fields(one, gpu); });
  io.maybe("server", s.server, [](auto& one, auto& server) { server_fields(one, server); });
  io.maybe("checkpoints", s.checkpoints, [](auto& one, auto& c) { checkpoint_fields(one, c); });
  io.part("process", s.process, [](auto& one, auto& p) { process_fields(one, p); });
  io.part("network", s.network, [](auto& one, auto& n) { network_fields(one, n); });
  io.list("warnings", s.warnings, [](auto& one, auto& w) { warning_fields(one, w); });
  io.list("peers", s.peers, [](auto& one, auto& p) {
    one.field("task", p.task);
    one.field("address", p.address);
  });
}

}  // namespace

void set_rates(Status& now, const Status& earlier) {
  const double seconds = now.time - earlier.time;
  if (!(seconds > 0)) return;
  now.window_seconds = seconds;
  const double steps = grown(now.steps_total, earlier.steps_total);
  now.steps_per_second = steps / seconds;
  now.examples_per_second = grown(now.examples_total, earlier.examples_total) / seconds;
  if (steps > 0) now.step_seconds = grown(now.step_seconds_total, earlier.step_seconds_total) / steps;
  double compute = 0;
  const Stream no_stream;
  for (Stream& stream : now.streams) {
    set_stream_shares(stream, row_of(earlier.streams, stream.name, no_stream), seconds);
    if (stream.cause == "compute") compute += stream.busy;
  }
  now.compute_busy =
      std::clamp(grown(now.compute_busy_seconds, earlier.compute_busy_seconds) / seconds, 0.0, 1.0);
  now.overlap = now.compute_busy > 0 ? std::max(1.0, compute / now.compute_busy) : 1;
  const StageState no_stage;
  for (StageState& stage : now.stages) {
    const StageState& before = row_of(earlier.stages, stage.name, no_stage);
    const double taken = grown(stage.taken, before.taken);
    stage.late_share = taken > 0 ? std::min(1.0, grown(stage.late, before.late) / taken) : 0;
  }
  if (now.server) set_server_rates(*now.server, earlier.server.value_or(Server{}), seconds);
  now.process.cores_used = grown(now.process.cpu_seconds, earlier.process.cpu_seconds) / seconds;
  now.network.received_per_second =
      grown(now.network.received_bytes, earlier.network.received_bytes) / seconds;
  now.network.sent_per_second = grown(now.network.sent_bytes, earlier.network.sent_bytes) / seconds;
}

OrderedJson status_json(const Status& status) {
  JsonWriter writer;
  writer.field("version", Status::kVersion);
  status_fields(writer, status);
  return std::move(writer.json);
}

OrderedJson warning_json(const Warning& warning) {
  JsonWriter writer;
  warning_fields(writer, warning);
  return std::move(writer.json);
}

Warning read_warning(const OrderedJson& json) {
  Warning warning;
  JsonReader reader(json);
  warning_fields(reader, warning);
  return warning;
}

Status read_status(const OrderedJson& json) {
  Status status;
  JsonReader reader(json);
  status_fields(reader, status);
  return status;
}

std::string to_json(const Status& status) {
  return status_json(status).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Status status_from_json(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) throw InvalidArgument("[watch] not the status of a process of Braid");
  return read_status(json);
}

}  // namespace braid::watch
