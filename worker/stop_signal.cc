#include "worker/stop_signal.h"

#include <signal.h>
#include <unistd.h>

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

const char* name_of(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP";
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::jthread([flag = flag_](std::stop_token stop) {
    const sigset_t set = stop_signals();
    std::chrono::steady_clock::time_point asked_at;
    while (!stop.stop_requested()) {
      const timespec tick{0, 100'000'000};
      const int signal = sigtimedwait(&set, nullptr, &tick);
      if (signal <= 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (flag->requested() && (signal != SIGINT || now < asked_at + launch::kOneRequest)) continue;
      if (flag->requested()) _exit(128 + signal);
      if (!flag->ended()) log_info("signal {}: stopping after the current step", name_of(signal));
      asked_at = now;
      flag->request();
    }
  });
}

StopSignal::~StopSignal() = default;

}  // namespace braid::worker
