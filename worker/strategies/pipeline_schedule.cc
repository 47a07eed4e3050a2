#include "worker/strategies/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace braid::worker {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Tasks start when the stage is free and what they need is there.
class Simulation {
 public:
  Simulation(PipelineOrder order, const std::vector<StageTimes>& times, std::int64_t parts,
             const std::vector<StageLink>& links)
      : times_(times), links_(links), free_(times.size()), next_(times.size()) {
    found_.starts.resize(times.size());
    for (int stage = 0; stage < stages(); ++stage)
      tasks_.push_back(tasks_of_stage(order, stage, stages(), parts));
  }

  PipelineTimes run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (int stage = 0; stage < stages(); ++stage)
        while (next_[at(stage)] < tasks_[at(stage)].size() && start(stage)) moves = true;
    }
    for (int stage = 0; stage < stages(); ++stage)
      if (next_[at(stage)] < tasks_[at(stage)].size())
        throw Internal("pipeline: stage " + std::to_string(stage) + " waits without end");
    found_.step = *std::max_element(free_.begin(), free_.end());
    order_messages();
    return std::move(found_);
  }

 private:
  int stages() const { return static_cast<int>(times_.size()); }

  bool start(int stage) {
    const PipelineTask task = tasks_[at(stage)][next_[at(stage)]];
    double begin = free_[at(stage)];
    for (const StageLink& link : links_) {
      if (link.to != stage || link.backward != task.backward) continue;
      const auto made = ends_.find({link.from, task});
      if (made == ends_.end()) return false;
      begin = std::max(begin, made->second);
    }
    const StageTimes& time = times_[at(stage)];
    const double end = begin + (task.backward ? time.backward : time.forward);
    found_.starts[at(stage)].push_back(begin);
    ends_[{stage, task}] = free_[at(stage)] = end;
    ++next_[at(stage)];
    return true;
  }

  void order_messages() {
    struct Sent {
      double time;
      std::int64_t place;  // of the task among its stage's
      PipelineMessage message;
    };
    std::vector<Sent> sent;
    for (const StageLink& link : links_) {
      const auto& tasks = tasks_[at(link.from)];
      for (std::size_t t = 0; t < tasks.size(); ++t)
        if (tasks[t].backward == link.backward)
          sent.push_back(
              {ends_.at({link.from, tasks[t]}), static_cast<std::int64_t>(t), {link, tasks[t].part}});
    }
    std::sort(sent.begin(), sent.end(), [](const Sent& a, const Sent& b) {
      return std::tie(a.time, a.message.link.from, a.place, a.message.link.to) <
             std::tie(b.time, b.message.link.from, b.place, b.message.link.to);
    });
    for (const Sent& one : sent) found_.messages.push_back(one.message);
  }

  const std::vector<StageTimes>& times_;
  const std::vector<StageLink>& links_;
  std::vector<std::vector<PipelineTask>> tasks_;
  std::vector<double> free_;
  std::vector<std::size_t> next_;
  std::map<std::pair<int, PipelineTask>, double> ends_;
  PipelineTimes found_;
};

}  // namespace

std::vector<PipelineTask> tasks_of_stage(PipelineOrder order, int stage, int stages, std::int64_t parts) {
  const std::int64_t ahead =
      order == PipelineOrder::GPipe ? parts : std::min<std::int64_t>(parts, stages - 1 - stage);
  std::vector<PipelineTask> tasks;
  for (std::int64_t part = 0; part < ahead; ++part) tasks.push_back({false, part});
  for (std::int64_t part = 0; part < parts; ++part) {
    if (part + ahead < parts) tasks.push_back({false, part + ahead});
    tasks.push_back({true, part});
  }
  return tasks;
}

std::int64_t parts_in_flight(PipelineOrder order, int stage, int stages, std::int64_t parts) {
  return order == PipelineOrder::GPipe ? parts : std::min<std::int64_t>(parts, stages - stage);
}

PipelineTimes simulate_pipeline(PipelineOrder order, const std::vector<StageTimes>& times, std::int64_t parts,
                                const std::vector<StageLink>& links) {
  return Simulation(order, times, parts, links).run();
}

double bubble_share(int stages, std::int64_t parts) {
  return static_cast<double>(stages - 1) / static_cast<double>(parts + stages - 1);
}

}  // namespace braid::worker
