#include "comm/ring/connect_mesh.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/random_id.h"
#include "comm/ring/hello.h"
#include "comm/ring/newcomers.h"

namespace braid::comm {
namespace {

constexpr std::chrono::milliseconds kConnectRetry{50};
constexpr std::chrono::seconds kHelloAnswerTime{5};  // for our hello to a rank whose own was right

std::string advertised(const RingOptions& options, int port) {
  auto host = options.advertise_host;
  if (host.empty()) host = options.listen.substr(0, options.listen.rfind(':'));
  if (host == "0.0.0.0" || host == "[::]") {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    host = name.data();
  }
  return fmt::format("{}:{}", host, port);
}

class MeshBuilder {
 public:
  MeshBuilder(const RingOptions& options, Rendezvous& rendezvous, const WaitContext& wait)
      : options_(options),
        rendezvous_(rendezvous),
        wait_(wait),
        streams_(options.security, "ring 1"),
        peers_(static_cast<std::size_t>(options.size)) {}

  std::vector<PeerSockets> build() {
    auto listener = listen_on(options_.listen);
    std::optional<Fd> local;
    // What the user wants encrypted stays so; and a local socket's name can be taken by anybody on the host,
    // who then cannot prove the token.
    if (!streams_.encrypts()) local = listen_local(local_name(listener.port, options_.rank));
    exchange_addresses(advertised(options_, listener.port), local ? listener.port : 0);
    for (int peer = 0; peer < options_.rank; ++peer)
      for (std::uint32_t channel : {0, 1}) connect_to(peer, channel);
    std::vector<int> listeners{listener.fd.get()};
    if (local) listeners.push_back(local->get());
    Newcomers newcomers(std::move(listeners), streams_, me());
    for (int missing = 2 * (options_.size - 1 - options_.rank); missing > 0;)
      if (accept_one_of(newcomers)) --missing;
    return std::move(peers_);
  }

 private:
  std::string me() const { return fmt::format("[ring] rank {}", options_.rank); }

  /// The port makes it unique on the host.
  static std::string local_name(int port, int rank) { return fmt::format("braid-ring-{}-{}", port, rank); }

  /// `local_port`: 0 without a local socket.
  void exchange_addresses(const std::string& own, int local_port) {
    auto local_key = [&](int rank) { return fmt::format("{}/{}/local", options_.name, rank); };
    auto scope = local_scope();
    auto local = local_port == 0 || scope.empty()
                     ? ""
                     : fmt::format("{} {}", local_name(local_port, options_.rank), scope);
    rendezvous_.set_text(local_key(options_.rank), local,
                         wait_);  // before the address, for which the others wait
    auto key = [&](int rank) { return fmt::format("{}/{}/address", options_.name, rank); };
    auto group_key = options_.name + "/group";
    if (options_.rank == 0) {
      group_ = random_id();
      rendezvous_.set_text(group_key, std::to_string(group_), wait_);
    }
    rendezvous_.set_text(key(options_.rank), own, wait_);
    addresses_.resize(peers_.size());
    std::vector<int> missing;
    auto wait = wait_;
    for (int rank = 0; rank < options_.size; ++rank) {
      try {
        addresses_[rank] = rendezvous_.get_text(key(rank), wait);
        peers_[rank].name = fmt::format("rank {} ({})", rank, addresses_[rank]);
      } catch (const DeadlineExceeded&) {
        missing.push_back(rank);
        wait =
            WaitContext::with_timeout(std::chrono::milliseconds(100), wait_.stop);  // who else is not there?
      }
    }
    if (!missing.empty())
      throw DeadlineExceeded(fmt::format("{}: timed out waiting for {} at the rendezvous ({})", me(),
                                         rank_list(missing), rendezvous_.address()));
    group_ = std::stoull(rendezvous_.get_text(group_key, wait_));
    for (int peer = 0; peer < options_.rank; ++peer) {
      auto theirs = rendezvous_.get_text(local_key(peer), wait_);
      auto space = theirs.find(' ');
      if (!local.empty() && space != std::string::npos && theirs.substr(space + 1) == scope)
        local_names_[peer] = theirs.substr(0, space);
    }
  }

