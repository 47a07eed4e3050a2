// A process for tests to kill, stop and watch.
//
//   comm_peer serve
//     A transport server that holds all requests. Prints its address.
//   comm_peer host
//     A rendezvous. Prints its address.
//   comm_peer stay RENDEZVOUS NAME
//     A member that stays. Prints "ready" then.
//   comm_peer collective RENDEZVOUS RANK SIZE DEADLINE_MS
//     All-reduces for ever, the deadline each but for the first one. Prints "ready" after that, and in the
//     end the error and how long it took.
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/rendezvous/grpc_rendezvous.h"
#include "comm/ring/ring_communicator.h"
#include "comm/transport/transport.h"

namespace braid::comm {
namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int serve() {
  std::mutex mutex;
  std::vector<Responder> held;
  RequestHandler handler;
  handler.on_request = [&](IncomingMessage, Responder responder, std::uint64_t) {
    std::lock_guard lock(mutex);
    held.push_back(std::move(responder));
  };
  auto server = TransportServer::start({.listen = "127.0.0.1:0"}, handler);
  say(server->address());
  for (;;) pause();
}

/// Until everybody is there.
constexpr std::chrono::seconds kStartTime{60};

int host() {
  const auto server = RendezvousServer::start({.listen = "127.0.0.1:0"});
  say(server->address());
  for (;;) pause();
}

int stay(const std::string& address, const std::string& name) {
  const auto rendezvous = make_grpc_rendezvous(address, {"job", 1});
  rendezvous->add_member({name, 1, {}}, WaitContext::with_timeout(kStartTime));
  const auto presence = rendezvous->stay(name);
  rendezvous->heartbeat(name, WaitContext::with_timeout(kStartTime));
  say("ready");
  for (;;) pause();
}

int collective(const std::string& address, int rank, int size, std::chrono::milliseconds deadline) {
  auto rendezvous = make_grpc_rendezvous(address, {"job", 1});
  RingOptions options;
  options.rank = rank;
  options.size = size;
  auto comm = make_ring_communicator(options, *rendezvous, WaitContext::with_timeout(kStartTime));
  std::vector<float> data(4 << 20, 1.0f);
  for (bool first = true;; first = false) {
    auto started = std::chrono::steady_clock::now();
    try {
      comm->all_reduce(data.data(), data.data(), static_cast<std::int64_t>(data.size()), DType::Float32,
                       ReduceOp::Max, StreamRef::host(),
                       WaitContext::with_timeout(first ? kStartTime : deadline));
    } catch (const Error& error) {
      auto took =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started);
      say(fmt::format("{} {} {}", error_code_name(error.code()), took.count(), error.message()));
      return exit_code_for(error.code());
    }
    if (first) say("ready");
  }
}

int main_of(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "serve") return serve();
  if (args.size() == 1 && args[0] == "host") return host();
  if (args.size() == 3 && args[0] == "stay") return stay(args[1], args[2]);
  if (args.size() == 5 && args[0] == "collective")
    return collective(args[1], std::stoi(args[2]), std::stoi(args[3]),
                      std::chrono::milliseconds(std::stoi(args[4])));
  return 2;
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) { return braid::comm::main_of(argc, argv); }
