#include "engine/schedule/dag.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "base/error.h"
#include "engine/program/cost_model.h"

namespace braid {

Dag::Dag(const Plan& plan) : model_(&cost_model(plan.program.domain)) {
  const auto n = static_cast<std::size_t>(plan.ops());
  deps_.resize(n);
  users_.resize(n);
  costs_.resize(n);
  priorities_.assign(n, 0);
  ranks_.resize(n);
  async_.resize(n);
  for (int op = 0; op < plan.ops(); ++op) {
    const auto i = static_cast<std::size_t>(op);
    deps_[i] = plan.op(op).deps;
    costs_[i] = plan.op(op).cost_us;
    ranks_[i] = plan.op(op).node;
    async_[i] = plan.op(op).async;
    for (const int dep : deps_[i]) users_[static_cast<std::size_t>(dep)].push_back(op);
  }
  rank_ends();
  const std::vector<int> order = rank_order();
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    double longest = 0;
    for (const int user : users(*at)) longest = std::max(longest, priority(user));
    priorities_[static_cast<std::size_t>(*at)] = cost(*at) + longest;
  }
}

/// What needs nothing comes before the first that needs it, and what nobody needs behind the last that it
/// needs, wherever passes have added them: an update frees what it reads.
void Dag::rank_ends() {
  const std::vector<NodeId> written = ranks_;
  const auto rank = [&](int op) { return written[static_cast<std::size_t>(op)]; };
  const auto lower = [&](const auto& first, const auto& second) { return rank(first) < rank(second); };
  for (int op = 0; op < size(); ++op) {
    NodeId& own = ranks_[static_cast<std::size_t>(op)];
    if (deps(op).empty() && !users(op).empty())
      own = std::min(own, rank(*std::min_element(users(op).begin(), users(op).end(), lower)));
    if (users(op).empty() && !deps(op).empty())
      own = std::min(own, rank(*std::max_element(deps(op).begin(), deps(op).end(), lower)));
  }
}

template <class Before>
std::vector<int> Dag::sort(Before before) const {
  const auto later = [&](int a, int b) { return before(b, a); };
  std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
  std::vector<int> missing(static_cast<std::size_t>(size()));
  for (int op = 0; op < size(); ++op) {
    missing[static_cast<std::size_t>(op)] = static_cast<int>(deps(op).size());
    if (deps(op).empty()) ready.push(op);
  }
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(size()));
  while (!ready.empty()) {
    const int op = ready.top();
    ready.pop();
    order.push_back(op);
    for (const int user : users(op))
      if (--missing[static_cast<std::size_t>(user)] == 0) ready.push(user);
  }
  if (order.size() != costs_.size()) throw Internal("the program's dependencies have a cycle");
  return order;
}

std::vector<int> Dag::rank_order() const {
  return sort([&](int a, int b) {
    const NodeId ra = ranks_[static_cast<std::size_t>(a)], rb = ranks_[static_cast<std::size_t>(b)];
    return ra != rb ? ra < rb : a < b;
  });
}

std::vector<int> Dag::priority_order() const {
  return sort([&](int a, int b) {
    if (priority(a) != priority(b)) return priority(a) > priority(b);
    const NodeId ra = ranks_[static_cast<std::size_t>(a)], rb = ranks_[static_cast<std::size_t>(b)];
    return ra != rb ? ra < rb : a < b;
  });
}

std::vector<int> Dag::delivery_order() const {
  const auto tail = [&](int op) { return priority(op) - cost(op); };
  return sort([&](int a, int b) {
    if (is_async(a) != is_async(b)) return is_async(a);
    if (tail(a) != tail(b)) return tail(a) > tail(b);
    const NodeId ra = ranks_[static_cast<std::size_t>(a)], rb = ranks_[static_cast<std::size_t>(b)];
    return ra != rb ? ra < rb : a < b;
  });
}

std::vector<int> Dag::critical_path() const {
  std::vector<int> path;
  int at = -1;
  for (int op = 0; op < size(); ++op)
    if (at < 0 || priority(op) > priority(at)) at = op;
  while (at >= 0) {
    path.push_back(at);
    int next = -1;
    for (const int user : users(at))
      if (next < 0 || priority(user) > priority(next)) next = user;
    at = next;
  }
  return path;
}

