#include "ps/client/queue_link.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "base/error.h"
#include "comm/rendezvous/grpc_channel.h"
#include "proto/work_queue.grpc.pb.h"
#include "ps/control_status.h"

namespace braid::ps {
namespace {

using QueueStub = proto::WorkQueue::Stub;

class QueueLink final : public BatchQueue {
 public:
  explicit QueueLink(QueueLinkOptions options)
      : options_(std::move(options)),
        stub_(proto::WorkQueue::NewStub(comm::make_channel(options_.address, options_.security))) {}

  std::string open(const QueuePlan& plan, const std::string& state, bool keep,
                   const WaitContext& wait) override {
    proto::QueueOpenRequest request;
    fill(*request.mutable_scope());
    request.set_epoch_batches(plan.epoch_batches);
    request.set_total(plan.total);
    request.set_take(plan.take);
    request.set_batch_rows(plan.batch_rows);
    request.set_workers(plan.workers);
    request.set_state(state);
    request.set_keep(keep);
    proto::QueueOpenReply reply;
    call("open", &QueueStub::Open, request, &reply, wait);
    return reply.state();
  }

  QueueAnswer talk(const QueueCall& said, const WaitContext& wait) override {
    proto::QueueTalkRequest request;
    fill(*request.mutable_scope());
    request.set_worker(said.worker);
    request.set_session(said.session);
    request.set_number(said.number);
    request.set_life(said.life);
    for (const HeldUnit& unit : said.held) {
      proto::QueueUnit& to = *request.add_held();
      to.set_id(unit.id);
      to.set_first(unit.first);
      to.set_batches(unit.done);
    }
    request.set_wants(said.wants);
    request.set_leaves(said.leaves);
    request.set_ends(said.ends);
    proto::QueueTalkReply reply;
    call("take", &QueueStub::Talk, request, &reply, wait);
    if (reply.kind() < 0 || reply.kind() > static_cast<int>(QueueAnswer::Kind::NotOpen))
      throw Internal(fmt::format("[queue] {} answers {}, which is nothing", options_.address, reply.kind()));
    QueueAnswer answer;
    answer.kind = static_cast<QueueAnswer::Kind>(reply.kind());
    answer.life = reply.life();
    answer.revoked.assign(reply.revoked().begin(), reply.revoked().end());
    answer.unit = {reply.unit().id(), reply.unit().first(), reply.unit().batches()};
    return answer;
  }

  std::string state(const WaitContext& wait) override {
    proto::QueueStateRequest request;
    fill(*request.mutable_scope());
    proto::QueueStateReply reply;
    call("state", &QueueStub::State, request, &reply, wait);
    return reply.state();
  }

 private:
  void fill(proto::QueueScope& scope) const {
    scope.set_job(options_.job);
    scope.set_incarnation(options_.incarnation);
  }

  template <class Request, class Reply>
  void call(const char* what, grpc::Status (QueueStub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request, Reply* reply, const WaitContext& wait) {
    const std::string place = fmt::format("[queue] {} at {}", what, options_.address);
    wait.check(place);
    grpc::ClientContext context;
    context.set_deadline(comm::call_deadline(wait));
    context.set_wait_for_ready(true);
    std::stop_callback on_stop(wait.stop, [&] { context.TryCancel(); });
    const grpc::Status status = ((*stub_).*method)(&context, request, reply);
    if (status.ok()) return;
    const ErrorCode code = error_code_of(status.error_code(), status.error_details());
    if (!status.error_details().empty()) throw_error(code, status.error_message());
    if (wait.stopped()) throw Cancelled(place + ": cancelled");
    throw_error(code, fmt::format("{}: {}", place, status.error_message()));
  }

  const QueueLinkOptions options_;
  const std::unique_ptr<QueueStub> stub_;
};

}  // namespace

std::unique_ptr<BatchQueue> make_queue_link(QueueLinkOptions options) {
  return std::make_unique<QueueLink>(std::move(options));
}

}  // namespace braid::ps
