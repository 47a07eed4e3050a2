#include "comm/transport/listener.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <optional>

#include "base/descriptors.h"
#include "base/error.h"
#include "base/look_up.h"
#include "comm/transport/address.h"
#include "comm/transport/endpoint.h"
#include "comm/transport/security.h"

namespace braid::comm {
namespace {

using Protocol = boost::asio::generic::stream_protocol;
constexpr std::chrono::milliseconds kAcceptRetry{100};

void remove_old_socket(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
}

/// Nothing: the reason in `reason`.
std::optional<Protocol::endpoint> resolve(const Address& address, std::string& reason) {
  if (address.is_unix) return boost::asio::local::stream_protocol::endpoint(address.host);
  const AddressList list = own_addresses(address.host, address.port, reason);
  if (!list) return std::nullopt;
  return Protocol::endpoint(list->ai_addr, list->ai_addrlen);
}

}  // namespace

Listener::Listener(Context context, const std::string& listen)
    : context_(std::move(context)), acceptor_(*context_), retry_(*context_) {
  const std::vector<std::string> candidates = listen_candidates(listen);
  for (std::size_t i = 0; !acceptor_.is_open() && i < candidates.size(); ++i) {
    try {
      listen_at(candidates[i]);
    } catch (const Unavailable&) {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      if (i + 1 == candidates.size()) throw;
    }
  }
}

void Listener::listen_at(const std::string& listen) {
  const Address address = parse_address(listen);
  const auto fail = [&](const std::string& reason) -> Unavailable {
    return Unavailable(fmt::format("[transport] cannot listen on {}: {}", listen, reason));
  };
  std::string reason;
  const std::optional<Protocol::endpoint> endpoint = resolve(address, reason);
  if (!endpoint) throw fail(reason);
  try {
    if (address.is_unix) remove_old_socket(address.host);
    acceptor_.open(endpoint->protocol());
    if (!address.is_unix) {
      acceptor_.set_option(boost::asio::socket_base::reuse_address(true));
      take_both_families(acceptor_.native_handle());
    }
    acceptor_.bind(*endpoint);
    // Whoever may write to the file may connect. Nobody can before listen().
    if (address.is_unix && chmod(address.host.c_str(), S_IRUSR | S_IWUSR) != 0)
      throw boost::system::system_error(errno, boost::system::system_category());
    acceptor_.listen();
    if (address.is_unix) {
      unix_path_ = address.host;
      address_ = listen;
    } else {
      auto bound = endpoint_name(acceptor_.local_endpoint());
      address_ = fmt::format("{}{}", listen.substr(0, listen.rfind(':')), bound.substr(bound.rfind(':')));
    }
  } catch (const boost::system::system_error& error) {
    throw fail(error.code().message());
  }
}

Listener::~Listener() {
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
}

void Listener::start(std::function<Context()> pick, std::function<void(Context, Socket)> accepted) {
  pick_ = std::move(pick);
  accepted_ = std::move(accepted);
  accept();
}

void Listener::accept() {
  auto context = pick_();
  acceptor_.async_accept(
      *context, [self = shared_from_this(), context](boost::system::error_code error, Socket socket) {
        if (!self->acceptor_.is_open()) return;
        if (!error) {
          if (leaves_descriptors(socket.native_handle()))
            self->accepted_(context, std::move(socket));
          else
            warn_of_refusal(
                fmt::format("transport: {}: a connection was refused: too many are open", self->address_));
          return self->accept();
        }
        // Most often the process is out of file descriptors: others must be given the time to close some.
        warn_of_refusal(
            fmt::format("transport: {}: cannot accept a connection: {}", self->address_, error.message()));
        self->retry_.expires_after(kAcceptRetry);
        self->retry_.async_wait([self](auto timer_error) {
          if (!timer_error && self->acceptor_.is_open()) self->accept();
        });
      });
}

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel(ignored);
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
  unix_path_.clear();
}

}  // namespace braid::comm
