#include "watch/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace braid::watch {
namespace {

constexpr double kMebibyte = 1024.0 * 1024, kGibibyte = 1024 * kMebibyte;
constexpr int kSideBar = 10;  // columns of a bar beside its worker

const char* const kReset = "\x1b[0m";

struct Cause {
  const char* name;
  char letter;
  const char* colour;
  const char* says;
};
constexpr std::array<Cause, 8> kCauses{{{"busy", '#', "\x1b[32m", "busy"},
                                        {"input", 'i', "\x1b[33m", "input"},
                                        {"pull", 'p', "\x1b[35m", "pull"},
                                        {"push", 'u', "\x1b[35m", "push"},
                                        {"comm", 'c', "\x1b[34m", "comm"},
                                        {"compute", 's', "\x1b[36m", "stream"},
                                        {"space", 'f', "\x1b[36m", "full"},
                                        {"idle", '.', "\x1b[2m", "idle"}}};

std::string painted(const std::string& text, const char* colour, bool on) {
  return on && !text.empty() ? colour + text + kReset : text;
}

/// Cut to `width` columns; colours take none.
std::string cut(const std::string& line, int width) {
  std::string out;
  int at = 0;
  bool coloured = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      const std::size_t end = line.find('m', i);
      if (end == std::string::npos) break;
      out += line.substr(i, end + 1 - i);
      coloured = line.substr(i, end + 1 - i) != kReset;
      i = end;
      continue;
    }
    if (at == width) break;
    out += line[i];
    ++at;
  }
  return coloured ? out + kReset : out;
}

