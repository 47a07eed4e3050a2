// FULL: as many chains as the graph needs to have every order of its ops, no more, then folded onto the
// streams.
//
// The dependencies are reduced transitively; a maximum matching of the reduced edges (Hopcroft and Karp
// 1973), each op at most once as a source and once as a target, joins ops into the fewest chains (Dilworth,
// Fulkerson). Chains go, the longest time first, to the stream with the least work; the critical path's to
// stream 0.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/bit_matrix.h"
#include "engine/schedule/stream_policy.h"

namespace braid {
namespace {

using Edges = std::vector<std::vector<int>>;

/// Edges without which the order would be another. Users are sorted, so the result is deterministic.
Edges transitive_reduction(const Dag& dag) {
  const auto n = static_cast<std::size_t>(dag.size());
  const std::vector<int> order = dag.rank_order();
  std::vector<int> position(n);
  for (std::size_t i = 0; i < n; ++i) position[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  BitMatrix reach(n);  // row v: ops that come after v
  Edges reduced(n);
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const auto v = static_cast<std::size_t>(*at);
    std::vector<int> users = dag.users(*at);
    // The nearest first: what they reach makes direct edges to later users superfluous.
    std::sort(users.begin(), users.end(), [&](int a, int b) {
      return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
    });
    for (const int user : users) {
      const auto u = static_cast<std::size_t>(user);
      if (reach.test(v, u)) continue;
      reduced[v].push_back(user);
      reach.set(v, u);
      for (std::size_t w = 0; w < reach.words(); ++w) reach.row(v)[w] |= reach.row(u)[w];
    }
    std::sort(reduced[v].begin(), reduced[v].end());
  }
  return reduced;
}

/// next[v] is the op matched as v's successor, or -1.
class Matching {
 public:
  explicit Matching(const Edges& edges)
      : edges_(edges),
        next_(edges.size(), -1),
        previous_(edges.size(), -1),
        level_(edges.size()),
        tried_(edges.size()) {}

  /// Starts from the edges of `path`, which stay together unless a larger matching needs one of their ends.
  std::vector<int> run(const std::vector<int>& path) {
    for (std::size_t i = 1; i < path.size(); ++i) {
      const auto& targets = edges_[static_cast<std::size_t>(path[i - 1])];
      if (std::binary_search(targets.begin(), targets.end(), path[i])) match(path[i - 1], path[i]);
    }
    while (build_levels()) {
      std::fill(tried_.begin(), tried_.end(), 0);
      for (std::size_t v = 0; v < edges_.size(); ++v)
        if (next_[v] < 0) augment(static_cast<int>(v));
    }
    return next_;
  }

 private:
  static constexpr int kFar = std::numeric_limits<int>::max();

  /// Breadth-first from unmatched sources; true when an unmatched target can be reached.
  bool build_levels() {
    std::vector<int> open;
    for (std::size_t v = 0; v < edges_.size(); ++v) {
      level_[v] = next_[v] < 0 ? 0 : kFar;
      if (next_[v] < 0) open.push_back(static_cast<int>(v));
    }
    bool found = false;
    for (std::size_t at = 0; at < open.size(); ++at) {
      const int v = open[at];
      for (const int u : edges_[static_cast<std::size_t>(v)]) {
        const int source = previous_[static_cast<std::size_t>(u)];
        if (source < 0) {
          found = true;
        } else if (level_[static_cast<std::size_t>(source)] == kFar) {
          level_[static_cast<std::size_t>(source)] = level_[static_cast<std::size_t>(v)] + 1;
          open.push_back(source);
        }
      }
    }
    return found;
  }

