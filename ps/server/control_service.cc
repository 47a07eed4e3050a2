#include "ps/server/control_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>

#include "base/log.h"
#include "comm/rendezvous/grpc_listener.h"
#include "proto/ps.grpc.pb.h"
#include "ps/control_status.h"
#include "ps/server/queue_service.h"
#include "ps/server/shard_file.h"
#include "ps/table_set_proto.h"

namespace braid::ps {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr std::chrono::milliseconds kGrace{200};
constexpr int kMostMessageBytes = 16 << 20;  // a set of a hundred thousand tables
constexpr std::size_t kMostReason = 4000;    // bytes; a gRPC status carries no more than 8 KiB

grpc::Status status_of(const ErrorRecord& error) {
  return {static_cast<grpc::StatusCode>(grpc_code_of(error.code)), error.message,
          std::to_string(static_cast<int>(error.code))};
}

Sender sender_of(const proto::PsSender& in) {
  return {in.job(), in.incarnation(), in.instance(), in.session(), in.worker()};
}

/// One thread for the calls that take long.
class LongCalls {
 public:
  LongCalls() : thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  void post(std::function<void(std::stop_token)> call) {
    {
      std::lock_guard lock(mutex_);
      if (!thread_.get_stop_token().stop_requested()) {
        calls_.push_back(std::move(call));
        ready_.notify_one();
        return;
      }
    }
    call(thread_.get_stop_token());  // ends at once: a stop is requested
  }

