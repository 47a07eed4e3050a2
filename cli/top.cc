// `braid top`: a running job on the terminal (watch/top_view.h draws it).
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/watched_job.h"
#include "watch/top_view.h"

namespace braid::cli {
namespace {

using std::chrono::milliseconds;

struct TopFlags {
  WatchedFlags watched;
  bool once = false;
  bool json = false;
  double interval = 1;
  double timeout = 2;
  int columns = 0;
};

milliseconds in_ms(double seconds) { return milliseconds(static_cast<std::int64_t>(1000 * seconds)); }

bool colour_on_output() {
  const std::string type = env_string("TERM").value_or("");
  return ::isatty(STDOUT_FILENO) == 1 && !env_string("NO_COLOR") && !type.empty() && type != "dumb";
}

winsize output_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {};
  return size;
}

int columns_of_output(const TopFlags& flags) {
  if (flags.columns > 0) return flags.columns;
  if (const winsize size = output_size(); size.ws_col > 0) return size.ws_col;
  return static_cast<int>(env_int("COLUMNS", 20, 10'000).value_or(100));
}

void write_all(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    at += static_cast<std::size_t>(wrote);
  }
}

volatile std::sig_atomic_t top_ended = 0;

/// The terminal gives keys at once and shows another screen, until this goes.
class WholeScreen {
 public:
  WholeScreen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    struct sigaction end {};
    end.sa_handler = [](int) { top_ended = 1; };
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &end, nullptr);
    struct sigaction wake {};
    wake.sa_handler = [](int) {};
    ::sigaction(SIGWINCH, &wake, nullptr);
    write_all("\x1b[?1049h\x1b[?25l");
  }
  ~WholeScreen() {
    write_all("\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  WholeScreen(const WholeScreen&) = delete;
  WholeScreen& operator=(const WholeScreen&) = delete;

 private:
  termios before_{};
};

/// Asks on a thread of its own, so that a silent peer does not hold up the keys.
class Asking {
 public:
  explicit Asking(const TopFlags& flags)
      : job_(flags.watched), interval_(in_ms(flags.interval)), timeout_(in_ms(flags.timeout)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  watch::JobStatus latest() const {
    std::lock_guard lock(mu_);
    return latest_;
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex sleeping;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      watch::JobStatus now = job_.ask(timeout_);
      {
        std::lock_guard lock(mu_);
        latest_ = std::move(now);
      }
      std::unique_lock lock(sleeping);
      wake.wait_for(lock, stop, interval_, [] { return false; });
    }
  }

  WatchedJob job_;
  const milliseconds interval_, timeout_;
  mutable std::mutex mu_;
  watch::JobStatus latest_;  // guarded by mu_
  std::jthread thread_;
};

class Screen {
 public:
  explicit Screen(const TopFlags& flags) : flags_(flags), asking_(flags) {}

  int run() {
    const WholeScreen screen;
    while (!top_ended && !over_) {
      draw();
      pollfd keys{STDIN_FILENO, POLLIN, 0};
      const int ready = ::poll(&keys, 1, 200);
      if (ready > 0 && (keys.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0 && (keys.revents & POLLIN) == 0)
        break;
      if (ready > 0) read_keys();
    }
    return kExitSuccess;
  }

 private:
  void draw() {
    const watch::JobStatus job = asking_.latest();
    const winsize size = output_size();
    options_.columns = columns_of_output(flags_);
    options_.rows = size.ws_row > 0 ? size.ws_row : 24;
    options_.colour = colour_on_output();
    options_.prompt = typing_ ? "filter: " + options_.filter + "_" : "";
    const watch::TopPicture picture =
        job.time > 0 ? draw_top(job, options_) : watch::TopPicture{{"asking..."}, {}, 0};
    tasks_ = static_cast<int>(picture.tasks.size());
    most_scroll_ = picture.most_scroll;
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < picture.lines.size(); ++i)
      text += (i > 0 ? "\r\n" : "") + picture.lines[i] + "\x1b[K";
    write_all(text + "\x1b[J");
  }

  void read_keys() {
    char keys[64];
    const ssize_t got = ::read(STDIN_FILENO, keys, sizeof(keys));
    if (got == 0) over_ = true;
    for (ssize_t i = 0; i < got; ++i) {
      if (keys[i] == '\x1b' && i + 2 < got && keys[i + 1] == '[') {
        move(keys[i + 2]);
        i += 2;
        continue;
      }
      typing_ ? type(keys[i]) : press(keys[i]);
    }
  }

  void move(char arrow) {
    if (arrow == 'A') select(-1);
    if (arrow == 'B') select(1);
    if (arrow == '5') options_.scroll = std::max(0, options_.scroll - 10);
    if (arrow == '6') options_.scroll = std::min(most_scroll_, options_.scroll + 10);
  }

  void select(int by) {
    options_.selected = std::clamp(options_.selected + by, -1, tasks_ - 1);
    options_.scroll = std::clamp(options_.scroll + by, 0, most_scroll_);
  }

  void type(char key) {
    if (key == '\r' || key == '\n' || key == '\x1b')
      typing_ = false;
    else if ((key == 0x7f || key == '\b') && !options_.filter.empty())
      options_.filter.pop_back();
    else if (key >= 0x20 && key < 0x7f)
      options_.filter += key;
  }

  void press(char key) {
    switch (key) {
      case 'q':
        over_ = true;
        break;
      case 's':
        options_.sort = next_sort(options_.sort);
        break;
      case '/':
        typing_ = true;
        options_.filter.clear();
        break;
      case 'j':
        select(1);
        break;
      case 'k':
        select(-1);
        break;
      case '\r':
      case '\n':
        if (options_.selected < 0) options_.selected = 0;
        options_.zoomed = !options_.zoomed;
        options_.scroll = 0;
        break;
      case '\x1b':
        options_.zoomed = false;
        options_.filter.clear();
        break;
      default:
        break;
    }
  }

  const TopFlags& flags_;
  Asking asking_;
  watch::TopOptions options_;
  bool typing_ = false, over_ = false;
  int tasks_ = 0, most_scroll_ = 0;
};

int run_top(const TopFlags& flags) {
  const bool screen = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDIN_FILENO) == 1;
  if (!flags.once && !flags.json && screen) return Screen(flags).run();
  WatchedJob job(flags.watched);
  const watch::JobStatus& now = job.ask_all(in_ms(flags.timeout));
  if (flags.json) {
    fmt::print("{}\n", to_json(now));
  } else {
    watch::TopOptions options;
    options.columns = columns_of_output(flags);
    options.colour = colour_on_output();
    for (const std::string& line : draw_top(now, options).lines) fmt::print("{}\n", line);
  }
  for (const watch::Peer& peer : now.peers)
    if (peer.answers()) return kExitSuccess;
  return kExitFailed;
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* sub = app.add_subcommand(
      "top",
      "Watch a running job: a row a worker, a bar a stream, servers, GPUs, and what limits it.\n"
      "Keys: q ends, s sorts, / filters, arrows select, enter zooms. Exit code 1: nobody answers.");
  add_watched_flags(*sub, flags->watched);
  sub->add_flag("--once", flags->once, "Print it once, also where the output is a terminal");
  sub->add_flag("--json", flags->json, "Print what the processes say as one JSON object, once");
  sub->add_option("--interval", flags->interval, "Seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  sub->add_option("--timeout", flags->timeout,
                  "Seconds after which a process that does not answer is a row that says so")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  sub->add_option("--columns", flags->columns, "Width; default: the terminal's, COLUMNS, or 100")
      ->check(CLI::Range(20, 10'000));
  sub->callback([flags, &action] { action = [flags] { return run_top(*flags); }; });
}

}  // namespace braid::cli
