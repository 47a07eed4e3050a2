#include "watch/job_status.h"

#include <algorithm>

#include "base/error.h"
#include "base/http_client.h"
#include "watch/json_fields.h"
#include "watch/rules.h"
#include "watch/status_json.h"

namespace braid::watch {
namespace {

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Peer& peer_at(JobStatus& job, const PeerAddress& address) {
  const auto at = std::find_if(job.peers.begin(), job.peers.end(),
                               [&](const Peer& peer) { return peer.address == address.address; });
  if (at != job.peers.end()) return *at;
  Peer peer;
  peer.task = address.task;
  peer.address = address.address;
  return job.peers.emplace_back(std::move(peer));
}

void take(Peer& peer, const HttpAnswer& answer, double seconds_since_last) {
  peer.error = answer.error;
  if (answer.ok()) {
    try {
      peer.status = status_from_json(answer.body);
    } catch (const InvalidArgument&) {
      peer.error = "answers, but not as a process of Braid";
    }
  }
  if (!peer.error.empty()) {
    peer.silent_seconds += seconds_since_last;
    return;
  }
  peer.silent_seconds = 0;
  if (peer.task.empty()) peer.task = peer.status->task;
}

}  // namespace

void ask_peers(const std::vector<PeerAddress>& peers, std::chrono::milliseconds timeout, JobStatus& job) {
  std::vector<HttpGet> requests;
  for (const PeerAddress& peer : peers) requests.push_back({peer.address, "/status.json"});
  const std::vector<HttpAnswer> answers = http_get_all(requests, timeout);
  const double now = unix_now();
  const double since = job.time > 0 ? now - job.time : 0;
  job.time = now;
  for (std::size_t i = 0; i < peers.size(); ++i) take(peer_at(job, peers[i]), answers[i], since);
  for (const Peer& peer : job.peers)
    if (job.job.empty() && peer.status) job.job = peer.status->job;
  job.warnings = find_warnings(job);
}

JobStatus ask_job(const std::string& address, std::chrono::milliseconds timeout) {
  const HttpAnswer answer = http_get({address, "/job.json"}, timeout);
  if (answer.ok()) try {
      return job_status_from_json(answer.body);
    } catch (const InvalidArgument&) {
    }
  JobStatus job;
  ask_peers({{"", address}}, timeout, job);
  return job;
}

std::string to_json(const JobStatus& job) {
  OrderedJson json{{"version", Status::kVersion}, {"job", job.job}, {"time", job.time}};
  OrderedJson peers = OrderedJson::array(), warnings = OrderedJson::array();
  for (const Peer& peer : job.peers) {
    OrderedJson one{{"task", peer.task}, {"address", peer.address}};
    if (!peer.error.empty()) {
      one["error"] = peer.error;
      one["silent_seconds"] = peer.silent_seconds;
    }
    if (peer.status) one["status"] = status_json(*peer.status);
    peers.push_back(std::move(one));
  }
  for (const Warning& warning : job.warnings) warnings.push_back(warning_json(warning));
  json["peers"] = std::move(peers);
  json["warnings"] = std::move(warnings);
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

JobStatus job_status_from_json(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) throw InvalidArgument("[watch] not the status of a job of Braid");
  const JsonReader reader(json);
  JobStatus job;
  reader.field("job", job.job);
  reader.field("time", job.time);
  reader.list("peers", job.peers, [](const JsonReader& one, Peer& peer) {
    one.field("task", peer.task);
    one.field("address", peer.address);
    one.field("error", peer.error);
    one.field("silent_seconds", peer.silent_seconds);
    if (one.json.is_object() && one.json.contains("status")) peer.status = read_status(one.json["status"]);
    if (!peer.status && peer.error.empty()) peer.error = kNotAskedYet;
  });
  if (json.contains("warnings") && json["warnings"].is_array())
    for (const OrderedJson& each : json["warnings"]) job.warnings.push_back(read_warning(each));
  return job;
}

}  // namespace braid::watch