  /// Runs what is queued, with a stop requested, and joins.
  void finish() {
    {
      std::lock_guard lock(mutex_);
      thread_.request_stop();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void serve(const std::stop_token& stop) {
    for (;;) {
      std::function<void(std::stop_token)> call;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, stop, [&] { return !calls_.empty(); });
        if (calls_.empty()) return;
        call = std::move(calls_.front());
        calls_.pop_front();
      }
      call(stop);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any ready_;
  std::deque<std::function<void(std::stop_token)>> calls_;  // guarded by mutex_
  std::jthread thread_;
};

class Service final : public proto::ParameterServer::CallbackService {
 public:
  Service(ServerCore& core, const ControlServiceOptions& options) : core_(core), options_(options) {}

  void finish() {
    long_calls_.finish();
    cuts_.finish();
  }

  ServerUnaryReactor* Register(CallbackServerContext* context, const proto::PsRegisterRequest* request,
                               proto::PsRegisterReply* reply) override {
    return now(context, [&] {
      const std::string host = request->host().substr(0, request->host().find('/'));
      core_.enter({request->job(), request->incarnation(), request->worker(), request->workers(),
                   request->server(), request->servers(), request->session(),
                   address_of(context->peer(), host)});
      reply->set_instance(core_.instance());
      reply->set_data_port(options_.data_port);
      reply->set_host(host_identity());
      reply->set_unix_path(options_.unix_path);
      reply->set_shared_memory(options_.shared_memory);
      reply->set_deadline_ms(options_.deadline.count());
    });
  }

  ServerUnaryReactor* CreateTables(CallbackServerContext* context,
                                   const proto::PsCreateTablesRequest* request, proto::PsEmpty*) override {
    return later(long_calls_, context, [this, request](const WaitContext&) {
      const TableSet set = from_proto(request->tables());
      if (table_set_hash(set) != request->hash())
        throw InvalidArgument(
            fmt::format("[ps] server {}: the tables do not match: worker and server are of "
                        "different versions",
                        options_.index));
      core_.create_tables(sender_of(request->sender()), set);
    });
  }

  ServerUnaryReactor* Start(CallbackServerContext* context, const proto::PsStartRequest* request,
                            proto::PsEmpty*) override {
    return now(context, [&] {
      const Sender sender = sender_of(request->sender());
      core_.require_leader(sender);
      core_.start(sender, request->step());
    });
  }

  ServerUnaryReactor* Leave(CallbackServerContext* context, const proto::PsLeaveRequest* request,
                            proto::PsEmpty*) override {
    return now(context, [&] { core_.leave(sender_of(request->sender())); });
  }

  ServerUnaryReactor* Checkpoint(CallbackServerContext* context, const proto::PsCheckpointRequest* request,
                                 proto::PsCheckpointReply* reply) override {
    return later(cuts_, context, [this, request, reply](const WaitContext& wait) {
      const Sender sender = sender_of(request->sender());
      core_.require_leader(sender);
      const auto directory = checkpoint_directory(request->directory());
      const auto snapshot = core_.snapshot(sender, request->step(), wait);
      const ShardInfo shard = write_shard(*snapshot, core_.count(), directory, request->run());
      reply->set_file(shard.file);
      reply->set_bytes(shard.bytes);
      reply->set_crc(shard.crc);
    });
  }

  ServerUnaryReactor* Restore(CallbackServerContext* context, const proto::PsRestoreRequest* request,
                              proto::PsRestoreReply* reply) override {
    return later(long_calls_, context, [this, request, reply](const WaitContext&) {
      const Sender sender = sender_of(request->sender());
      core_.require_leader(sender);
      const auto directory = checkpoint_directory(request->directory());
      const auto tables = core_.fresh_tables(sender);
      const RestoredState state = read_shards(directory, *tables);
      core_.adopt(sender, tables, state.step, state.marks);
      reply->set_step(state.step);
    });
  }

  ServerUnaryReactor* Stats(CallbackServerContext* context, const proto::PsStatsRequest*,
                            proto::PsStatsReply* reply) override {
    return now(context, [&] {
      reply->set_instance(core_.instance());
      reply->set_version(core_.version());
      reply->set_started(core_.started());
      for (const auto& [name, value] : core_.counters()->all()) (*reply->mutable_counters())[name] = value;
    });
  }

  ServerUnaryReactor* Health(CallbackServerContext* context, const proto::PsHealthRequest*,
                             proto::PsHealthReply* reply) override {
    return now(context, [&] { reply->set_instance(core_.instance()); });
  }

  ServerUnaryReactor* Shutdown(CallbackServerContext* context, const proto::PsShutdownRequest* request,
                               proto::PsEmpty*) override {
    return now(context, [&] {
      const Sender sender = sender_of(request->sender());
      if (auto error = core_.heard(sender, 0)) throw_error(*error);
      if (sender.worker == kObserver) throw InvalidArgument("[ps] an observer cannot end a job");
      if (!request->lost_server().empty()) {
        const std::string text = request->lost_server().substr(0, kMostReason);
        log_error(
            "[ps] server {}: worker {} has lost {}, and part of the job's state with it: the job ends; "
            "start all its workers and servers again with --resume",
            options_.index, sender.worker, text);
        core_.give_up_job(fmt::format("the job has lost {}, according to worker {}", text, sender.worker));
        return end(JobEnd::Lost);
      }
      if (request->before_start()) {
        if (core_.stop_before_start(fmt::format(
                "worker {} was asked to stop before the job had its initial values", sender.worker)))
          end(JobEnd::Terminated);
        return;
      }
      core_.require_leader(sender);
      end(request->terminated() ? JobEnd::Terminated : JobEnd::Done);
    });
  }

  ServerUnaryReactor* Refuse(CallbackServerContext* context, const proto::PsRefuseRequest* request,
                             proto::PsEmpty*) override {
    return now(context, [&] {
      const auto code = static_cast<ErrorCode>(request->code());
      if (code < ErrorCode::InvalidArgument || code > ErrorCode::OutOfRange)
        throw InvalidArgument(fmt::format("[ps] there is no error {}", request->code()));
      core_.refuse(sender_of(request->sender()), make_error(code, request->message().substr(0, kMostReason)));
    });
  }

 private:
  void end(JobEnd how) const {
    if (options_.on_shutdown) options_.on_shutdown(how);
  }

  /// What a peer names, if it is inside the job's own directory.
  std::filesystem::path checkpoint_directory(const std::string& named) const {
    if (options_.checkpoints.empty())
      throw InvalidArgument(fmt::format(
          "[ps] server {}: its job file names no checkpoint.directory, so it writes and reads no checkpoints",
          options_.index));
    auto root = std::filesystem::weakly_canonical(std::filesystem::absolute(options_.checkpoints));
    if (!root.has_filename()) root = root.parent_path();  // "/a/b/"
    const auto asked = std::filesystem::weakly_canonical(named);
    if (asked != root &&
        std::mismatch(root.begin(), root.end(), asked.begin(), asked.end()).first == root.end())
      return asked;
    throw InvalidArgument(
        fmt::format("[ps] server {}: '{}' is not inside of '{}', the checkpoint.directory of "
                    "its job file: workers and servers must see it under one path",
                    options_.index, named, root.string()));
  }

  template <class Body>
  ServerUnaryReactor* now(CallbackServerContext* context, Body body) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(run(body));
    return reactor;
  }

  template <class Body>
  ServerUnaryReactor* later(LongCalls& calls, CallbackServerContext* context, Body body) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto left = context->deadline() - std::chrono::system_clock::now();
    calls.post([this, reactor, body, begin = Clock::now(), left](const std::stop_token& stop) {
      reactor->Finish(run([&] {
        const auto wait = WaitContext::with_timeout(left - (Clock::now() - begin), stop);
        wait.check(fmt::format("[ps] server {}", options_.index));
        body(wait);
      }));
    });
    return reactor;
  }

