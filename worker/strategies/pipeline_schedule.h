// In which order the stages of a pipeline work, and who sends what to whom when: pure functions of the
// schedule, the number of micro-batches and the stages' times, so that all workers find the same.
//
//   GPIPE        a stage makes the forward passes of all micro-batches, then their backward passes (Huang et
//                al. 2019, arXiv 1811.06965)
//   ONE_F_ONE_B  behind as many forward passes as there are stages behind it, a stage makes one forward and
//                one backward pass in turns (Narayanan et al. 2019, arXiv 1806.03377, with one update a step)
//
// Backward passes are in the order of micro-batches under both, so gradients add up in the same order. A step
// ends when all have (flush). With equal times t of a micro-batch on each of p stages it takes (m + p - 1) t,
// of which a stage computes m t: the bubble is (p - 1) / (m + p - 1) of it. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::worker {

enum class PipelineOrder { OneForwardOneBackward, GPipe };

/// One pass of a micro-batch through a stage.
struct PipelineTask {
  bool backward = false;
  std::int64_t part = 0;
  friend auto operator<=>(const PipelineTask&, const PipelineTask&) = default;
};

/// Each of the 2 * parts tasks once.
std::vector<PipelineTask> tasks_of_stage(PipelineOrder order, int stage, int stages, std::int64_t parts);

/// Micro-batches whose activations a stage keeps at once, at most.
std::int64_t parts_in_flight(PipelineOrder order, int stage, int stages, std::int64_t parts);

struct StageTimes {
  double forward = 1, backward = 2;  // of a micro-batch, in any one unit; positive
};

/// What one stage needs of another of each micro-batch: the task on `to` needs what the same task on `from`
/// makes.
struct StageLink {
  int from = 0, to = 0;
  bool backward = false;
  friend auto operator<=>(const StageLink&, const StageLink&) = default;
};

struct PipelineMessage {
  StageLink link;
  std::int64_t part = 0;
};

struct PipelineTimes {
  double step = 0;                          // from the first task's start to the last one's end
  std::vector<std::vector<double>> starts;  // [stage][its task], in their order
  /// In one total order, that in which they would be sent: what comes before the task that makes a message is
  /// before it, so stages that keep to it cannot wait for each other in a circle.
  std::vector<PipelineMessage> messages;
};

/// Runs one step in model time, where sending takes none. Forward links go to later stages, backward ones to
/// earlier stages. REQUIRES: as many times as stages.
PipelineTimes simulate_pipeline(PipelineOrder order, const std::vector<StageTimes>& times, std::int64_t parts,
                                const std::vector<StageLink>& links);

/// (p - 1) / (m + p - 1).
double bubble_share(int stages, std::int64_t parts);

}  // namespace braid::worker
