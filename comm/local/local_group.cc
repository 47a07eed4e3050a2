#include "comm/local/local_group.h"

#include <fmt/core.h>

#include <cstring>

#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

bool LocalOffer::agrees(const LocalOffer& other) const {
  return operation == other.operation && count == other.count && dtype == other.dtype &&
         argument == other.argument;
}

std::string LocalOffer::text() const {
  return fmt::format("{} of {} {} ({})", operation, count, dtype_name(dtype), argument);
}

LocalGroup::LocalGroup(int size)
    : size_(size), offers_(at(size)), arrived_(at(size)), gone_(at(size)), letters_(at(size * size)) {}

void LocalGroup::meet(int rank, const LocalOffer& offer, const WaitContext& wait) {
  std::unique_lock lock(mutex_);
  throw_if_broken_locked(rank);
  offers_[at(rank)] = offer;
  arrive(lock, rank, offer, wait);
}

void LocalGroup::part() {
  std::unique_lock lock(mutex_);
  const auto meeting = meetings_;
  if (count_arrival())
    changed_.notify_all();
  else
    changed_.wait(lock, [&] { return meetings_ != meeting; });
}

void LocalGroup::arrive(std::unique_lock<std::mutex>& lock, int rank, const LocalOffer& offer,
                        const WaitContext& wait) {
  for (int other = 0; other < size_; ++other)
    if (arrived_[at(other)] && !offers_[at(other)].agrees(offer))
      break_locked(ErrorCode::InvalidArgument,
                   fmt::format("[local] rank {} calls {} and rank {} calls {}", other,
                               offers_[at(other)].text(), rank, offer.text()));
  throw_if_broken_locked(rank);
  const auto meeting = meetings_;
  arrived_[at(rank)] = true;
  if (count_arrival()) {
    changed_.notify_all();
    return;
  }
  wait_for(lock, wait, fmt::format("[local] rank {}: {}", rank, offer.operation), std::nullopt,
           [&] { return meetings_ != meeting; });
}

bool LocalGroup::count_arrival() {
  if (++arrivals_ < size_) return false;
  arrivals_ = 0;
  arrived_.assign(at(size_), false);
  ++meetings_;
  return true;
}

void LocalGroup::send(int rank, int destination, const void* data, std::int64_t count, DType dtype,
                      const WaitContext& wait) {
  std::unique_lock lock(mutex_);
  throw_if_broken_locked(rank);
  std::optional<Letter>& sent = letter(rank, destination);
  sent = Letter{Letter::State::Waiting, data, count, dtype};
  changed_.notify_all();
  wait_for(lock, wait,
           fmt::format("[local] rank {}: send: rank {} (a thread of this process) did not receive", rank,
                       destination),
           destination, [&] { return sent->state != Letter::State::Waiting; });
  // No deadline here: the receiver only copies, and returning earlier would take away the memory that it
  // copies.
  changed_.wait(lock, [&] { return sent->state == Letter::State::Read; });
  sent.reset();
}

void LocalGroup::recv(int rank, int source, void* data, std::int64_t count, DType dtype,
                      const WaitContext& wait) {
  std::unique_lock lock(mutex_);
  throw_if_broken_locked(rank);
  std::optional<Letter>& sent = letter(source, rank);
  wait_for(
      lock, wait,
      fmt::format("[local] rank {}: recv: rank {} (a thread of this process) did not send", rank, source),
      source, [&] { return sent && sent->state == Letter::State::Waiting; });
  if (sent->count != count || sent->dtype != dtype) {
    break_locked(ErrorCode::InvalidArgument,
                 fmt::format("[local] rank {} sends {} {} and rank {} receives {} {}", source, sent->count,
                             dtype_name(sent->dtype), rank, count, dtype_name(dtype)));
    throw_error(*broken_);
  }
  sent->state = Letter::State::BeingRead;
  const void* from = sent->data;
  lock.unlock();
  if (count > 0 && data != from) std::memcpy(data, from, static_cast<std::size_t>(count) * dtype_size(dtype));
  lock.lock();
  sent->state = Letter::State::Read;
  changed_.notify_all();
}

void LocalGroup::leave(int rank) {
  std::lock_guard lock(mutex_);
  gone_[at(rank)] = true;
  changed_.notify_all();
}

void LocalGroup::break_off(ErrorCode code, const std::string& text) {
  std::lock_guard lock(mutex_);
  break_locked(code, text);
}

void LocalGroup::throw_if_broken(int rank) const {
  std::lock_guard lock(mutex_);
  throw_if_broken_locked(rank);
}

template <class Done>
void LocalGroup::wait_for(std::unique_lock<std::mutex>& lock, const WaitContext& wait,
                          const std::string& what, std::optional<int> peer, Done done) {
  const auto lost = [&]() -> std::optional<int> {
    for (int other = 0; other < size_; ++other)
      if (gone_[at(other)] && (peer ? *peer == other : !arrived_[at(other)])) return other;
    return std::nullopt;
  };
  try {
    wait_on(changed_, lock, wait, what, [&] { return done() || broken_ || lost(); });
  } catch (const DeadlineExceeded& error) {
    auto text = error.message();
    if (!peer) {
      std::vector<int> missing;
      for (int other = 0; other < size_; ++other)
        if (!arrived_[at(other)]) missing.push_back(other);
      text += fmt::format(": {} (threads of this process) did not take part", rank_list(missing));
    }
    break_locked(ErrorCode::DeadlineExceeded, text);
  } catch (const Error& error) {
    break_locked(error.code(), error.message());
  }
  if (done()) return;
  if (!broken_)
    break_locked(ErrorCode::Unavailable,
                 fmt::format("{}: rank {} (a thread of this process) is gone", what, *lost()));
  const ErrorPtr error = broken_;
  throw_error(*error);
}

void LocalGroup::break_locked(ErrorCode code, const std::string& text) {
  if (!broken_) broken_ = make_error(code, text);
  changed_.notify_all();
}

void LocalGroup::throw_if_broken_locked(int rank) const {
  if (broken_)
    throw Unavailable(fmt::format("[local] rank {}: the communicator is broken: {}", rank, broken_->message));
}

}  // namespace braid::comm