std::string share_text(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string bytes_text(double bytes) {
  if (bytes >= kGibibyte) return fmt::format("{:.1f}G", bytes / kGibibyte);
  if (bytes >= kMebibyte) return fmt::format("{:.1f}M", bytes / kMebibyte);
  return fmt::format("{:.0f}k", bytes / 1024);
}

std::string time_text(double seconds) {
  if (seconds >= 10) return fmt::format("{:.0f}s", seconds);
  if (seconds >= 1) return fmt::format("{:.1f}s", seconds);
  return seconds >= 0.01 ? fmt::format("{:.0f}ms", 1e3 * seconds) : fmt::format("{:.2f}ms", 1e3 * seconds);
}

std::string number_text(double value) {
  return std::fabs(value) < 1e5 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

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

double sort_key(const Status& s, TopSort sort) {
  switch (sort) {
    case TopSort::Task:
      return 0;
    case TopSort::StepTime:
      return s.step_seconds;
    case TopSort::Rate:
      return -s.examples_per_second;  // the slowest first
    case TopSort::Busy:
      return s.compute_busy;
    case TopSort::Input:
      return wait_of(s, {"input"});
    case TopSort::Peers:
      return wait_of(s, {"pull", "push", "comm"});
  }
  return 0;
}

/// "worker 2" before "worker 10".
std::pair<std::string, long> task_key(const std::string& task) {
  const auto space = task.rfind(' ');
  if (space == std::string::npos) return {task, 0};
  return {task.substr(0, space), std::atol(task.c_str() + space + 1)};
}

/// Cells of a row, of which the most important fit.
class Row {
 public:
  /// `rank`: a higher one goes first when there is no room.
  void add(std::string text, int width, int rank, bool left = false) {
    cells_.push_back({std::move(text), width, rank, left, nullptr});
  }
  void colour_last(const char* colour) { cells_.back().colour = colour; }

  std::string fit(int columns, bool colour) const {
    std::vector<bool> takes(cells_.size(), false);
    int used = 0;
    for (int rank = 0; rank < 20; ++rank)
      for (std::size_t i = 0; i < cells_.size(); ++i)
        if (cells_[i].rank == rank && used + cells_[i].width + (used > 0 ? 1 : 0) <= columns) {
          takes[i] = true;
          used += cells_[i].width + (used > 0 ? 1 : 0);
        }
    std::string line;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (!takes[i]) continue;
      const Cell& cell = cells_[i];
      std::string text = cut(cell.text, cell.width);
      const auto width = static_cast<std::size_t>(cell.width);
      text = cell.left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
      if (!line.empty()) line += ' ';
      line += cell.colour ? painted(text, cell.colour, colour) : text;
    }
    return line;
  }

 private:
  struct Cell {
    std::string text;
    int width;
    int rank;
    bool left;
    const char* colour;
  };
  std::vector<Cell> cells_;
};

class TopPainter {
 public:
  TopPainter(const JobStatus& job, const TopOptions& options) : job_(job), options_(options) {
    for (const Peer& peer : job.peers) {
      const std::string name = peer.task.empty() ? peer.address : peer.task;
      if (options.filter.empty() || name.find(options.filter) != std::string::npos) peers_.push_back(&peer);
    }
    std::stable_sort(peers_.begin(), peers_.end(), [&](const Peer* a, const Peer* b) {
      // Who does not answer first: that is what one looks for.
      if (a->answers() != b->answers()) return !a->answers();
      if (is_server(*a) != is_server(*b)) return is_server(*b);
      if (a->answers() && options.sort != TopSort::Task) {
        const double left = sort_key(*a->status, options.sort), right = sort_key(*b->status, options.sort);
        if (left != right) return left > right;
      }
      return task_key(a->task) < task_key(b->task);
    });
  }

  TopPicture draw() {
    TopPicture picture;
    for (const Peer* peer : peers_) picture.tasks.push_back(peer->task.empty() ? peer->address : peer->task);
    std::vector<std::string> head = header(), foot = footer();
    std::vector<std::string> middle = options_.zoomed && selected() ? zoom(*selected()) : body(true);
    const bool fits = room(head, foot) >= static_cast<int>(middle.size());
    if (!fits && !(options_.zoomed && selected())) middle = body(false);
    clip(middle, room(head, foot), picture);
    for (auto* part : {&head, &middle, &foot})
      for (const std::string& line : *part) picture.lines.push_back(cut(line, options_.columns));
    return picture;
  }

 private:
  static bool is_server(const Peer& peer) {
    return peer.status ? peer.status->server.has_value() : peer.task.starts_with("ps");
  }
  const Peer* selected() const {
    return options_.selected >= 0 && options_.selected < static_cast<int>(peers_.size())
               ? peers_[static_cast<std::size_t>(options_.selected)]
               : nullptr;
  }
  std::string paint(const std::string& text, const char* colour) const {
    return painted(text, colour, options_.colour);
  }

  int room(const std::vector<std::string>& head, const std::vector<std::string>& foot) const {
    return options_.rows == 0 ? 1 << 20
                              : std::max(1, options_.rows - static_cast<int>(head.size() + foot.size()));
  }

  void clip(std::vector<std::string>& middle, int most, TopPicture& picture) const {
    const int size = static_cast<int>(middle.size());
    picture.most_scroll = std::max(0, size - most);
    const int from = std::clamp(options_.scroll, 0, picture.most_scroll);
    middle.erase(middle.begin(), middle.begin() + from);
    if (static_cast<int>(middle.size()) <= most) return;
    const int hidden = static_cast<int>(middle.size()) - most + 1;
    middle.resize(static_cast<std::size_t>(most));
    middle.back() = paint(fmt::format("... {} more lines (arrows)", hidden), "\x1b[2m");
  }

  const Status* leader() const {
    const Status* found = nullptr;
    for (const Peer& peer : job_.peers)
      if (peer.status && peer.status->trains && (!found || peer.status->leads)) {
        found = &*peer.status;
        if (found->leads) break;
      }
    return found;
  }

  std::vector<std::string> header() const {
    double rate = 0;
    std::size_t answers = 0;
    for (const Peer& peer : job_.peers) {
      if (!peer.answers()) continue;
      ++answers;
      rate += peer.status->examples_per_second;
    }
    std::vector<std::string> words{plain_text(job_.job.empty() ? "braid" : job_.job)};
    if (const Status* s = leader()) {
      const double share =
          s->target_steps > 0 ? static_cast<double>(s->step) / static_cast<double>(s->target_steps) : 0;
      words.push_back(s->target_steps > 0
                          ? fmt::format("step {}/{} ({:.0f}%)", s->step, s->target_steps, 100 * share)
                          : fmt::format("step {}", s->step));
      if (s->loss) words.push_back("loss " + number_text(*s->loss));
      for (const auto& [name, value] : s->metrics)
        if (words.size() < 6) words.push_back(fmt::format("{} {:.4f}", plain_text(name), value));
      if (s->learning_rate) words.push_back(fmt::format("lr {:.3g}", *s->learning_rate));
    }
    words.insert(words.begin() + 1 + (words.size() > 2 ? 2 : 0), short_count(rate) + " examples/s");
    words.push_back(fmt::format("{} of {} answer", answers, job_.peers.size()));
    // As many words a line as fit.
    std::vector<std::string> lines{""};
    for (const std::string& word : words) {
      if (!lines.back().empty() &&
          lines.back().size() + 2 + word.size() > static_cast<std::size_t>(options_.columns))
        lines.emplace_back();
      lines.back() += (lines.back().empty() ? "" : "  ") + word;
    }
    for (std::string& line : lines) line = paint(line, "\x1b[1m");
    if (!options_.zoomed) {
      Row titles;
      titles.add("task", 11, 0, true);
      worker_titles(titles);
      lines.push_back(paint(titles.fit(options_.columns, false), "\x1b[2m"));
    }
    return lines;
  }

  static void worker_titles(Row& row) {
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
  }

  std::string worker_row(const Peer& peer, bool with_bars) const {
    const Status& s = *peer.status;
    Row row;
    row.add(plain_text(peer.task), 11, 0, true);
    if (&peer == selected()) row.colour_last("\x1b[7m");
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
    std::string line = row.fit(options_.columns, options_.colour);
    if (with_bars) {
      int left = options_.columns - width_of(line);
      for (const Stream& stream : s.streams) {
        if (left < kSideBar + 1) break;
        line += " " + stream_bar(stream, kSideBar, options_.colour);
        left -= kSideBar + 1;
      }
    }
    return line;
  }

  static int width_of(const std::string& line) {
    int width = 0;
    for (std::size_t i = 0; i < line.size(); ++i)
      if (line[i] == '\x1b')
        i = std::min(line.find('m', i), line.size());
      else
        ++width;
    return width;
  }

  std::string stream_row(const Stream& stream) const {
    const std::string name = fmt::format("  {:<9.9}", plain_text(stream.name));
    std::string causes;
    std::vector<std::pair<double, std::string>> waits;
    for (const auto& [cause, share] : stream.wait)
      if (share >= 0.005) waits.emplace_back(share, cause);
    std::sort(waits.rbegin(), waits.rend());
    for (const auto& [share, cause] : waits)
      causes += fmt::format(" {} {}", plain_text(cause), share_text(share));
    const int bar = std::clamp(options_.columns - 11 - 5 - 2 - 36, 10, 50);
    return name + "[" + stream_bar(stream, bar, options_.colour) + "]" +
           fmt::format(" {:>4}", share_text(stream.busy)) + paint(causes, "\x1b[2m");
  }

  std::string gpu_row(const Gpu& gpu) const {
    std::string line = "  " + plain_text(gpu.name);
    if (gpu.utilization) line += fmt::format("  {:>4}", share_text(*gpu.utilization));
    if (gpu.memory_used_bytes && gpu.memory_total_bytes)
      line += fmt::format("  {:.1f}/{:.1f} GiB", static_cast<double>(*gpu.memory_used_bytes) / kGibibyte,
                          static_cast<double>(*gpu.memory_total_bytes) / kGibibyte);
    if (gpu.temperature_celsius) line += fmt::format("  {:.0f} C", *gpu.temperature_celsius);
    if (gpu.power_watts)
      line += gpu.power_limit_watts
                  ? fmt::format("  {:.0f}/{:.0f} W", *gpu.power_watts, *gpu.power_limit_watts)
                  : fmt::format("  {:.0f} W", *gpu.power_watts);
    if (gpu.sampled_seconds > 0)
      line += fmt::format("  streams {} overlap {:.2f}", share_text(gpu.busy), gpu.overlap);
    for (const GpuProcess& process : gpu.processes) {
      line += fmt::format("  {}", process.pid);
      if (!process.name.empty()) line += "/" + plain_text(process.name);
      if (process.memory_bytes) line += "(" + bytes_text(static_cast<double>(*process.memory_bytes)) + ")";
    }
    return line;
  }

  std::string gpu_stream_row(const GpuStream& stream) const {
    Stream drawn;
    drawn.busy = stream.busy;
    const int bar = std::clamp(options_.columns - 11 - 5 - 2 - 36, 10, 50);
    return fmt::format("    {:<12.12}", plain_text(stream.name)) + "[" +
           stream_bar(drawn, bar, options_.colour) + "]" + fmt::format(" {:>4}", share_text(stream.busy));
  }

  std::string server_row(const Peer& peer) const {
    const Server& v = *peer.status->server;
    Row row;
    row.add(plain_text(peer.task), 11, 0, true);
    if (&peer == selected()) row.colour_last("\x1b[7m");
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
    return row.fit(options_.columns, options_.colour);
  }

  std::string dead_row(const Peer& peer) const {
    const std::string name = plain_text(peer.task.empty() ? peer.address : peer.task);
    std::string line = fmt::format("{:<11}", name);
    if (&peer == selected()) line = paint(line, "\x1b[7m");
    std::string why = plain_text(peer.error);
    if (peer.silent_seconds >= 1) why += fmt::format(", {:.0f} s", peer.silent_seconds);
    return line + paint(" DEAD? " + why + " (" + plain_text(peer.address) + ")", "\x1b[31m");
  }

  std::vector<std::string> body(bool bars_below) const {
    std::vector<std::string> lines;
    bool server_before = false;
    for (const Peer* peer : peers_) {
      if (!peer->answers()) {
        lines.push_back(dead_row(*peer));
        continue;
      }
      if (is_server(*peer) && !server_before && !lines.empty() && bars_below) lines.emplace_back();
      server_before = server_before || is_server(*peer);
      lines.push_back(is_server(*peer) ? server_row(*peer) : worker_row(*peer, !bars_below));
      if (!bars_below) continue;
      for (const Stream& stream : peer->status->streams) lines.push_back(stream_row(stream));
      for (const Gpu& gpu : peer->status->gpus) lines.push_back(gpu_row(gpu));
    }
    if (!bars_below)
      for (const Peer* peer : peers_)
        if (peer->answers())
          for (const Gpu& gpu : peer->status->gpus)
            lines.push_back(fmt::format("{:<11}", plain_text(peer->task)) + gpu_row(gpu));
    return lines;
  }

  std::vector<std::string> zoom(const Peer& peer) const {
    if (!peer.status) return {dead_row(peer)};
    const Status& s = *peer.status;
    std::vector<std::string> lines;
    if (!peer.answers()) lines.push_back(dead_row(peer));
    lines.push_back(
        paint(fmt::format("{} on {} ({}), {}, up {}", plain_text(peer.task), plain_text(s.host),
                          plain_text(peer.address), plain_text(s.state), time_text(s.uptime_seconds)),
              "\x1b[1m"));
    if (s.trains)
      lines.push_back(fmt::format("step {}  {}  {} examples/s  batch {} of {}  overlap {:.2f}", s.step,
                                  time_text(s.step_seconds), short_count(s.examples_per_second), s.batch_rows,
                                  s.global_batch_rows, s.overlap));
    lines.push_back(fmt::format(
        "pid {}  {:.2f} of {} cores  {} of {} memory  {} threads", s.process.pid, s.process.cores_used,
        s.process.cores, bytes_text(static_cast<double>(s.process.resident_bytes)),
        bytes_text(static_cast<double>(s.process.memory_limit_bytes)), s.process.threads));
    lines.push_back(fmt::format("network {}/s in  {}/s out", bytes_text(s.network.received_per_second),
                                bytes_text(s.network.sent_per_second)));
    if (s.checkpoints)
      lines.push_back(fmt::format("checkpoint of step {}, {} ago, took {}", s.checkpoints->last_step,
                                  time_text(s.checkpoints->age_seconds),
                                  time_text(s.checkpoints->duration_seconds)));
    for (const auto& [name, value] : s.metrics)
      lines.push_back(fmt::format("{} {:.5f} (step {})", plain_text(name), value, s.metrics_step));
    for (const Stream& stream : s.streams) lines.push_back(stream_row(stream));
    for (const StageState& stage : s.stages)
      lines.push_back(fmt::format("  stage {}: {} of {} ready, {} threads, {} of takes late",
                                  plain_text(stage.name), stage.ready, stage.capacity, stage.threads,
                                  share_text(stage.late_share)));
    for (const Gpu& gpu : s.gpus) {
      lines.push_back(gpu_row(gpu));
      for (const GpuStream& stream : gpu.streams) lines.push_back(gpu_stream_row(stream));
    }
    if (s.server) lines.push_back(server_row(peer));
    return lines;
  }

  /// At blanks, so that no line is wider than the terminal.
  void wrap(const std::string& text, const char* colour, std::vector<std::string>& lines) const {
    const auto width = static_cast<std::size_t>(std::max(20, options_.columns));
    std::string rest = text;
    bool first = true;
    while (!rest.empty()) {
      const std::size_t room = width - (first ? 0 : 4);
      std::size_t end = rest.size();
      if (end > room) {
        end = rest.rfind(' ', room);
        if (end == std::string::npos || end == 0) end = room;
      }
      lines.push_back(paint((first ? "" : "    ") + rest.substr(0, end), colour));
      rest.erase(0, end);
      rest.erase(0, rest.find_first_not_of(' '));
      first = false;
    }
  }

  std::vector<std::string> footer() const {
    std::vector<std::string> lines;
    const std::size_t most =
        options_.rows == 0 ? 1000 : static_cast<std::size_t>(std::max(2, options_.rows / 3));
    for (const Warning& warning : job_.warnings) {
      std::vector<std::string> more;
      wrap("! " + plain_text(warning.task.empty() ? warning.text : warning.task + ": " + warning.text) +
               " -> " + plain_text(warning.advice),
           "\x1b[33m", more);
      if (lines.size() + more.size() > most) {
        lines.push_back(paint("! more warnings: braid doctor ADDR", "\x1b[33m"));
        break;
      }
      lines.insert(lines.end(), more.begin(), more.end());
    }
    if (options_.rows == 0 || options_.columns >= 78) lines.push_back(bar_legend(options_.colour));
    if (options_.rows > 0)
      lines.push_back(!options_.prompt.empty()
                          ? options_.prompt
                          : fmt::format("q quit  s sort: {}  / filter{}  arrows  enter zoom",
                                        sort_name(options_.sort),
                                        options_.filter.empty() ? "" : ": " + plain_text(options_.filter)));
    return lines;
  }

  const JobStatus& job_;
  const TopOptions& options_;
  std::vector<const Peer*> peers_;
};

}  // namespace

