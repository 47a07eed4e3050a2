#include "worker/step/stream_tuning.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/exec/tune.h"
#include "proto/job.pb.h"
#include "worker/process/share_text.h"

namespace braid::worker {
namespace {

constexpr const char* kPlanFile = "streams.plan";

/// As long as it lives, what can be exchanged on trial is.
struct Trial {
  explicit Trial(const StreamTuning& tuning)
      : strategy(tuning.strategy), lanes(strategy.begin_trial(tuning.wait)) {}
  ~Trial() { strategy.end_trial(); }
  Trial(const Trial&) = delete;

  Strategy& strategy;
  const std::vector<Lane> lanes;
};

class Decision {
 public:
  Decision(const StreamTuning& tuning, const Graph& graph, const CompileRequest& request,
           const CompileOptions& options)
      : tuning_(tuning), graph_(graph), request_(request), options_(options) {
    if (!tuning.job.checkpoint().directory().empty())
      file_ = std::filesystem::path(tuning.job.checkpoint().directory()) / kPlanFile;
  }

  StreamPlan make() const {
    std::error_code unseen;
    if (tuning_.resume && !file_.empty() && std::filesystem::exists(file_, unseen))
      if (auto plan = kept()) return std::move(*plan);
    TuneOptions tune;
    tune.seed = tuning_.job.seed();
    tune.budget =
        std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * tuning_.job.streams().measure_seconds()));
    const std::vector<Tensor> feeds = tuning_.first_feeds(graph_, request_);
    const Trial trial(tuning_);
    tune.real = trial.lanes;
    StreamPlan plan = tune_streams(graph_, request_, options_, feeds, tuning_.runtime, tune);
    keep(plan);
    return plan;
  }

 private:
  /// Nothing when the file is of no use here: its decision changes no bits, so it can be made again.
  std::optional<StreamPlan> kept() const {
    try {
      StreamPlan plan = StreamPlan::from_text(read_file(file_), file_.string());
      if (plan.made_for == stream_plan_key(graph_, request_, options_)) return plan;
      log_warning("{} was made for another graph, batch or stream options: measuring again", file_.string());
    } catch (const InvalidArgument& error) {
      log_warning("{}: measuring again", error.message());
    }
    return std::nullopt;
  }

  void keep(const StreamPlan& plan) const {
    if (file_.empty() || !tuning_.peers.leader()) return;
    write_file_atomically(file_, plan.to_text());
  }

  const StreamTuning& tuning_;
  const Graph& graph_;
  const CompileRequest& request_;
  const CompileOptions& options_;
  std::filesystem::path file_;  // empty: no checkpoints, nothing is kept
};

}  // namespace

StreamOptions tuned_streams(const StreamTuning& tuning, const Graph& graph, const CompileRequest& request,
                            const CompileOptions& options) {
  const StreamOptions& streams = options.streams;
  if (streams.policy != StreamPolicy::Auto || streams.count < 2 || !tuning.job.streams().measure())
    return streams;
  const Decision decision(tuning, graph, request, options);
  comm::Communicator* const communicator = tuning.peers.communicator.get();
  // Parameter servers do not mind if workers differ in their streams: each measures its own machine.
  if (!communicator || communicator->size() == 1) {
    return decision.make().apply(streams);
  }
  std::string text = tuning.peers.leader() ? decision.make().to_text() : std::string();
  share_text(text, *communicator, tuning.wait);
  return StreamPlan::from_text(text, "the leader's stream plan").apply(streams);
}

}  // namespace braid::worker
