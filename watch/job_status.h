// The processes of a job at a moment, as somebody who asked them all saw them: the JSON document /job.json of
// a process that knows its peers, and what `braid top` and `braid doctor ADDR` draw. A peer that did not
// answer is there and says so. Thread rule: plain records; ask_peers() from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "watch/status.h"

namespace braid::watch {

/// The error of a peer whose turn has not come.
inline constexpr const char* kNotAskedYet = "has not been asked yet";

struct Peer {
  std::string task;              // as listed, else as it says itself
  std::string address;           // "host:port"
  std::optional<Status> status;  // the latest that it gave
  std::string error;             // why there was no answer now; empty: there was
  double silent_seconds = 0;     // since it answered last, of the observer's start where it never did

  bool answers() const { return error.empty() && status.has_value(); }
};

struct JobStatus {
  std::string job;
  double time = 0;  // Unix seconds
  std::vector<Peer> peers;
  std::vector<Warning> warnings;  // of the rules, over all of them
};

/// Asks everybody for /status.json. `before`: keeps the last status of who is silent now.
void ask_peers(const std::vector<PeerAddress>& peers, std::chrono::milliseconds timeout, JobStatus& job);
/// The whole job as `address` knows it: its /job.json, or itself alone where it knows no peers. Nobody
/// answers: one peer with the error.
JobStatus ask_job(const std::string& address, std::chrono::milliseconds timeout);

std::string to_json(const JobStatus& job);
/// Throws: InvalidArgument for a text that is no JSON object.
JobStatus job_status_from_json(const std::string& text);

}  // namespace braid::watch
