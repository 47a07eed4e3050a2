#include "worker/watch/page_access.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <span>

#include "base/env.h"
#include "base/error.h"
#include "proto/job.pb.h"
#include "worker/process/security.h"

namespace braid::worker {
namespace {

constexpr std::int64_t kProofSeconds = 60;
constexpr std::string_view kScheme = "Braid ";

std::string hexadecimal(const comm::Key& key) {
  std::string text;
  for (const std::byte each : key) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

std::string proof_of(const comm::Key& key, std::string_view seconds, std::string_view target) {
  const std::string text = fmt::format("{} {}", seconds, target);
  return hexadecimal(comm::hmac_sha256(key, std::as_bytes(std::span(text))));
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string refusal(const comm::Key& key, const HttpRequest& request) {
  constexpr const char* kHow = "this acts on the job or tells of its model: prove the job's token";
  std::string_view proof = request.authorization;
  if (!proof.starts_with(kScheme)) return kHow;
  proof.remove_prefix(kScheme.size());
  const auto space = proof.find(' ');
  const auto seconds = parse_int(proof.substr(0, space));
  if (space == std::string_view::npos || !seconds) return kHow;
  const std::string expected = proof_of(key, proof.substr(0, space), request.target);
  const std::string_view given = proof.substr(space + 1);
  if (!comm::equal_in_constant_time(std::as_bytes(std::span(expected)), std::as_bytes(std::span(given))))
    return "the token is another one";
  if (*seconds < unix_seconds() - kProofSeconds || *seconds > unix_seconds() + kProofSeconds)
    return "the proof is of another time: compare the clocks of the two hosts";
  return {};
}

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

std::vector<watch::PeerAddress> listed_peers(const std::string& text) {
  std::vector<watch::PeerAddress> peers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const auto equals = entry.find('='), colon = entry.find(':');
    const auto type = launch::task_type_from_name(entry.substr(0, std::min(colon, equals)));
    const std::int64_t index =
        colon < equals ? parse_int(entry.substr(colon + 1, equals - colon - 1)).value_or(-1) : -1;
    if (equals == std::string_view::npos || !type || index < 0 || index > 1'000'000)
      throw InvalidArgument(
          fmt::format("BRAID_HTTP_PEERS: '{}' is not of the form worker:0=host:port", std::string(entry)));
    peers.push_back(
        {launch::task_name({*type, static_cast<int>(index)}), std::string(entry.substr(equals + 1))});
  }
  return peers;
}

}  // namespace

std::string http_proof(const comm::JobToken& token, std::string_view target, std::int64_t unix_seconds) {
  const std::string seconds = std::to_string(unix_seconds);
  return fmt::format("{}{} {}", kScheme, seconds, proof_of(token.key_for("braid http"), seconds, target));
}

std::function<std::string(const HttpRequest&)> page_access(const proto::Job& job, const std::string& listen) {
  if (listen.empty() || is_loopback(host_of(listen)) || job.strategy().insecure()) return {};
  const comm::JobToken token = given_token(job);
  if (token.empty())
    return [](const HttpRequest&) -> std::string {
      return "other hosts reach this address and the job has no token: give it one (BRAID_TOKEN), or listen "
             "on 127.0.0.1";
    };
  return [key = token.key_for("braid http")](const HttpRequest& request) { return refusal(key, request); };
}

std::vector<watch::PeerAddress> page_peers(const launch::ClusterSpec& cluster, const std::string& listen) {
  if (const auto listed = env_string("BRAID_HTTP_PEERS"); listed && !listed->empty())
    return listed_peers(*listed);
  const auto colon = listen.rfind(':');
  if (colon == std::string::npos || listen.substr(colon) == ":0" || cluster.single_machine() ||
      !cluster.addresses_known() || cluster.partial)
    return {};
  std::vector<watch::PeerAddress> peers;
  std::set<std::string> hosts;
  for (const launch::Task& task : cluster.tasks()) {
    const std::string host = host_of(cluster.address(task).value_or(""));
    if (host.empty() || !hosts.insert(host).second) return {};
    peers.push_back({launch::task_name(task), host + listen.substr(colon)});
  }
  return peers;
}

}  // namespace braid::worker
