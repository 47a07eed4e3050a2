#include "comm/ring/newcomers.h"

#include <fmt/core.h>
#include <poll.h>

#include <utility>

#include "base/error.h"
#include "comm/transport/security.h"

namespace braid::comm {
namespace {

short events_of(Readiness readiness) { return readiness == Readiness::Read ? POLLIN : POLLOUT; }

void require(const IoStatus& status) {
  if (status.ended) throw Unavailable(status.error.empty() ? "connection closed" : status.error);
}

}  // namespace

Newcomers::Newcomers(std::vector<int> listeners, const StreamFactory& streams, std::string what)
    : listeners_(std::move(listeners)), streams_(streams), what_(std::move(what)) {}

std::optional<Newcomer> Newcomers::next(const WaitContext& wait) {
  for (;;) {
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      bool through = false;
      try {
        through = advance(*caller);
      } catch (const Error& error) {
        warn_of_refusal(fmt::format("{}: a new connection: {}", what_, error.message()));
        caller = callers_.erase(caller);
        continue;
      }
      if (through) {
        std::optional<Newcomer> newcomer(std::move(caller->newcomer));
        callers_.erase(caller);
        return newcomer;
      }
      ++caller;
    }
    if (wait.stopped()) throw Cancelled(what_ + ": accepting connections: cancelled");
    if (wait.expired()) return std::nullopt;
    drop_late();
    wait_for_events(wait);
  }
}

bool Newcomers::advance(Caller& caller) {
  StreamSocket& socket = caller.newcomer.socket;
  const auto wait_for = [&](const IoStatus& status) {
    caller.events = status.wait ? events_of(*status.wait) : static_cast<short>(POLLIN);
    return false;
  };
  if (!caller.shaken) {
    const IoStatus status = socket.stream->handshake();
    require(status);
    if (status.wait) return wait_for(status);
    caller.shaken = true;
  }
  for (;;) {
    const auto left = caller.newcomer.hello.bytes().subspan(caller.heard);
    if (left.empty()) return true;
    const iovec piece{left.data(), left.size()};
    const IoStatus status = socket.stream->read({&piece, 1});
    caller.heard += status.bytes;
    if (status.bytes == left.size()) return true;
    require(status);
    if (status.wait) return wait_for(status);
  }
}

void Newcomers::wait_for_events(const WaitContext& wait) {
  std::vector<pollfd> entries;
  for (const int listener : listeners_) entries.push_back({has_room() ? listener : -1, POLLIN, 0});
  for (const Caller& caller : callers_)
    entries.push_back({caller.newcomer.socket.fd.get(), caller.events, 0});
  if (poll(entries.data(), entries.size(), poll_milliseconds(wait)) <= 0) return;
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (entries[i].revents) accept_from(listeners_[i]);
}

bool Newcomers::has_room() const {
  return callers_.size() < kMost || callers_.front().until - kHelloTime + kLeastTime <= Clock::now();
}

void Newcomers::accept_from(int listener) {
  if (!has_room()) return;  // another listener's newcomer took it
  auto fd = accept_now(listener);
  if (!fd) return;
  if (callers_.size() == kMost) {
    warn_of_refusal(fmt::format("{}: {} connections have said nothing: the oldest is closed", what_, kMost));
    callers_.pop_front();
  }
  Caller& caller = callers_.emplace_back();
  const int handle = fd->get();
  caller.newcomer.socket = {std::move(*fd), streams_.make(handle, true)};
  caller.until = Clock::now() + kHelloTime;
  caller.events = POLLIN;
}

void Newcomers::drop_late() {
  while (!callers_.empty() && callers_.front().until <= Clock::now()) {
    warn_of_refusal(fmt::format("{}: a new connection said nothing for {} s", what_, kHelloTime.count()));
    callers_.pop_front();
  }
}

}  // namespace braid::comm
