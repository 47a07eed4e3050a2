#include "worker/process/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "launch/signal_pipe.h"

namespace braid::worker {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  // What whoever started the process had it ignore stays ignored: nohup and SIGHUP, a script's "&" and
  // SIGINT.
  for (const int number : {SIGINT, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

const char* name_of(const siginfo_t& info) {
  if (info.si_code == SI_QUEUE && info.si_value.sival_int == SIGPIPE) return "SIGPIPE";
  return info.si_signo == SIGTERM ? "SIGTERM" : info.si_signo == SIGINT ? "SIGINT" : "SIGHUP";
}

/// SIGPIPE is the thread's that wrote; what it asks for is asked of the process.
void pass_on_pipe(int number) {
  const int saved = errno;
  ::sigqueue(::getpid(), SIGTERM, {.sival_int = number});
  errno = saved;
}

/// Whoever read the output is gone, often by the signal that we get, too (`| tee` and Ctrl-C).
void catch_pipe() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = pass_on_pipe;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  catch_pipe();
  thread_ = std::jthread([flag = flag_](std::stop_token stop) {
    const sigset_t set = stop_signals();
    std::chrono::steady_clock::time_point asked_at;
    while (!stop.stop_requested()) {
      const timespec tick{0, 100'000'000};
      siginfo_t info{};
      const int signal = sigtimedwait(&set, &info, &tick);
      if (signal <= 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (flag->requested() && (signal != SIGINT || now < asked_at + launch::kOneRequest)) continue;
      if (flag->requested()) _exit(128 + signal);
      if (!flag->ended()) log_info("signal {}: stopping after the current step", name_of(info));
      asked_at = now;
      flag->request();
    }
  });
}

StopSignal::~StopSignal() = default;

}  // namespace braid::worker