  /// Depth-first along the levels, with a stack of its own: paths may be as long as the graph.
  bool augment(int root) {
    std::vector<int> path{root};
    while (!path.empty()) {
      const int v = path.back();
      auto& edge = tried_[static_cast<std::size_t>(v)];
      if (edge == edges_[static_cast<std::size_t>(v)].size()) {
        level_[static_cast<std::size_t>(v)] = kFar;
        path.pop_back();
        continue;
      }
      const int u = edges_[static_cast<std::size_t>(v)][edge++];
      const int source = previous_[static_cast<std::size_t>(u)];
      if (source < 0) {
        for (const int w : path)
          match(w, edges_[static_cast<std::size_t>(w)][tried_[static_cast<std::size_t>(w)] - 1]);
        return true;
      }
      if (level_[static_cast<std::size_t>(source)] == level_[static_cast<std::size_t>(v)] + 1)
        path.push_back(source);
    }
    return false;
  }

  void match(int source, int target) {
    next_[static_cast<std::size_t>(source)] = target;
    previous_[static_cast<std::size_t>(target)] = source;
  }

  const Edges& edges_;
  std::vector<int> next_, previous_, level_;
  std::vector<std::size_t> tried_;  // edges of each source that this phase has looked at
};

}  // namespace

std::vector<std::vector<int>> minimum_path_cover(const Dag& dag) {
  const Edges edges = transitive_reduction(dag);
  const std::vector<int> next = Matching(edges).run(dag.critical_path());
  std::vector<char> has_previous(next.size(), 0);
  for (const int n : next)
    if (n >= 0) has_previous[static_cast<std::size_t>(n)] = 1;
  std::vector<std::vector<int>> chains;
  for (std::size_t v = 0; v < next.size(); ++v) {
    if (has_previous[v]) continue;
    chains.emplace_back();
    for (int at = static_cast<int>(v); at >= 0; at = next[static_cast<std::size_t>(at)])
      chains.back().push_back(at);
  }
  return chains;
}

std::vector<int> cover_by_chains(const StreamProblem& problem) {
  const Dag& dag = problem.dag;
  const auto chains = minimum_path_cover(dag);
  std::vector<char> critical(static_cast<std::size_t>(dag.size()), 0);
  for (const int op : dag.critical_path()) critical[static_cast<std::size_t>(op)] = 1;

  struct Load {
    std::size_t chain;
    double us = 0, critical_us = 0;
  };
  std::vector<Load> loads;
  for (std::size_t c = 0; c < chains.size(); ++c) {
    Load load{c};
    for (const int op : chains[c]) {
      if (problem.fixed[static_cast<std::size_t>(op)] != kNoStream) continue;
      load.us += dag.cost(op);
      load.critical_us += critical[static_cast<std::size_t>(op)] ? dag.cost(op) : 0;
    }
    loads.push_back(load);
  }
  std::stable_sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.us > b.us; });
  const auto main = std::max_element(
      loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.critical_us < b.critical_us; });

  std::vector<double> work(static_cast<std::size_t>(problem.compute_streams), 0);
  for (int op = 0; op < dag.size(); ++op) {
    const int stream = problem.fixed[static_cast<std::size_t>(op)];
    if (stream != kNoStream && stream < problem.compute_streams)
      work[static_cast<std::size_t>(stream)] += dag.cost(op);
  }
  std::vector<int> streams = problem.fixed;
  const auto give = [&](const Load& load, std::size_t stream) {
    work[stream] += load.us;
    for (const int op : chains[load.chain])
      if (streams[static_cast<std::size_t>(op)] == kNoStream)
        streams[static_cast<std::size_t>(op)] = static_cast<int>(stream);
  };
  if (main != loads.end()) give(*main, 0);
  for (auto load = loads.begin(); load != loads.end(); ++load)
    if (load != main)
      give(*load, static_cast<std::size_t>(std::min_element(work.begin(), work.end()) - work.begin()));
  // A colocation group has one stream: its leader's.
  for (std::size_t op = 0; op < streams.size(); ++op)
    if (problem.fixed[op] == kNoStream) streams[op] = streams[static_cast<std::size_t>(problem.leader[op])];
  return streams;
}

}  // namespace braid
