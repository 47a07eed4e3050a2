#include "watch/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "watch/top_lines.h"
#include "watch/top_text.h"

namespace braid::watch {
namespace {

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

class TopPainter {
 public:
  TopPainter(const JobStatus& job, const TopOptions& options)
      : job_(job), options_(options), lines_(options.columns, options.colour) {
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
    if (!options_.zoomed) lines.push_back(lines_.titles());
    return lines;
  }

  std::vector<std::string> body(bool bars_below) const {
    std::vector<std::string> lines;
    bool server_before = false;
    for (const Peer* peer : peers_) {
      if (!peer->answers()) {
        lines.push_back(lines_.dead(*peer, peer == selected()));
        continue;
      }
      if (is_server(*peer) && !server_before && !lines.empty() && bars_below) lines.emplace_back();
      server_before = server_before || is_server(*peer);
      lines.push_back(is_server(*peer) ? lines_.server(*peer, peer == selected())
                                       : lines_.worker(*peer, peer == selected(), !bars_below));
      if (!bars_below) continue;
      for (const Stream& stream : peer->status->streams) lines.push_back(lines_.stream(stream));
      for (const Gpu& gpu : peer->status->gpus) lines.push_back(lines_.gpu(gpu));
    }
    if (!bars_below)
      for (const Peer* peer : peers_)
        if (peer->answers())
          for (const Gpu& gpu : peer->status->gpus)
            lines.push_back(fmt::format("{:<11}", plain_text(peer->task)) + lines_.gpu(gpu));
    return lines;
  }

  std::vector<std::string> zoom(const Peer& peer) const {
    if (!peer.status) return {lines_.dead(peer, &peer == selected())};
    const Status& s = *peer.status;
    std::vector<std::string> lines;
    if (!peer.answers()) lines.push_back(lines_.dead(peer, &peer == selected()));
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
    for (const Stream& stream : s.streams) lines.push_back(lines_.stream(stream));
    for (const StageState& stage : s.stages)
      lines.push_back(fmt::format("  stage {}: {} of {} ready, {} threads, {} of takes late",
                                  plain_text(stage.name), stage.ready, stage.capacity, stage.threads,
                                  share_text(stage.late_share)));
    for (const Gpu& gpu : s.gpus) {
      lines.push_back(lines_.gpu(gpu));
      for (const GpuStream& stream : gpu.streams) lines.push_back(lines_.gpu_stream(stream));
    }
    if (s.server) lines.push_back(lines_.server(peer, &peer == selected()));
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
  const TopLines lines_;
  std::vector<const Peer*> peers_;
};

}  // namespace

const char* sort_name(TopSort sort) {
  constexpr std::array<const char*, 6> kNames{"task", "step time", "rate", "busy", "input", "peers"};
  return kNames[static_cast<std::size_t>(sort)];
}

TopSort next_sort(TopSort sort) { return static_cast<TopSort>((static_cast<int>(sort) + 1) % 6); }

TopPicture draw_top(const JobStatus& job, const TopOptions& options) {
  return TopPainter(job, options).draw();
}

}  // namespace braid::watch
