#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/poll.h"
#include "comm/rendezvous/grpc_channel.h"
#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/transport/address.h"
#include "comm/transport/peer_probe.h"
#include "proto/cluster.grpc.pb.h"

namespace braid::comm {
namespace {

constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kProbeTime{1000};
constexpr std::chrono::milliseconds kLeaveTime{1000};
constexpr std::chrono::seconds kAskTime{2};  // to learn who is missing, after the deadline of a barrier

/// One Stay call, which is open as long as the member is there. gRPC ends it on a thread of its own, and the
/// destructor waits until that thread has let go of the call: a context holds its channel, and a channel that
/// dies on a thread of gRPC waits there for that very thread, and crashes.
class GrpcPresence final : public Presence {
 public:
  using Leave = std::function<void()>;

  GrpcPresence(proto::Rendezvous::Stub& stub, proto::StayRequest request, Leave leave)
      : call_(std::make_shared<Call>()), leave_(std::move(leave)) {
    call_->request = std::move(request);
    stub.async()->Stay(
        &call_->context, &call_->request, &call_->reply, [call = call_](const grpc::Status& status) {
          call->state = status.error_code() == grpc::StatusCode::UNAVAILABLE ? State::Lost : State::Ended;
        });
  }

  ~GrpcPresence() override {
    if (state() == State::Held) leave_();
    call_->context.TryCancel();  // where the host did not hear of it
    poll([&] { return call_.use_count() == 1; }, WaitContext::with_timeout(kLeaveTime));
  }

  State state() const override { return call_->state; }

 private:
  struct Call {
    proto::StayRequest request;
    grpc::ClientContext context;
    proto::StayReply reply;
    std::atomic<State> state = State::Held;
  };
  const std::shared_ptr<Call> call_;
  const Leave leave_;
};

class GrpcRendezvous final : public Rendezvous {
 public:
  GrpcRendezvous(const std::string& address, RendezvousScope scope, const Security& security)
      : address_(address), scope_(std::move(scope)), security_(security) {
    parse_address(address_);
    stub_ = proto::Rendezvous::NewStub(make_channel(address_, security));
  }

  void set(const std::string& key, std::span<const std::byte> value, const WaitContext& wait) override {
    proto::RendezvousSetRequest request;
    fill(*request.mutable_scope());
    request.set_key(key);
    request.set_value(value.data(), value.size());
    proto::RendezvousSetReply reply;
    call(&Stub::Set, request, reply, fmt::format("set '{}'", key), wait);
  }

  std::vector<std::byte> get(const std::string& key, const WaitContext& wait) override {
    proto::RendezvousGetRequest request;
    fill(*request.mutable_scope());
    request.set_key(key);
    proto::RendezvousGetReply reply;
    call(&Stub::Get, request, reply, fmt::format("get '{}'", key), wait);
    auto bytes = std::as_bytes(std::span(reply.value()));
    return {bytes.begin(), bytes.end()};
  }

  void add_member(const Member& member, const WaitContext& wait) override {
    proto::AddMemberRequest request;
    fill(*request.mutable_scope());
    request.mutable_member()->set_name(member.name);
    request.mutable_member()->set_incarnation(member.incarnation);
    request.mutable_member()->mutable_attributes()->insert(member.attributes.begin(),
                                                           member.attributes.end());
    proto::AddMemberReply reply;
    call(&Stub::AddMember, request, reply, fmt::format("add member '{}'", member.name), wait);
  }

  void heartbeat(const std::string& name, const WaitContext& wait) override {
    proto::HeartbeatRequest request;
    fill(*request.mutable_scope());
    request.set_name(name);
    proto::HeartbeatReply reply;
    call(&Stub::Heartbeat, request, reply, fmt::format("heartbeat of '{}'", name), wait);
  }

  std::unique_ptr<Presence> stay(const std::string& name) override {
    proto::StayRequest request;
    fill(*request.mutable_scope());
    request.set_name(name);
    return std::make_unique<GrpcPresence>(*stub_, std::move(request), [this, name] { leave(name); });
  }

  std::vector<MemberStatus> members(const WaitContext& wait) override {
    proto::ListMembersRequest request;
    fill(*request.mutable_scope());
    proto::ListMembersReply reply;
    call(&Stub::ListMembers, request, reply, "list members", wait);
    std::vector<MemberStatus> result;
    for (auto& entry : reply.members()) {
      auto& member = entry.member();
      result.push_back(
          {{member.name(), member.incarnation(), {member.attributes().begin(), member.attributes().end()}},
           std::chrono::milliseconds(entry.milliseconds_since_heartbeat()),
           std::nullopt});
      if (entry.has_milliseconds_since_gone())
        result.back().since_gone = std::chrono::milliseconds(entry.milliseconds_since_gone());
    }
    return result;
  }

  void post_progress(const RankProgress& progress, const WaitContext& wait) override {
    proto::PostProgressRequest request;
    fill(*request.mutable_scope());
    request.mutable_progress()->set_rank(progress.rank);
    request.mutable_progress()->set_step(progress.step);
    request.mutable_progress()->set_collectives(progress.collectives);
    request.mutable_progress()->set_last_collective(progress.last_collective);
    proto::PostProgressReply reply;
    call(&Stub::PostProgress, request, reply, "post progress", wait);
  }

