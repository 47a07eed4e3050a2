// Which processes `braid top`, `braid doctor ADDR` and `braid trace` look at, and the asking. Thread rule:
// one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "watch/job_status.h"

namespace CLI {
class App;
}

namespace braid::cli {

struct WatchedFlags {
  std::vector<std::string> addresses;  // "host:port"
  std::string cluster;                 // a file, "worker=h:1;ps=h:2", or JSON
  int port = 8080;                     // of pages, where a cluster spec names the tasks
};
/// The positional ADDR..., --cluster and --port.
void add_watched_flags(CLI::App& command, WatchedFlags& flags);

class WatchedJob {
 public:
  /// One address is asked for the whole job, several for themselves. Without any: --cluster, then TF_CONFIG.
  /// Throws: InvalidArgument when nothing says whom to ask, or an address is no host:port.
  explicit WatchedJob(const WatchedFlags& flags);

  /// Everybody once, within `timeout`.
  const watch::JobStatus& ask(std::chrono::milliseconds timeout);
  /// Until every process was asked, for `timeout` at most.
  const watch::JobStatus& ask_all(std::chrono::milliseconds timeout);

 private:
  std::vector<watch::PeerAddress> peers_;
  bool whole_job_ = false;  // of the one address
  watch::JobStatus job_;
};

}  // namespace braid::cli
