#include "worker/run/replicas.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/wait_context.h"
#include "comm/communicator.h"
#include "worker/run/trainer.h"

namespace braid::worker {
namespace {

/// It is this process that reads, however long that takes.
constexpr std::chrono::hours kReadTime{24};

bool ended_wait(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return ended_a_wait(known);
  } catch (...) {
    return false;
  }
}

}  // namespace

Replicas::Replicas(std::vector<std::string> names)
    : names_(std::move(names)), communicators_(names_.size()), sources_(names_.size()) {}

JobData Replicas::rows(int replica, const std::function<JobData()>& read, const std::stop_token& stop) {
  if (replica == 0) {
    JobData data = read();
    const std::lock_guard lock(mu_);
    rows_ = data;
    rows_->test = nullptr;
    rows_->open_test = {};
    changed_.notify_all();
    return data;
  }
  {
    std::unique_lock lock(mu_);
    wait_on(changed_, lock, WaitContext::with_timeout(kReadTime, stop),
            "rows that replica " + names_[0] + " reads", [&] { return rows_ || ended_waits_; });
    if (!rows_) throw Unavailable("replica " + names_[0] + " has read no rows");
    if (!rows_->stream) return *rows_;
  }
  return read();
}

void Replicas::watch(int replica, std::function<HostActivity()> source) {
  const std::lock_guard lock(activity_mu_);
  sources_[at(replica)].now = std::move(source);
}

void Replicas::freeze(int replica) {
  const std::lock_guard lock(activity_mu_);
  Source& source = sources_[at(replica)];
  if (source.now) source.last = source.now();
  source.now = {};
}

HostActivity Replicas::activity() const {
  HostActivity all;
  const std::lock_guard lock(activity_mu_);
  for (std::size_t replica = 0; replica < sources_.size(); ++replica) {
    const Source& source = sources_[replica];
    HostActivity its = source.now ? source.now() : source.last;
    all.compute_seconds += its.compute_seconds;
    for (StreamStats& stream : its.streams) {
      stream.name = names_[replica] + "/" + stream.name;
      all.streams.push_back(std::move(stream));
    }
    for (DeviceStreamWork& stream : its.device_streams) {
      stream.name = names_[replica] + "/" + stream.name;
      all.device_streams.push_back(std::move(stream));
    }
  }
  return all;
}

void Replicas::joined(int replica, std::shared_ptr<comm::Communicator> communicator) {
  const std::lock_guard lock(mu_);
  if (ended_waits_) communicator->abort();
  communicators_[at(replica)] = std::move(communicator);
}

void Replicas::fail(int replica, std::exception_ptr error) {
  {
    const std::lock_guard lock(mu_);
    const bool is_cause = !ended_wait(error);
    if (failure_ && (failed_for_cause_ || !is_cause)) return;
    failed_ = replica;
    failure_ = std::move(error);
    failed_for_cause_ = is_cause;
  }
  end_waits();
}

void Replicas::leave() { end_waits(); }

void Replicas::end_waits() {
  std::vector<std::shared_ptr<comm::Communicator>> all;
  {
    const std::lock_guard lock(mu_);
    ended_waits_ = true;
    all = communicators_;
    changed_.notify_all();
  }
  for (const auto& communicator : all)
    if (communicator) communicator->abort();
}

void Replicas::end_together() {
  std::unique_lock lock(mu_);
  ++ended_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return ended_ == size(); });
  communicators_.clear();
}

void Replicas::throw_failure() const {
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    throw_error(error.code(), "replica " + name(failed_) + ": " + error.message());
  }
}

}  // namespace braid::worker
