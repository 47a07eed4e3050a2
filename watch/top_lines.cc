#include "watch/top_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "watch/top_text.h"
#include "watch/top_view.h"

namespace braid::watch {
namespace {

constexpr int kSideBar = 10;  // columns of a bar beside its worker

}  // namespace

double wait_of(const Status& status, std::initializer_list<const char*> causes) {
  double most = 0;
  for (const Stream& stream : status.streams) {
    double sum = 0;
    for (const char* cause : causes)
      if (const auto at = stream.wait.find(cause); at != stream.wait.end()) sum += at->second;
    if (stream.cause == "compute") most = std::max(most, sum);
  }
  return most;
}

std::string TopLines::titles() const {
  TextRow row;
  row.add("task", 11, 0, true);
  row.add("step", 8, 1);
  row.add("ms/step", 8, 2);
  row.add("ex/s", 7, 3);
  row.add("busy", 4, 4);
  row.add("input", 5, 6);
  row.add("peers", 5, 6);
  row.add("loss", 8, 7);
  row.add("cores", 5, 8);
  row.add("memory", 7, 9);
  row.add("net/s", 7, 10);
  row.add("state", 10, 11, true);
  return painted(row.fit(columns_, false), "\x1b[2m", colour_);
}

std::string TopLines::worker(const Peer& peer, bool selected, bool with_bars) const {
  const Status& s = *peer.status;
  TextRow row;
  row.add(plain_text(peer.task), 11, 0, true);
  if (selected) row.colour_last("\x1b[7m");
  row.add(s.trains ? fmt::format("{}", s.step) : "", 8, 1);
  row.add(s.step_seconds > 0 ? fmt::format("{:.2f}", 1e3 * s.step_seconds) : "", 8, 2);
  row.add(s.trains ? short_count(s.examples_per_second) : "", 7, 3);
  row.add(s.trains ? share_text(s.compute_busy) : "", 4, 4);
  row.add(s.trains ? share_text(wait_of(s, {"input"})) : "", 5, 6);
  row.add(s.trains ? share_text(wait_of(s, {"pull", "push", "comm"})) : "", 5, 6);
  row.add(s.loss ? number_text(*s.loss) : "", 8, 7);
  row.add(fmt::format("{:.1f}", s.process.cores_used), 5, 8);
  row.add(bytes_text(static_cast<double>(s.process.resident_bytes)), 7, 9);
  row.add(bytes_text(s.network.received_per_second + s.network.sent_per_second), 7, 10);
  row.add(plain_text(s.state), 10, 11, true);
  std::string line = row.fit(columns_, colour_);
  if (with_bars) {
    int left = columns_ - width_of(line);
    for (const Stream& stream : s.streams) {
      if (left < kSideBar + 1) break;
      line += " " + stream_bar(stream, kSideBar, colour_);
      left -= kSideBar + 1;
    }
  }
  return line;
}

std::string TopLines::stream(const Stream& stream) const {
  const std::string name = fmt::format("  {:<9.9}", plain_text(stream.name));
  std::string causes;
  std::vector<std::pair<double, std::string>> waits;
  for (const auto& [cause, share] : stream.wait)
    if (share >= 0.005) waits.emplace_back(share, cause);
  std::sort(waits.rbegin(), waits.rend());
  for (const auto& [share, cause] : waits)
    causes += fmt::format(" {} {}", plain_text(cause), share_text(share));
  const int bar = std::clamp(columns_ - 11 - 5 - 2 - 36, 10, 50);
  return name + "[" + stream_bar(stream, bar, colour_) + "]" +
         fmt::format(" {:>4}", share_text(stream.busy)) + painted(causes, "\x1b[2m", colour_);
}

std::string TopLines::gpu(const Gpu& gpu) const {
  std::string line = "  " + plain_text(gpu.name);
  if (gpu.utilization) line += fmt::format("  {:>4}", share_text(*gpu.utilization));
  if (gpu.memory_used_bytes && gpu.memory_total_bytes)
    line += fmt::format("  {:.1f}/{:.1f} GiB", static_cast<double>(*gpu.memory_used_bytes) / kGibibyte,
                        static_cast<double>(*gpu.memory_total_bytes) / kGibibyte);
  if (gpu.temperature_celsius) line += fmt::format("  {:.0f} C", *gpu.temperature_celsius);
  if (gpu.power_watts)
    line += gpu.power_limit_watts ? fmt::format("  {:.0f}/{:.0f} W", *gpu.power_watts, *gpu.power_limit_watts)
                                  : fmt::format("  {:.0f} W", *gpu.power_watts);
  if (gpu.sampled_seconds > 0)
    line += fmt::format("  streams {} overlap {:.2f}", share_text(gpu.busy), gpu.overlap);
  if (gpu.input_copy_seconds > 0)
    line += fmt::format("  batches {}/s {} hidden",
                        bytes_text(static_cast<double>(gpu.input_copy_bytes) / gpu.input_copy_seconds),
                        share_text(gpu.input_copy_hidden_seconds / gpu.input_copy_seconds));
  for (const GpuProcess& process : gpu.processes) {
    line += fmt::format("  {}", process.pid);
    if (!process.name.empty()) line += "/" + plain_text(process.name);
    if (process.memory_bytes) line += "(" + bytes_text(static_cast<double>(*process.memory_bytes)) + ")";
  }
  return line;
}

std::string TopLines::gpu_stream(const GpuStream& stream) const {
  Stream drawn;
  drawn.busy = stream.busy;
  const int bar = std::clamp(columns_ - 11 - 5 - 2 - 36, 10, 50);
  return fmt::format("    {:<12.12}", plain_text(stream.name)) + "[" + stream_bar(drawn, bar, colour_) + "]" +
         fmt::format(" {:>4}", share_text(stream.busy));
}

std::string TopLines::server(const Peer& peer, bool selected) const {
  const Server& v = *peer.status->server;
  TextRow row;
  row.add(plain_text(peer.task), 11, 0, true);
  if (selected) row.colour_last("\x1b[7m");
  row.add(fmt::format("{} rows", short_count(static_cast<double>(v.rows_made))), 12, 3);
  row.add(fmt::format("{}/s push", short_count(v.pushes_per_second)), 12, 1);
  row.add(fmt::format("{}/s pull", short_count(v.pulls_per_second)), 12, 2);
  row.add(fmt::format("{}/s rows", short_count(v.rows_per_second)), 12, 4);
  row.add(bytes_text(v.bytes_per_second) + "/s", 9, 5);
  row.add(fmt::format("stale {}", share_text(v.stale_share)), 10, 6);
  row.add(fmt::format("parked {}", v.parked_pulls), 10, 7);
  row.add(fmt::format("{:.1f} cores", peer.status->process.cores_used), 9, 8);
  row.add(bytes_text(static_cast<double>(peer.status->process.resident_bytes)), 7, 9);
  row.add(plain_text(peer.status->state), 10, 10, true);
  return row.fit(columns_, colour_);
}

std::string TopLines::dead(const Peer& peer, bool selected) const {
  const std::string name = plain_text(peer.task.empty() ? peer.address : peer.task);
  std::string line = fmt::format("{:<11}", name);
  if (selected) line = painted(line, "\x1b[7m", colour_);
  std::string why = plain_text(peer.error);
  if (peer.silent_seconds >= 1) why += fmt::format(", {:.0f} s", peer.silent_seconds);
  return line + painted(" DEAD? " + why + " (" + plain_text(peer.address) + ")", "\x1b[31m", colour_);
}

}  // namespace braid::watch