Timeline predict(const Dag& dag, const std::vector<int>& order, const std::vector<int>& streams,
                 int stream_count) {
  const CostModel& m = dag.model();
  std::vector<double> free_at(static_cast<std::size_t>(stream_count), 0);
  Timeline times;
  times.start.resize(static_cast<std::size_t>(dag.size()), 0);
  times.done = times.start;
  for (const int op : order) {
    const auto stream = static_cast<std::size_t>(streams[static_cast<std::size_t>(op)]);
    double ready = free_at[stream];
    for (const int dep : dag.deps(op)) {
      const bool same =
          !dag.is_async(dep) && streams[static_cast<std::size_t>(dep)] == static_cast<int>(stream);
      const double at = times.done[static_cast<std::size_t>(dep)];
      // Only a wait that really waits pays for the wake-up.
      ready = std::max(ready, same || at <= free_at[stream] ? at : at + m.cross_stream_us);
    }
    int others = 0;
    for (std::size_t s = 0; s < free_at.size(); ++s) others += s != stream && free_at[s] > ready;
    const double cost = dag.is_async(op) ? dag.cost(op) : dag.cost(op) * (1 + m.contention * others);
    times.start[static_cast<std::size_t>(op)] = ready;
    times.done[static_cast<std::size_t>(op)] = ready + cost;
    free_at[stream] = dag.is_async(op) ? ready + m.kernel_us : ready + cost;
    times.end = std::max(times.end, ready + cost);
  }
  return times;
}

namespace {

/// One stream of list_order.
struct ListStream {
  using Arrival = std::pair<double, int>;  // when its dependencies are complete, op
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arriving;
  std::priority_queue<std::pair<double, int>> ready;  // (priority, -op)
  double free_at = 0;

  double next_start() const {
    if (!ready.empty()) return free_at;
    return arriving.empty() ? std::numeric_limits<double>::infinity()
                            : std::max(free_at, arriving.top().first);
  }
  int start(double now, const Dag& dag) {
    for (; !arriving.empty() && arriving.top().first <= now; arriving.pop())
      ready.emplace(dag.priority(arriving.top().second), -arriving.top().second);
    const int op = -ready.top().second;
    ready.pop();
    return op;
  }
};

}  // namespace

std::vector<int> list_order(const Dag& dag, const std::vector<int>& streams, int stream_count) {
  const CostModel& m = dag.model();
  std::vector<ListStream> all(static_cast<std::size_t>(stream_count));
  std::vector<int> missing, order;
  std::vector<double> done(static_cast<std::size_t>(dag.size()), 0);
  const auto stream_of = [&](int op) {
    return static_cast<std::size_t>(streams[static_cast<std::size_t>(op)]);
  };
  for (int op = 0; op < dag.size(); ++op) {
    missing.push_back(static_cast<int>(dag.deps(op).size()));
    if (missing.back() == 0) all[stream_of(op)].arriving.emplace(0, op);
  }
  while (static_cast<int>(order.size()) < dag.size()) {
    const auto stream = std::min_element(
        all.begin(), all.end(),
        [](const ListStream& a, const ListStream& b) { return a.next_start() < b.next_start(); });
    const double now = stream->next_start();
    if (std::isinf(now)) throw Internal("the program's dependencies have a cycle");
    const int op = stream->start(now, dag);
    order.push_back(op);
    const auto others = std::count_if(all.begin(), all.end(), [&](const ListStream& other) {
      return &other != &*stream && other.free_at > now;
    });
    const bool async = dag.is_async(op);
    const double cost =
        async ? dag.cost(op) : dag.cost(op) * (1 + m.contention * static_cast<double>(others));
    done[static_cast<std::size_t>(op)] = now + cost;
    stream->free_at = now + (async ? m.kernel_us : cost);
    for (const int user : dag.users(op)) {
      if (--missing[static_cast<std::size_t>(user)] > 0) continue;
      double at = 0;
      for (const int dep : dag.deps(user)) {
        const bool same = !dag.is_async(dep) && stream_of(dep) == stream_of(user);
        at = std::max(at, done[static_cast<std::size_t>(dep)] + (same ? 0 : m.cross_stream_us));
      }
      all[stream_of(user)].arriving.emplace(at, user);
    }
  }
  return order;
}

}  // namespace braid
