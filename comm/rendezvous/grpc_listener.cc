#include "comm/rendezvous/grpc_listener.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <system_error>
#include <utility>

#include "base/descriptors.h"
#include "comm/rendezvous/grpc_credentials.h"

namespace braid::comm {
namespace {

using Clock = std::chrono::steady_clock;

// gRPC ends a connection that has not proved itself within this time.
constexpr std::chrono::milliseconds kHandshake{10000};
// Where so many are new, and so many descriptors open, that they may all be unproven, at some 20 KiB each, no
// further one is taken. Those that came and went count for nothing.
constexpr std::size_t kMostNew = 4096;
constexpr int kStopPollMilliseconds = 50;
constexpr std::chrono::milliseconds kAcceptPause{100};  // after one that failed, as for want of descriptors

}  // namespace

GrpcListener::GrpcListener(grpc::ServerBuilder& builder, const std::string& listen, const Security& security)
    : socket_(listen_on(listen)),
      address_(fmt::format("{}:{}", listen.substr(0, listen.rfind(':')), socket_.port)) {
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(kHandshake.count()));
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      make_server_credentials(security));
}

GrpcListener::~GrpcListener() { stop(); }

void GrpcListener::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "grpc accept");
    accept(stop);
  });
}

void GrpcListener::stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  socket_.fd.reset();
}

void GrpcListener::accept(const std::stop_token& stop) {
  std::deque<Clock::time_point> fresh;  // when those were taken that may be unproven
  while (!stop.stop_requested()) {
    pollfd entry{socket_.fd.get(), POLLIN, 0};
    if (::poll(&entry, 1, kStopPollMilliseconds) <= 0) continue;
    std::optional<Fd> connection = accept_now(socket_.fd.get());
    if (!connection) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) continue;
      warn_of_refusal(
          fmt::format("{}: cannot accept a connection: {}", address_, std::system_category().message(errno)));
      std::this_thread::sleep_for(kAcceptPause);
      continue;
    }
    const auto now = Clock::now();
    while (!fresh.empty() && fresh.front() + kHandshake < now) fresh.pop_front();
    const bool crowded = fresh.size() >= kMostNew && connection->get() >= static_cast<int>(kMostNew);
    if (crowded || !leaves_descriptors(connection->get())) {
      warn_of_refusal(fmt::format("{}: a connection was refused: too many are open or new", address_));
      continue;
    }
    fresh.push_back(now);
    if (fresh.size() > kMostNew) fresh.pop_front();
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters given;
    given.listener_fd = socket_.fd.get();
    given.fd = connection->release();
    acceptor_->HandleNewConnection(&given);
  }
}

}  // namespace braid::comm
