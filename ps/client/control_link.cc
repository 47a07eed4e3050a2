#include "ps/client/control_link.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/poll.h"
#include "comm/rendezvous/grpc_channel.h"
#include "proto/ps.grpc.pb.h"
#include "ps/control_status.h"

namespace braid::ps {
namespace {

constexpr std::chrono::seconds kCancelTime{10};

}  // namespace

struct ControlLink::Impl {
  Impl(int index, std::string where, const comm::Security& security)
      : server(index),
        address(std::move(where)),
        stub(proto::ParameterServer::NewStub(comm::make_channel(address, security))) {}

  template <class Request, class Reply>
  void call(const char* what,
            grpc::Status (proto::ParameterServer::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                 Reply*),
            const Request& request, Reply* reply, const WaitContext& wait) {
    const std::string place = fmt::format("[ps] server {} ({}): {}", server, address, what);
    wait.check(place);
    grpc::ClientContext context;
    context.set_deadline(comm::call_deadline(wait));
    context.set_wait_for_ready(true);
    std::stop_callback on_stop(wait.stop, [&] { context.TryCancel(); });
    const grpc::Status status = ((*stub).*method)(&context, request, reply);
    if (status.ok()) return;
    const ErrorCode code = error_code_of(status.error_code(), status.error_details());
    if (status.error_details().empty()) {
      if (wait.stopped()) throw Cancelled(place + ": cancelled");
      throw_error(code, fmt::format("{}: {}", place, status.error_message()));
    }
    throw_error(code, status.error_message());
  }

  /// A context holds its channel, which must not die on a thread of gRPC (it would wait there for that very
  /// thread): probes are held here until their callbacks have let go of them.
  struct Probe {
    grpc::ClientContext context;
    proto::PsHealthRequest request;
    proto::PsHealthReply reply;
  };

  void drop_ended_probes() {
    std::erase_if(probes, [](const std::shared_ptr<Probe>& probe) { return probe.use_count() == 1; });
  }

  const int server;
  const std::string address;
  std::unique_ptr<proto::ParameterServer::Stub> stub;

  std::mutex mutex;
  std::vector<std::shared_ptr<Probe>> probes;  // guarded by mutex
  bool closed = false;                         // guarded by mutex: no more probes
};

ControlLink::ControlLink(int server, std::string address, const comm::Security& security)
    : impl_(std::make_unique<Impl>(server, std::move(address), security)) {}

ControlLink::~ControlLink() { close_probes(); }

void ControlLink::close_probes() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->closed = true;
    for (const auto& probe : impl_->probes) probe->context.TryCancel();
  }
  const auto ended = [&] {
    const std::lock_guard lock(impl_->mutex);
    impl_->drop_ended_probes();
    return impl_->probes.empty();
  };
  if (!poll(ended, WaitContext::with_timeout(kCancelTime)))
    log_warning("[ps] server {} ({}): cancelled probes did not end within {} s", impl_->server,
                impl_->address, kCancelTime.count());
}

int ControlLink::server() const { return impl_->server; }
const std::string& ControlLink::address() const { return impl_->address; }

using Stub = proto::ParameterServer::Stub;

void ControlLink::register_worker(const proto::PsRegisterRequest& request, proto::PsRegisterReply* reply,
                                  const WaitContext& wait) {
  impl_->call("register", &Stub::Register, request, reply, wait);
}
void ControlLink::create_tables(const proto::PsCreateTablesRequest& request, const WaitContext& wait) {
  proto::PsEmpty reply;
  impl_->call("create tables", &Stub::CreateTables, request, &reply, wait);
}
void ControlLink::start(const proto::PsStartRequest& request, const WaitContext& wait) {
  proto::PsEmpty reply;
  impl_->call("start", &Stub::Start, request, &reply, wait);
}
void ControlLink::leave(const proto::PsLeaveRequest& request, const WaitContext& wait) {
  proto::PsEmpty reply;
  impl_->call("leave", &Stub::Leave, request, &reply, wait);
}
void ControlLink::checkpoint(const proto::PsCheckpointRequest& request, proto::PsCheckpointReply* reply,
                             const WaitContext& wait) {
  impl_->call("checkpoint", &Stub::Checkpoint, request, reply, wait);
}
void ControlLink::restore(const proto::PsRestoreRequest& request, proto::PsRestoreReply* reply,
                          const WaitContext& wait) {
  impl_->call("restore", &Stub::Restore, request, reply, wait);
}
void ControlLink::stats(proto::PsStatsReply* reply, const WaitContext& wait) {
  impl_->call("statistics", &Stub::Stats, proto::PsStatsRequest(), reply, wait);
}
void ControlLink::shutdown(const proto::PsShutdownRequest& request, const WaitContext& wait) {
  proto::PsEmpty reply;
  impl_->call("shutdown", &Stub::Shutdown, request, &reply, wait);
}

void ControlLink::refuse(const proto::PsRefuseRequest& request, const WaitContext& wait) {
  proto::PsEmpty reply;
  impl_->call("refuse", &Stub::Refuse, request, &reply, wait);
}

void ControlLink::probe_async(std::chrono::milliseconds timeout,
                              std::function<void(std::optional<std::uint64_t>)> answer) {
  auto probe = std::make_shared<Impl::Probe>();
  probe->context.set_deadline(std::chrono::system_clock::now() + timeout);
  probe->context.set_wait_for_ready(true);
  bool closed = false;
  {
    const std::lock_guard lock(impl_->mutex);
    closed = impl_->closed;
    impl_->drop_ended_probes();
    if (!closed) impl_->probes.push_back(probe);
  }
  if (closed) return answer(std::nullopt);
  impl_->stub->async()->Health(&probe->context, &probe->request, &probe->reply,
                               [probe, answer = std::move(answer)](const grpc::Status& status) mutable {
                                 answer(status.ok() ? std::optional(probe->reply.instance()) : std::nullopt);
                                 answer = nullptr;  // close_probes() waits for the end of what it holds, too
                               });
}

}  // namespace braid::ps
