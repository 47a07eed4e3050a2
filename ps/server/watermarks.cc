#include "ps/server/watermarks.h"

namespace braid::ps {

void Watermarks::begin_session(std::int32_t worker, std::uint64_t session) {
  WorkerMarks& marks = workers_[worker];
  if (marks.session != session) marks = {worker, session, 0, {}};
}

Seen Watermarks::look(std::int32_t worker, std::uint64_t step, std::uint32_t sequence) const {
  const auto marks = workers_.find(worker);
  if (marks == workers_.end()) return Seen::New;
  const auto taken = marks->second.taken.find(step);
  if (taken != marks->second.taken.end() && taken->second.contains(sequence)) return Seen::Duplicate;
  return step < marks->second.floor ? Seen::Stale : Seen::New;
}

void Watermarks::take(std::int32_t worker, std::uint64_t step, std::uint32_t sequence) {
  WorkerMarks& marks = workers_[worker];
  marks.worker = worker;
  marks.taken[step].insert(sequence);
  if (step >= marks.floor + kWindow) {
    marks.floor = step - kWindow + 1;
    marks.taken.erase(marks.taken.begin(), marks.taken.lower_bound(marks.floor));
  }
}

std::vector<WorkerMarks> Watermarks::save(std::uint64_t end) const {
  std::vector<WorkerMarks> out;
  for (const auto& [worker, marks] : workers_) {
    out.push_back(marks);
    out.back().taken.erase(out.back().taken.lower_bound(end), out.back().taken.end());
  }
  return out;
}

void Watermarks::restore(const std::vector<WorkerMarks>& saved) {
  auto known = std::move(workers_);
  workers_.clear();
  for (const WorkerMarks& marks : saved) {
    const auto current = known.find(marks.worker);
    if (current == known.end() || current->second.session == marks.session) workers_[marks.worker] = marks;
  }
  for (const auto& [worker, marks] : known)
    if (!workers_.contains(worker)) workers_[worker] = {worker, marks.session, 0, {}};
}

}  // namespace braid::ps
