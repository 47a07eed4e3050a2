#include "launch/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace braid::launch {
namespace {

// A handler is given nothing but the number, so the pipe it writes to is the process's.
std::atomic<int> signal_target{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void write_signal(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(signal_target.load(), &byte, 1);
  errno = saved;
}

}  // namespace

SignalPipe::SignalPipe() : pipe_(make_pipe()) {
  int none = -1;
  if (!signal_target.compare_exchange_strong(none, pipe_.write_end.get()))
    throw Internal("[launch] two launches in one process at a time");
  // A full pipe already says that there is something to look at.
  ::fcntl(pipe_.write_end.get(), F_SETFL, O_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = write_signal;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &former_[i]);
    // Without SIGCHLD nobody would say that a child has ended.
    if (former_[i].sa_handler != SIG_IGN || kSignals[i] == SIGCHLD)
      ::sigaction(kSignals[i], &action, nullptr);
  }
}

SignalPipe::~SignalPipe() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &former_[i], nullptr);
  signal_target.store(-1);
}

std::vector<int> SignalPipe::take() {
  std::vector<int> signals;
  std::array<unsigned char, 64> bytes;
  ssize_t got;
  while ((got = ::read(descriptor(), bytes.data(), bytes.size())) > 0)
    signals.insert(signals.end(), bytes.begin(), bytes.begin() + got);
  return signals;
}

}  // namespace braid::launch