  template <class Body>
  static grpc::Status run(const Body& body) {
    try {
      body();
      return grpc::Status::OK;
    } catch (...) {
      return status_of(*capture_current_exception());
    }
  }

  /// "10.0.0.7:41022 on host-a" of gRPC's "ipv4:10.0.0.7:41022".
  static std::string address_of(const std::string& peer, const std::string& host) {
    const auto colon = peer.find(':');
    const std::string address =
        peer.starts_with("ipv") && colon != std::string::npos ? peer.substr(colon + 1) : peer;
    return host.empty() ? address : fmt::format("{} on {}", address, host);
  }

  ServerCore& core_;
  const ControlServiceOptions& options_;
  LongCalls long_calls_;
  LongCalls cuts_;  // wait for workers, one of which may still be about to create its tables
};

}  // namespace

struct ControlService::Impl {
  Impl(ServerCore& core, ControlServiceOptions given)
      : options(std::move(given)), service(core, options), queue(make_queue_service(options.deadline)) {}
  ControlServiceOptions options;
  Service service;
  std::unique_ptr<grpc::Service> queue;  // workers ask that of server 0
  std::optional<comm::GrpcListener> listener;
  std::unique_ptr<grpc::Server> server;
};

ControlService::ControlService(ServerCore& core, ControlServiceOptions options)
    : impl_(std::make_unique<Impl>(core, std::move(options))) {
  const std::string& listen = impl_->options.listen;
  grpc::ServerBuilder builder;
  try {
    impl_->listener.emplace(builder, listen, impl_->options.security);
  } catch (const Unavailable& error) {
    throw Unavailable(fmt::format("[ps] server {}: {}", impl_->options.index, error.message()));
  }
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.RegisterService(&impl_->service);
  builder.RegisterService(impl_->queue.get());
  impl_->server = builder.BuildAndStart();
  if (!impl_->server)
    throw Internal(fmt::format("[ps] server {} at {}: gRPC starts no server", impl_->options.index, listen));
  impl_->listener->start();
}

ControlService::~ControlService() {
  try {
    stop(WaitContext::with_timeout(std::chrono::seconds(2)));
  } catch (...) {
    log_error("{}", capture_current_exception()->message);
  }
}

std::string ControlService::address() const { return impl_->listener->address(); }

void ControlService::stop(const WaitContext& wait) {
  impl_->service.finish();
  if (!impl_->server) return;
  impl_->listener->stop();
  // Connections count as calls under way until the client notices, which idle ones do every few seconds.
  impl_->server->Shutdown(std::chrono::system_clock::now() +
                          std::min<std::chrono::nanoseconds>(wait.remaining(), kGrace));
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace braid::ps
