#include "comm/rendezvous/mpi_rendezvous.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "comm/rendezvous/grpc_rendezvous.h"

namespace braid::comm {
namespace {

/// An address of this machine for the others; the loopback when it has no other.
std::string own_address() {
  ifaddrs* list = nullptr;
  std::string found = "127.0.0.1";
  if (getifaddrs(&list) != 0) return found;
  for (auto* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) || !(entry->ifa_flags & IFF_UP)) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    auto* address = reinterpret_cast<sockaddr_in*>(entry->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
    break;
  }
  freeifaddrs(list);
  return found;
}

bool on_one_host(const MpiSession& session) {
  auto host = [&](int rank) {
    auto& name = session.name_of(rank);
    return name.substr(name.find('('));
  };
  for (int rank = 1; rank < session.size(); ++rank)
    if (host(rank) != host(0)) return false;
  return true;
}

/// The client of a server that lives as long as it does.
class HostedRendezvous final : public Rendezvous {
 public:
  HostedRendezvous(std::unique_ptr<RendezvousServer> server, std::unique_ptr<Rendezvous> client)
      : server_(std::move(server)), client_(std::move(client)) {}

  void set(const std::string& key, std::span<const std::byte> value, const WaitContext& wait) override {
    client_->set(key, value, wait);
  }
  std::vector<std::byte> get(const std::string& key, const WaitContext& wait) override {
    return client_->get(key, wait);
  }
  void add_member(const Member& member, const WaitContext& wait) override {
    client_->add_member(member, wait);
  }
  void heartbeat(const std::string& name, const WaitContext& wait) override {
    client_->heartbeat(name, wait);
  }
  std::unique_ptr<Presence> stay(const std::string& name) override { return client_->stay(name); }
  std::vector<MemberStatus> members(const WaitContext& wait) override { return client_->members(wait); }
  void post_progress(const RankProgress& progress, const WaitContext& wait) override {
    client_->post_progress(progress, wait);
  }
  std::vector<RankProgress> progress(const WaitContext& wait) override { return client_->progress(wait); }
  void barrier(const std::string& name, int rank, int size, const WaitContext& wait) override {
    client_->barrier(name, rank, size, wait);
  }
  std::string address() const override { return client_->address(); }

 private:
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<Rendezvous> client_;  // destroyed before the server
};

}  // namespace

JobToken share_token(MpiSession& session, const WaitContext& wait) {
  const std::string own = session.rank() == 0 ? JobToken::random().text() : "";
  return {session.exchange(own, wait).front(), "the token of rank 0"};
}

std::unique_ptr<Rendezvous> make_mpi_rendezvous(MpiSession& session, RendezvousScope scope,
                                                const Security& given, const WaitContext& wait) {
  Security security = given;
  // MPI itself is trusted with who takes part; the sockets beside it are not.
  if (security.open()) security.token = share_token(session, wait);
  std::unique_ptr<RendezvousServer> server;
  std::string address;
  if (session.rank() == 0) {
    auto host = on_one_host(session) ? "127.0.0.1" : own_address();
    RendezvousServerOptions options;
    options.listen = host + ":0";
    options.security = security;
    server = RendezvousServer::start(std::move(options));
    address = server->address();
  }
  address = session.exchange(address, wait).front();
  auto client = make_grpc_rendezvous(address, std::move(scope), security);
  if (!server) return client;
  return std::make_unique<HostedRendezvous>(std::move(server), std::move(client));
}

}  // namespace braid::comm
