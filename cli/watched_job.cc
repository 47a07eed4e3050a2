#include "cli/watched_job.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "launch/environment.h"
#include "launch/listed_cluster.h"
#include "launch/tf_config.h"

namespace braid::cli {
namespace {

launch::ListedCluster listed_cluster(const std::string& given) {
  std::error_code unknown;
  std::string text = given;
  if (std::filesystem::is_regular_file(given, unknown)) text = read_file(given);
  if (text.find("\"cluster\"") != std::string::npos || text.find("\"sparseCluster\"") != std::string::npos)
    return launch::parse_tf_config(text);
  return launch::parse_cluster_flag(text);
}

std::vector<watch::PeerAddress> pages_of(const launch::ListedCluster& cluster, int port) {
  std::vector<watch::PeerAddress> peers;
  for (const auto& [type, job] : cluster.jobs)
    for (const auto& [index, address] : job)
      peers.push_back({launch::task_name({type, index}),
                       address.substr(0, address.rfind(':')) + ":" + std::to_string(port)});
  return peers;
}

void check_page_address(const std::string& address) {
  const auto colon = address.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : parse_int(address.substr(colon + 1));
  if (colon == 0 || !port || *port < 1 || *port > 65535)
    throw InvalidArgument("'" + address +
                          "' is not host:port, where a process of the job says in its log that "
                          "its metrics are");
}

/// "http://127.0.0.1:8080/metrics" as a log has it.
std::string without_url(std::string address) {
  if (address.starts_with("http://")) address.erase(0, 7);
  return address.substr(0, address.find('/'));
}

}  // namespace

void add_watched_flags(CLI::App& command, WatchedFlags& flags) {
  command.add_option(
      "ADDR", flags.addresses,
      "host:port of processes, as their logs say (metrics: http://...). One address is asked for "
      "the whole job, where it knows its peers");
  command.add_option(
      "--cluster", flags.cluster,
      "In place of ADDR: a file or a text with the cluster, as `braid train --cluster` takes it, or "
      "TF_CONFIG; default: the variable TF_CONFIG");
  command.add_option("--port", flags.port, "Port of the pages of a --cluster's tasks")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
}

WatchedJob::WatchedJob(const WatchedFlags& flags) {
  for (const std::string& given : flags.addresses) {
    const std::string address = without_url(given);
    check_page_address(address);
    peers_.push_back({"", address});
  }
  whole_job_ = peers_.size() == 1;
  if (!peers_.empty()) return;
  launch::ListedCluster cluster;
  if (!flags.cluster.empty())
    cluster = listed_cluster(flags.cluster);
  else if (const auto config = env_string("TF_CONFIG"))
    cluster = launch::parse_tf_config(*config);
  peers_ = pages_of(cluster, flags.port);
  if (peers_.empty())
    throw InvalidArgument(
        "whom to ask? Give host:port of a process (its log says \"metrics: http://...\"; "
        "--set metrics.listen=127.0.0.1:8080 and the variable BRAID_HTTP turn it on), --cluster, or "
        "TF_CONFIG");
}

const watch::JobStatus& WatchedJob::ask(std::chrono::milliseconds timeout) {
  if (!whole_job_) {
    ask_peers(peers_, timeout, job_);
    return job_;
  }
  watch::JobStatus now = watch::ask_job(peers_.front().address, timeout);
  // The one that was asked is silent: what it said last stays in sight.
  const bool silent = now.peers.size() == 1 && !now.peers.front().answers();
  if (silent && !job_.peers.empty()) {
    for (watch::Peer& peer : job_.peers) {
      peer.silent_seconds += now.time - job_.time;
      peer.error = peer.address == peers_.front().address || peer.address.empty()
                       ? now.peers.front().error
                       : "only known through " + peers_.front().address + ", which is silent";
    }
    job_.time = now.time;
    job_.warnings.clear();
    return job_;
  }
  job_ = std::move(now);
  for (watch::Peer& peer : job_.peers)
    if (peer.address.empty()) peer.address = peers_.front().address;
  return job_;
}

const watch::JobStatus& WatchedJob::ask_all(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    ask(timeout);
    bool waits = false;
    for (const watch::Peer& peer : job_.peers) waits = waits || peer.error == watch::kNotAskedYet;
    if (!waits || std::chrono::steady_clock::now() >= end) return job_;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace braid::cli
