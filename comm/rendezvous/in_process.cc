#include "comm/rendezvous/in_process.h"

#include <fmt/core.h>

#include <atomic>

namespace braid::comm {
namespace {

/// The end of a wait, handed from the thread that ends it to the one that waits.
template <class Result>
class Outcome {
 public:
  void put(ErrorPtr error, Result result) {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
    result_ = std::move(result);
    arrived_.notify_all();
  }
  Result take(const WaitContext& wait, const std::string& what) {
    std::unique_lock lock(mutex_);
    wait_on(arrived_, lock, wait, what, [&] { return result_.has_value(); });
    if (error_) throw_error(*error_);
    return std::move(*result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  ErrorPtr error_;                // guarded by mutex_
  std::optional<Result> result_;  // guarded by mutex_
};

/// Of a member of this process: it can leave, and never be lost.
class InProcessPresence final : public Presence {
 public:
  InProcessPresence(std::shared_ptr<RendezvousStore> store, const RendezvousScope& scope,
                    const std::string& name)
      : store_(std::move(store)), scope_(scope), name_(name) {
    try {
      store_->stay(scope_, name_, [ended = ended_](const ErrorPtr&) { *ended = true; });
    } catch (const Error&) {
      *ended_ = true;
    }
  }
  ~InProcessPresence() override {
    if (*ended_) return;
    try {
      store_->leave(scope_, name_);
    } catch (const Error&) {  // the generation is over
    }
  }
  State state() const override { return *ended_ ? State::Ended : State::Held; }

 private:
  const std::shared_ptr<RendezvousStore> store_;
  const RendezvousScope scope_;
  const std::string name_;
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

class InProcessRendezvous final : public Rendezvous {
 public:
  InProcessRendezvous(std::shared_ptr<RendezvousStore> store, RendezvousScope scope)
      : store_(std::move(store)), scope_(std::move(scope)) {}

  void set(const std::string& key, std::span<const std::byte> value, const WaitContext&) override {
    store_->set(scope_, key, {value.begin(), value.end()});
  }

  std::vector<std::byte> get(const std::string& key, const WaitContext& wait) override {
    auto outcome = std::make_shared<Outcome<RendezvousStore::Value>>();
    auto ticket = store_->get(scope_, key, [outcome](ErrorPtr error, RendezvousStore::Value value) {
      outcome->put(std::move(error), std::move(value));
    });
    try {
      return outcome->take(wait, fmt::format("[rendezvous] key '{}' was not set", key));
    } catch (...) {
      if (ticket) store_->cancel(*ticket);
      throw;
    }
  }

  void add_member(const Member& member, const WaitContext&) override { store_->add_member(scope_, member); }
  void heartbeat(const std::string& name, const WaitContext&) override { store_->heartbeat(scope_, name); }
  std::unique_ptr<Presence> stay(const std::string& name) override {
    return std::make_unique<InProcessPresence>(store_, scope_, name);
  }
  std::vector<MemberStatus> members(const WaitContext&) override { return store_->members(scope_); }
  void post_progress(const RankProgress& progress, const WaitContext&) override {
    store_->post_progress(scope_, progress);
  }
  std::vector<RankProgress> progress(const WaitContext&) override { return store_->progress(scope_); }

  void barrier(const std::string& name, int rank, int size, const WaitContext& wait) override {
    std::uint64_t round;
    {
      std::lock_guard lock(mutex_);
      round = rounds_[{name, rank}];
    }
    auto outcome = std::make_shared<Outcome<bool>>();
    auto ticket = store_->barrier(scope_, name, round, rank, size,
                                  [outcome](ErrorPtr error) { outcome->put(std::move(error), true); });
    try {
      outcome->take(wait, fmt::format("[rendezvous] barrier '{}'", name));
    } catch (const DeadlineExceeded& error) {
      auto missing = store_->missing(scope_, name, size);
      if (ticket) store_->cancel(*ticket);
      if (missing.empty()) throw;
      throw DeadlineExceeded(error.message() + ": " + rank_list(missing) + " did not come");
    } catch (...) {
      if (ticket) store_->cancel(*ticket);
      throw;
    }
    std::lock_guard lock(mutex_);
    ++rounds_[{name, rank}];
  }

  std::string address() const override { return "this process"; }

 private:
  const std::shared_ptr<RendezvousStore> store_;
  const RendezvousScope scope_;
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> rounds_;  // guarded by mutex_; barriers gone through
};

}  // namespace

std::unique_ptr<Rendezvous> make_in_process_rendezvous(std::shared_ptr<RendezvousStore> store,
                                                       RendezvousScope scope) {
  return std::make_unique<InProcessRendezvous>(std::move(store), std::move(scope));
}

}  // namespace braid::comm