  std::vector<RankProgress> progress(const WaitContext& wait) override {
    proto::ListProgressRequest request;
    fill(*request.mutable_scope());
    proto::ListProgressReply reply;
    call(&Stub::ListProgress, request, reply, "list progress", wait);
    std::vector<RankProgress> result;
    for (auto& entry : reply.progress())
      result.push_back({entry.rank(), entry.step(), entry.collectives(), entry.last_collective()});
    return result;
  }

  void barrier(const std::string& name, int rank, int size, const WaitContext& wait) override {
    proto::RendezvousBarrierRequest request;
    fill(*request.mutable_scope());
    request.set_name(name);
    request.set_rank(rank);
    request.set_size(size);
    {
      std::lock_guard lock(mutex_);
      request.set_round(rounds_[{name, rank}]);
    }
    proto::RendezvousBarrierReply reply;
    try {
      call(&Stub::Barrier, request, reply, fmt::format("barrier '{}'", name), wait);
    } catch (const DeadlineExceeded& error) {
      auto missing = who_is_missing(request, rank);
      throw DeadlineExceeded(missing.empty() ? error.message() : error.message() + ": " + missing);
    }
    std::lock_guard lock(mutex_);
    ++rounds_[{name, rank}];
  }

  std::string address() const override { return address_; }

 private:
  using Stub = proto::Rendezvous::Stub;

  void fill(proto::RendezvousScope& scope) const {
    scope.set_job(scope_.job);
    scope.set_generation(scope_.generation);
  }

  /// Tells the host that a member's end is in order. A host that does not answer needs not hear of it.
  void leave(const std::string& name) {
    proto::LeaveRequest request;
    fill(*request.mutable_scope());
    request.set_name(name);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLeaveTime);
    proto::LeaveReply reply;
    stub_->Leave(&context, request, &reply);
  }

  std::string who_is_missing(proto::RendezvousBarrierRequest request, int self) {
    request.set_only_ask(true);
    proto::RendezvousBarrierReply reply;
    try {
      call(&Stub::Barrier, request, reply, "ask who is missing", WaitContext::with_timeout(kAskTime));
    } catch (const Error&) {
      return {};  // the host itself is silent; the error of the barrier names it
    }
    std::vector<int> missing(reply.missing().begin(), reply.missing().end());
    std::erase(missing, self);  // this rank's request is cancelled by now
    return missing.empty() ? "" : rank_list(missing) + " did not come";
  }

  /// Waits for a host that takes this process. Throws: InvalidArgument with the reason when it does not.
  void find_host(const std::string& place, const WaitContext& wait) {
    PeerProbe probe(address_, security_);
    while (!probe.accepts(wait.at_most(kProbeTime))) {
      if (wait.stopped()) throw Cancelled(place + ": cancelled");
      if (wait.remaining() <= kRetry)
        throw DeadlineExceeded(fmt::format("{}: deadline exceeded: {}", place, probe.reason()));
      std::this_thread::sleep_for(kRetry);
    }
    reached_ = true;
  }

  /// Calls until there is an answer: a host that cannot be reached may be on its way up.
  template <class Method, class Request, class Reply>
  void call(Method method, const Request& request, Reply& reply, const std::string& what,
            const WaitContext& wait) {
    auto place = fmt::format("[rendezvous] {} at rank 0, which leads ({})", what, address_);
    std::string last_error = "no answer";
    bool unreachable = false;
    for (;;) {
      if (!reached_) find_host(place, wait);
      if (wait.stopped()) throw Cancelled(place + ": cancelled");
      grpc::ClientContext context;
      auto left = gpr_time_from_nanos(wait.remaining().count(), GPR_TIMESPAN);
      context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), left));
      // gRPC connects only while a call waits for it; calls that fail at once would leave the attempt
      // unfinished.
      context.set_wait_for_ready(unreachable);
      std::stop_callback on_stop(wait.stop, [&] { context.TryCancel(); });
      reply.Clear();
      auto status = (stub_.get()->*method)(&context, request, &reply);
      switch (status.error_code()) {
        case grpc::StatusCode::OK:
          return;
        case grpc::StatusCode::INVALID_ARGUMENT:
          throw InvalidArgument(status.error_message());
        case grpc::StatusCode::FAILED_PRECONDITION:
          throw Unavailable(status.error_message());
        case grpc::StatusCode::UNAVAILABLE:
          last_error = status.error_message();
          unreachable = true;
          reached_ = false;
          break;
        case grpc::StatusCode::CANCELLED:
          if (wait.stopped()) throw Cancelled(place + ": cancelled");
          last_error = "the host cancelled the call";
          break;
        case grpc::StatusCode::DEADLINE_EXCEEDED:
          break;
        default:
          throw Internal(fmt::format("{}: {}", place, status.error_message()));
      }
      if (wait.remaining() <= kRetry)
        throw DeadlineExceeded(fmt::format("{}: deadline exceeded: {}", place, last_error));
      std::this_thread::sleep_for(kRetry);
    }
  }

  const std::string address_;
  const RendezvousScope scope_;
  const Security security_;
  std::atomic<bool> reached_{false};
  std::unique_ptr<Stub> stub_;
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> rounds_;  // guarded by mutex_; barriers gone through
};

}  // namespace

std::unique_ptr<Rendezvous> make_grpc_rendezvous(const std::string& address, RendezvousScope scope,
                                                 const Security& security) {
  return std::make_unique<GrpcRendezvous>(address, std::move(scope), security);
}

}  // namespace braid::comm