const char* sort_name(TopSort sort) {
  constexpr std::array<const char*, 6> kNames{"task", "step time", "rate", "busy", "input", "peers"};
  return kNames[static_cast<std::size_t>(sort)];
}

TopSort next_sort(TopSort sort) { return static_cast<TopSort>((static_cast<int>(sort) + 1) % 6); }

std::string plain_text(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = '?';
  return out;
}

std::string short_count(double count) {
  if (!(std::fabs(count) < 1e15)) return "?";
  if (count >= 1e9) return fmt::format("{:.2f}G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e5) return fmt::format("{:.0f}k", count / 1e3);
  if (count >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return count < 10 && count > 0 ? fmt::format("{:.1f}", count) : fmt::format("{:.0f}", count);
}

std::string stream_bar(const Stream& stream, int width, bool colour) {
  std::vector<double> shares(kCauses.size(), 0.0);
  shares[0] = stream.busy;
  for (const auto& [name, share] : stream.wait) {
    std::size_t at = kCauses.size() - 1;  // a cause that is new here looks idle
    for (std::size_t c = 1; c < kCauses.size(); ++c)
      if (name == kCauses[c].name) at = c;
    shares[at] += share;
  }
  // Ends of the parts are rounded, so that they always fill the bar.
  std::string bar;
  double sum = 0;
  int drawn = 0;
  for (std::size_t c = 0; c < kCauses.size(); ++c) {
    sum = c + 1 == kCauses.size() ? 1.0 : std::min(1.0, sum + shares[c]);
    const int end = static_cast<int>(std::lround(sum * width));
    const std::string part(static_cast<std::size_t>(std::max(0, end - drawn)), kCauses[c].letter);
    bar += painted(part, kCauses[c].colour, colour);
    drawn = std::max(drawn, end);
  }
  return bar;
}

std::string bar_legend(bool colour) {
  std::string text;
  for (const Cause& cause : kCauses)
    text += (text.empty() ? "" : "  ") + painted(std::string(1, cause.letter), cause.colour, colour) + " " +
            cause.says;
  return text;
}

TopPicture draw_top(const JobStatus& job, const TopOptions& options) {
  return TopPainter(job, options).draw();
}

}  // namespace braid::watch
