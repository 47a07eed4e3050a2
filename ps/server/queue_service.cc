#include "ps/server/queue_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/random_id.h"
#include "proto/work_queue.grpc.pb.h"
#include "ps/control_status.h"
#include "ps/server/work_queue.h"

namespace braid::ps {
namespace {

constexpr int kMostHeld = 4096;
constexpr std::size_t kMostText = 1 << 20;

QueueCall call_of(const proto::QueueTalkRequest& in) {
  if (in.held_size() > kMostHeld)
    throw InvalidArgument(fmt::format("[queue] worker {} names {} units, at most {} are allowed", in.worker(),
                                      in.held_size(), kMostHeld));
  QueueCall call{.worker = in.worker(),
                 .session = in.session(),
                 .number = in.number(),
                 .life = in.life(),
                 .held = {},
                 .wants = in.wants(),
                 .leaves = in.leaves(),
                 .ends = in.ends()};
  for (const proto::QueueUnit& unit : in.held())
    call.held.push_back({unit.id(), unit.first(), unit.batches()});
  return call;
}

class QueueService final : public proto::WorkQueue::CallbackService {
 public:
  explicit QueueService(std::chrono::milliseconds patience) : patience_(patience) {}

  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context, const proto::QueueOpenRequest* request,
                                 proto::QueueOpenReply* reply) override {
    return now(context, [&] {
      if (request->scope().job().empty()) throw InvalidArgument("[queue] a queue without the job's name");
      if (request->state().size() > kMostText) throw InvalidArgument("[queue] a state of more than 1 MiB");
      const QueuePlan plan{request->epoch_batches(), request->total(), request->take(), request->batch_rows(),
                           request->workers()};
      std::lock_guard lock(mutex_);
      if (is_older(request->scope()))
        throw Unavailable(fmt::format("[queue] job '{}' is at incarnation {}, not at {}", job_, incarnation_,
                                      request->scope().incarnation()));
      const bool same = queue_ && is_of(request->scope()) && queue_->plan() == plan;
      if (!same || !request->keep()) {
        const QueueState state = request->state().empty()
                                     ? QueueState{plan.batch_rows, plan.epoch_batches, 0, {}}
                                     : QueueState::parse(request->state());
        WorkQueue made(plan, state, random_id(), patience_);  // which may throw
        queue_.emplace(std::move(made));
        job_ = request->scope().job();
        incarnation_ = request->scope().incarnation();
        log_info("[queue] {} batches of job '{}', {} at a time: {}", plan.total, job_, plan.take,
                 queue_->state().text());
      }
      reply->set_state(queue_->state().text());
    });
  }

  grpc::ServerUnaryReactor* Talk(grpc::CallbackServerContext* context, const proto::QueueTalkRequest* request,
                                 proto::QueueTalkReply* reply) override {
    return now(context, [&] {
      const QueueCall call = call_of(*request);
      std::lock_guard lock(mutex_);
      const QueueAnswer answer = talk(request->scope(), call);
      reply->set_kind(static_cast<int>(answer.kind));
      reply->set_life(answer.life);
      reply->mutable_revoked()->Add(answer.revoked.begin(), answer.revoked.end());
      reply->mutable_unit()->set_id(answer.unit.id);
      reply->mutable_unit()->set_first(answer.unit.first);
      reply->mutable_unit()->set_batches(answer.unit.count);
    });
  }

  grpc::ServerUnaryReactor* State(grpc::CallbackServerContext* context,
                                  const proto::QueueStateRequest* request,
                                  proto::QueueStateReply* reply) override {
    return now(context, [&] {
      std::lock_guard lock(mutex_);
      if (!queue_ || !is_of(request->scope()))
        throw Unavailable(fmt::format("[queue] no queue of job '{}' is open", request->scope().job()));
      reply->set_state(queue_->state().text());
    });
  }

 private:
  bool is_of(const proto::QueueScope& scope) const {
    return scope.job() == job_ && scope.incarnation() == incarnation_;
  }
  bool is_older(const proto::QueueScope& scope) const {
    return queue_ && scope.job() == job_ && scope.incarnation() < incarnation_;
  }

  /// REQUIRES: the lock.
  QueueAnswer talk(const proto::QueueScope& scope, const QueueCall& call) {
    if (is_older(scope))
      throw Unavailable(fmt::format("[queue] worker {} is of incarnation {} of job '{}', which is at {}",
                                    call.worker, scope.incarnation(), job_, incarnation_));
    if (queue_ && is_of(scope)) return queue_->talk(call, WorkQueue::Clock::now());
    if (queue_ && scope.job() != job_)
      throw InvalidArgument(fmt::format("[queue] the queue is of job '{}', not '{}'", job_, scope.job()));
    QueueAnswer answer;
    answer.kind = QueueAnswer::Kind::NotOpen;
    answer.life = call.life;
    return answer;
  }

  template <class Body>
  static grpc::ServerUnaryReactor* now(grpc::CallbackServerContext* context, Body body) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    grpc::Status status = grpc::Status::OK;
    try {
      body();
    } catch (...) {
      const ErrorPtr error = capture_current_exception("queue");
      status = {static_cast<grpc::StatusCode>(grpc_code_of(error->code)), error->message,
                std::to_string(static_cast<int>(error->code))};
    }
    reactor->Finish(status);
    return reactor;
  }

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<WorkQueue> queue_;
  std::string job_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace

std::unique_ptr<grpc::Service> make_queue_service(std::chrono::milliseconds patience) {
  return std::make_unique<QueueService>(patience);
}

}  // namespace braid::ps
