// List scheduling (Graham 1969; HEFT, Topcuoglu et al. 2002, without insertion): ops in the order of their
// priorities, each to the stream on which it would end first, where a dependency on another stream costs a
// wake-up and other busy streams slow it down. The ops of one critical path all go to stream 0.
// Ties: the stream of the latest dependency, then the lowest number.
#include <algorithm>

#include "engine/program/cost_model.h"
#include "engine/schedule/stream_policy.h"

namespace braid {
namespace {

class ListScheduler {
 public:
  explicit ListScheduler(const StreamProblem& problem)
      : problem_(problem),
        dag_(problem.dag),
        streams_(static_cast<std::size_t>(dag_.size()), kNoStream),
        done_(static_cast<std::size_t>(dag_.size()), 0),
        free_at_(static_cast<std::size_t>(problem.all_streams), 0),
        critical_(static_cast<std::size_t>(dag_.size()), 0) {
    for (const int op : dag_.critical_path()) critical_[static_cast<std::size_t>(op)] = 1;
  }

  std::vector<int> run() {
    for (const int op : dag_.priority_order()) {
      const auto i = static_cast<std::size_t>(op);
      streams_[i] = stream_for(op);
      const double start = start_on(op, streams_[i]);
      done_[i] = start + duration(op, streams_[i], start);
      free_at_[static_cast<std::size_t>(streams_[i])] =
          dag_.is_async(op) ? start + dag_.model().kernel_us : done_[i];
    }
    return streams_;
  }

 private:
  int stream_for(int op) const {
    const auto i = static_cast<std::size_t>(op);
    if (problem_.fixed[i] != kNoStream) return problem_.fixed[i];
    const int leader = streams_[static_cast<std::size_t>(problem_.leader[i])];
    if (leader != kNoStream) return leader;
    if (critical_[i]) return 0;
    int best = favourite(op);
    double best_end = end_on(op, best);
    for (int s = 0; s < problem_.compute_streams; ++s) {
      const double end = end_on(op, s);
      if (end < best_end - 1e-9) {
        best_end = end;
        best = s;
      }
    }
    return best;
  }

  /// The compute stream of the dependency that ends last, or 0.
  int favourite(int op) const {
    int latest = -1;
    for (const int dep : dag_.deps(op)) {
      if (streams_[static_cast<std::size_t>(dep)] >= problem_.compute_streams) continue;
      if (latest < 0 || done_[static_cast<std::size_t>(dep)] > done_[static_cast<std::size_t>(latest)])
        latest = dep;
    }
    return latest < 0 ? 0 : streams_[static_cast<std::size_t>(latest)];
  }

  double start_on(int op, int stream) const {
    const double free_at = free_at_[static_cast<std::size_t>(stream)];
    double start = free_at;
    for (const int dep : dag_.deps(op)) {
      const double at = done_[static_cast<std::size_t>(dep)];
      const bool same = streams_[static_cast<std::size_t>(dep)] == stream && !dag_.is_async(dep);
      start = std::max(start, same || at <= free_at ? at : at + dag_.model().cross_stream_us);
    }
    return start;
  }

  double duration(int op, int stream, double start) const {
    if (dag_.is_async(op)) return dag_.cost(op);
    int others = 0;
    for (int s = 0; s < problem_.compute_streams; ++s)
      others += s != stream && free_at_[static_cast<std::size_t>(s)] > start;
    return dag_.cost(op) * (1 + dag_.model().contention * others);
  }

  double end_on(int op, int stream) const {
    const double start = start_on(op, stream);
    return start + duration(op, stream, start);
  }

  const StreamProblem& problem_;
  const Dag& dag_;
  std::vector<int> streams_;
  std::vector<double> done_, free_at_;
  std::vector<char> critical_;
};

}  // namespace

std::vector<int> schedule_by_cost(const StreamProblem& problem) { return ListScheduler(problem).run(); }

}  // namespace braid
