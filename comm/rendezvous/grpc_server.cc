#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include "base/log.h"
#include "comm/rendezvous/grpc_listener.h"
#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/transport/address.h"
#include "proto/cluster.grpc.pb.h"

namespace braid::comm {
namespace {

constexpr int kMostMessageBytes = 2 << 20;  // beyond the largest value
constexpr int kLeastPingMilliseconds = 5000;

grpc::Status to_status(const ErrorRecord& error) {
  switch (error.code) {
    case ErrorCode::InvalidArgument:
      return {grpc::StatusCode::INVALID_ARGUMENT, error.message};
    // Not UNAVAILABLE, which gRPC also says of servers that cannot be reached and that are worth another try.
    case ErrorCode::Unavailable:
      return {grpc::StatusCode::FAILED_PRECONDITION, error.message};
    default:
      return {grpc::StatusCode::INTERNAL, error.message};
  }
}

RendezvousScope to_scope(const proto::RendezvousScope& scope) { return {scope.job(), scope.generation()}; }

/// A request that is answered at once.
template <class Body>
grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Body body) {
  auto* reactor = context->DefaultReactor();
  try {
    body();
    reactor->Finish(grpc::Status::OK);
  } catch (...) {
    reactor->Finish(to_status(*capture_current_exception("rendezvous")));
  }
  return reactor;
}

/// A request that is answered later. What the store calls back and what gRPC calls race; the first ends it.
class Waiting {
 public:
  Waiting(std::shared_ptr<RendezvousStore> store, grpc::ServerUnaryReactor* reactor)
      : store_(std::move(store)), reactor_(reactor) {}

  template <class FillReply>
  void finish(const grpc::Status& status, FillReply fill) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    if (status.ok()) fill();
    reactor_->Finish(status);
  }

  void set_ticket(std::optional<RendezvousStore::Ticket> ticket) {
    std::lock_guard lock(mutex_);
    ticket_ = ticket;
    if (finished_ && ticket_) store_->cancel(*ticket_);  // the client went away in between
  }

  void cancel() {
    std::lock_guard lock(mutex_);
    if (ticket_) store_->cancel(*ticket_);
    if (finished_) return;
    finished_ = true;
    reactor_->Finish(grpc::Status::CANCELLED);
  }

 private:
  const std::shared_ptr<RendezvousStore> store_;
  std::mutex mutex_;
  grpc::ServerUnaryReactor* reactor_;              // valid until finished
  std::optional<RendezvousStore::Ticket> ticket_;  // guarded by mutex_
  bool finished_ = false;                          // guarded by mutex_
};

class WaitingReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingReactor(std::shared_ptr<RendezvousStore> store)
      : waiting(std::make_shared<Waiting>(std::move(store), this)) {}
  void OnCancel() override {
    auto keep = waiting;
    keep->cancel();
  }
  void OnDone() override { delete this; }  // gRPC's rule for reactors of one call

  const std::shared_ptr<Waiting> waiting;
};