  Hello hello(std::uint32_t channel) const {
    Hello hello;
    hello.rank = options_.rank;
    hello.size = options_.size;
    hello.channel = channel;
    hello.group = group_;
    return hello;
  }

  StreamSocket wrap(Fd fd, bool server) const {
    auto handle = fd.get();
    return {std::move(fd), streams_.make(handle, server)};
  }

  void connect_to(int peer, std::uint32_t channel) {
    auto what = fmt::format("{}: {} did not accept the connection", me(), peers_[peer].name);
    std::string reason;
    for (;;) {
      std::optional<Fd> fd;
      if (auto local = local_names_.find(peer); local != local_names_.end())
        fd = connect_local(local->second);
      if (!fd) fd = connect_once(addresses_[peer], wait_, what, reason);
      if (fd) {
        auto socket = wrap(std::move(*fd), false);
        handshake(socket, wait_, what);
        auto mine = hello(channel);
        write_exactly(socket, mine.bytes(), wait_, what);
        Hello theirs;
        read_exactly(socket, theirs.bytes(), wait_, what);
        if (auto wrong = theirs.objection(mine, peer); !wrong.empty())
          throw Unavailable(fmt::format("{}: {}: {}", me(), peers_[peer].name, wrong));
        (channel == 0 ? peers_[peer].data : peers_[peer].control) = std::move(socket);
        return;
      }
      wait_.check(fmt::format("{}: {}", what, reason));
      std::this_thread::sleep_for(kConnectRetry);
    }
  }

  bool accept_one_of(Newcomers& newcomers) {
    auto newcomer = newcomers.next(wait_);
    if (!newcomer)
      throw DeadlineExceeded(fmt::format("{}: timed out waiting for {} to connect", me(), absent()));
    const Hello& theirs = newcomer->hello;
    auto wrong = theirs.objection(hello(theirs.channel), theirs.rank);
    auto& peer = peers_[wrong.empty() ? theirs.rank : options_.rank];
    auto& slot = theirs.channel == 0 ? peer.data : peer.control;
    if (wrong.empty() && slot.stream) wrong = "it is connected already";
    try {
      if (!wrong.empty()) throw InvalidArgument(wrong);
      auto mine = hello(theirs.channel);
      write_exactly(newcomer->socket, mine.bytes(), wait_.at_most(kHelloAnswerTime),
                    "no answer could be sent");
    } catch (const Cancelled&) {
      throw;
    } catch (const Error& error) {
      warn_of_refusal(fmt::format("{}: a connection was refused: {}", me(), error.message()));
      return false;
    }
    slot = std::move(newcomer->socket);
    return true;
  }

  std::string absent() const {
    std::string names;
    for (auto rank = static_cast<std::size_t>(options_.rank) + 1; rank < peers_.size(); ++rank)
      if (!peers_[rank].data.stream || !peers_[rank].control.stream)
        names += (names.empty() ? "" : ", ") + peers_[rank].name;
    return names;
  }

  const RingOptions& options_;
  Rendezvous& rendezvous_;
  const WaitContext& wait_;
  const StreamFactory streams_;
  std::vector<PeerSockets> peers_;
  std::vector<std::string> addresses_;
  std::map<int, std::string> local_names_;  // of the ranks below this one that are on this host
  std::uint64_t group_ = 0;
};

}  // namespace

std::vector<PeerSockets> connect_mesh(const RingOptions& options, Rendezvous& rendezvous,
                                      const WaitContext& wait) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw InvalidArgument(fmt::format("[ring] rank {} of {}", options.rank, options.size));
  return MeshBuilder(options, rendezvous, wait).build();
}

}  // namespace braid::comm
