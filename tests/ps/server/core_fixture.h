// A ServerCore with registered workers, and short ways to push and pull on it without a network.
#pragma once

#include <gtest/gtest.h>

#include <future>

#include "ps/server/server_core.h"

namespace braid::ps {

class CoreFixture : public testing::Test {
 protected:
  /// The clock that tick() sees is the tests'.
  static constexpr std::chrono::seconds kHeartbeatTimeout{20};

  void start_core(int workers, Consistency consistency, int threads = 2) {
    ServerCore::Options options;
    options.table_threads = threads;
    options.heartbeat_timeout = kHeartbeatTimeout;
    core_ = std::make_unique<ServerCore>(options);
    set_.workers = workers;
    set_.consistency = consistency;
    set_.dense = {{"w", 10}};
    set_.sparse = {{"e", 2, {InitKind::Constant, 1.0F, 0.0F}, {5}}};
    for (int w = 0; w < workers; ++w) enter(w, 100 + static_cast<std::uint64_t>(w));
    core_->create_tables(sender(0), set_);
  }
  void start_job() {
    auto done = std::make_shared<std::promise<ErrorPtr>>();
    const std::vector<float> zeros(10);
    core_->assign(
        {sender(0), {{0, zeros}}, nullptr, [done](ErrorPtr error) { done->set_value(std::move(error)); }});
    ASSERT_EQ(done->get_future().get(), nullptr);
    core_->start(sender(0), 0);
  }
  void enter(int worker, std::uint64_t session, std::uint64_t incarnation = 1) {
    core_->enter({"job", incarnation, worker, set_.workers, 0, 1, session,
                  "10.0.0." + std::to_string(worker) + ":4000"});
  }
  /// Its process has ended: another one may take its place.
  void lose(int worker) { lose(worker, 100 + static_cast<std::uint64_t>(worker)); }
  void lose(int worker, std::uint64_t session) {
    const std::uint64_t connection = 1000 + session;
    Sender last = sender(worker);
    last.session = session;
    core_->heard(last, connection);
    core_->disconnected(connection);
  }
  Sender sender(int worker) const {
    return {stable_hash("job"), 1, core_->instance(), 100 + static_cast<std::uint64_t>(worker), worker};
  }

  PushJob push_job(int worker, std::uint64_t step, float value, std::uint32_t sequence = 0) {
    auto gradient = std::make_shared<std::vector<float>>(10, value);
    PushJob job;
    job.sender = sender(worker);
    job.step = step;
    job.sequence = sequence;
    job.params = {1.0F, 1.0F, step};
    job.dense = {{0, *gradient}};
    job.sparse = {{0, 2, {}, nullptr}};
    job.hold = gradient;
    return job;
  }
  PushAnswer push(PushJob job) {
    std::promise<PushAnswer> answer;
    job.done = [&](PushAnswer a) { answer.set_value(std::move(a)); };
    core_->push(std::move(job));
    return answer.get_future().get();
  }
  std::future<PullAnswer> pull_async(int worker, std::uint64_t version,
                                     std::chrono::milliseconds timeout = std::chrono::hours(1)) {
    auto answer = std::make_shared<std::promise<PullAnswer>>();
    PullJob job;
    job.sender = sender(worker);
    job.min_version = version;
    job.deadline = Clock::now() + timeout;
    job.dense = {0};
    job.done = [answer](PullAnswer a) { answer->set_value(std::move(a)); };
    core_->pull(std::move(job));
    return answer->get_future();
  }
  float first_value(int worker, std::uint64_t version) {
    const PullAnswer answer = pull_async(worker, version).get();
    if (answer.error) throw_error(*answer.error);
    return answer.pieces[0][0];
  }
  std::uint64_t count(Count what) const { return core_->counters()->value(what); }

  TableSet set_;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace braid::ps
