// What a process shows over HTTP to people and to `braid top`: its status and its job's, curves, the plan, a
// few recorded steps, and the page that draws them (watch/page/). docs/user/status.md has the addresses.
//
// Reading is open, as /metrics is. What acts (recording steps) or tells of the model's inside (the plan, the
// steps) asks `refuse` first. Peers are asked only while somebody looks. Thread rule: add_to() once; the rest
// from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/http.h"
#include "watch/history.h"
#include "watch/job_status.h"
#include "worker/watch/trace_window.h"

namespace braid::worker {

class ProcessPage {
 public:
  struct Sources {
    /// Totals, without shares and rates. `devices`: with what asks the driver, which takes longer.
    std::function<watch::Status(bool devices)> read;
    /// Why a request is refused; empty: it is not. Null: none is.
    std::function<std::string(const HttpRequest&)> refuse;
  };
  explicit ProcessPage(Sources sources);
  ~ProcessPage();
  ProcessPage(const ProcessPage&) = delete;
  ProcessPage& operator=(const ProcessPage&) = delete;

  /// REQUIRES: the server goes before this object.
  void add_to(HttpServer& server);

  /// With rates of the latest seconds and the warnings of the rules.
  watch::Status status(bool devices = true);
  /// The tasks of the job, this one too.
  void set_peers(std::vector<watch::PeerAddress> peers);
  /// A JSON object (engine/exec/plan_json.h).
  void set_plan(std::string json);
  TraceWindow& trace() { return trace_; }

 private:
  void keep_up(const std::stop_token& stop);
  watch::JobStatus job();
  HttpResponse guarded(const HttpRequest& request, const std::function<HttpResponse()>& answer) const;
  HttpResponse answer_trace(std::string_view target);

  const Sources sources_;
  watch::History history_;
  TraceWindow trace_;
  std::mutex mu_;
  std::condition_variable_any wake_;
  std::deque<watch::Status> samples_;  // guarded by mu_, as what follows; oldest first
  std::vector<watch::PeerAddress> peers_;
  watch::JobStatus job_;  // as the peers said last
  std::string plan_;
  std::chrono::steady_clock::time_point asked_;  // for the job, last
  bool looked_at_ = false;
  std::jthread watching_;  // last
};

}  // namespace braid::worker