class Service final : public proto::Rendezvous::CallbackService {
 public:
  explicit Service(std::shared_ptr<RendezvousStore> store) : store_(std::move(store)) {}

  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context,
                                const proto::RendezvousSetRequest* request,
                                proto::RendezvousSetReply*) override {
    return answer(context, [&] {
      auto bytes = std::as_bytes(std::span(request->value()));
      store_->set(to_scope(request->scope()), request->key(), {bytes.begin(), bytes.end()});
    });
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*, const proto::RendezvousGetRequest* request,
                                proto::RendezvousGetReply* reply) override {
    auto* reactor = new WaitingReactor(store_);
    auto waiting = reactor->waiting;
    wait(*waiting, [&] {
      return store_->get(to_scope(request->scope()), request->key(),
                         [waiting, reply](const ErrorPtr& error, const RendezvousStore::Value& value) {
                           waiting->finish(error ? to_status(*error) : grpc::Status::OK,
                                           [&] { reply->set_value(value.data(), value.size()); });
                         });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext*,
                                    const proto::RendezvousBarrierRequest* request,
                                    proto::RendezvousBarrierReply* reply) override {
    auto* reactor = new WaitingReactor(store_);
    auto waiting = reactor->waiting;
    auto scope = to_scope(request->scope());
    wait(*waiting, [&]() -> std::optional<RendezvousStore::Ticket> {
      if (request->only_ask()) {
        auto missing = store_->missing(scope, request->name(), request->size());
        waiting->finish(grpc::Status::OK,
                        [&] { reply->mutable_missing()->Add(missing.begin(), missing.end()); });
        return std::nullopt;
      }
      return store_->barrier(scope, request->name(), request->round(), request->rank(), request->size(),
                             [waiting](const ErrorPtr& error) {
                               waiting->finish(error ? to_status(*error) : grpc::Status::OK, [] {});
                             });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* AddMember(grpc::CallbackServerContext* context,
                                      const proto::AddMemberRequest* request,
                                      proto::AddMemberReply*) override {
    return answer(context, [&] {
      auto& member = request->member();
      store_->add_member(
          to_scope(request->scope()),
          {member.name(), member.incarnation(), {member.attributes().begin(), member.attributes().end()}});
    });
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest* request,
                                      proto::HeartbeatReply*) override {
    return answer(context, [&] { store_->heartbeat(to_scope(request->scope()), request->name()); });
  }

  grpc::ServerUnaryReactor* Stay(grpc::CallbackServerContext*, const proto::StayRequest* request,
                                 proto::StayReply*) override {
    auto* reactor = new WaitingReactor(store_);
    auto waiting = reactor->waiting;
    wait(*waiting, [&] {
      return store_->stay(to_scope(request->scope()), request->name(), [waiting](const ErrorPtr& error) {
        waiting->finish(error ? to_status(*error) : grpc::Status::OK, [] {});
      });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const proto::LeaveRequest* request,
                                  proto::LeaveReply*) override {
    return answer(context, [&] { store_->leave(to_scope(request->scope()), request->name()); });
  }

  grpc::ServerUnaryReactor* ListMembers(grpc::CallbackServerContext* context,
                                        const proto::ListMembersRequest* request,
                                        proto::ListMembersReply* reply) override {
    return answer(context, [&] {
      for (auto& status : store_->members(to_scope(request->scope()))) {
        auto& entry = *reply->add_members();
        entry.set_milliseconds_since_heartbeat(status.since_heartbeat.count());
        if (status.since_gone) entry.set_milliseconds_since_gone(status.since_gone->count());
        auto& member = *entry.mutable_member();
        member.set_name(status.member.name);
        member.set_incarnation(status.member.incarnation);
        member.mutable_attributes()->insert(status.member.attributes.begin(), status.member.attributes.end());
      }
    });
  }

  grpc::ServerUnaryReactor* PostProgress(grpc::CallbackServerContext* context,
                                         const proto::PostProgressRequest* request,
                                         proto::PostProgressReply*) override {
    return answer(context, [&] {
      auto& progress = request->progress();
      store_->post_progress(to_scope(request->scope()), {progress.rank(), progress.step(),
                                                         progress.collectives(), progress.last_collective()});
    });
  }

  grpc::ServerUnaryReactor* ListProgress(grpc::CallbackServerContext* context,
                                         const proto::ListProgressRequest* request,
                                         proto::ListProgressReply* reply) override {
    return answer(context, [&] {
      for (auto& progress : store_->progress(to_scope(request->scope()))) {
        auto& entry = *reply->add_progress();
        entry.set_rank(progress.rank);
        entry.set_step(progress.step);
        entry.set_collectives(progress.collectives);
        entry.set_last_collective(progress.last_collective);
      }
    });
  }

 private:
  template <class Begin>
  static void wait(Waiting& waiting, Begin begin) {
    try {
      waiting.set_ticket(begin());
    } catch (...) {
      waiting.finish(to_status(*capture_current_exception("rendezvous")), [] {});
    }
  }

  const std::shared_ptr<RendezvousStore> store_;
};

class RendezvousServerImpl final : public RendezvousServer {
 public:
  explicit RendezvousServerImpl(const RendezvousServerOptions& options)
      : store_(std::make_shared<RendezvousStore>()), service_(store_), add_services_(options.add_services) {
    grpc::ServerBuilder builder;
    try {
      listener_.emplace(builder, options.listen, options.security);
    } catch (const Unavailable& error) {
      throw Unavailable("[rendezvous] " + error.message());
    }
    builder.SetMaxReceiveMessageSize(kMostMessageBytes);
    // Workers of elastic jobs ask now and then whether this host is there, while a stream is silent.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingMilliseconds);
    builder.RegisterService(&service_);
    if (add_services_) add_services_(builder);
    server_ = builder.BuildAndStart();
    if (!server_) throw Internal(fmt::format("[rendezvous] {}: gRPC starts no server", options.listen));
    listener_->start();
  }

  ~RendezvousServerImpl() override {
    try {
      stop(WaitContext::with_timeout(std::chrono::seconds(2)));
    } catch (...) {
      log_error("{}", capture_current_exception()->message);
    }
  }

  std::string address() const override { return listener_->address(); }
  std::shared_ptr<RendezvousStore> store() const override { return store_; }

  void stop(const WaitContext& wait) override {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    store_->fail_waits(fmt::format("[rendezvous] the host at {} stopped", listener_->address()));
    listener_->stop();
    auto left = gpr_time_from_nanos(wait.remaining().count(), GPR_TIMESPAN);
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), left));
  }

 private:
  const std::shared_ptr<RendezvousStore> store_;
  Service service_;
  const std::function<void(grpc::ServerBuilder&)> add_services_;  // may own them: outlives the server
  std::optional<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<RendezvousServer> RendezvousServer::start(RendezvousServerOptions options) {
  return std::make_unique<RendezvousServerImpl>(options);
}

}  // namespace braid::comm
