// Dynamic loss scaling of runtime.precision FP16, as a rewrite of the training graph: the loss is multiplied
// by a variable before it is differentiated, and the gradients of all workers are divided by it before they
// are clipped and applied. Where one of them is no finite number, the step updates nothing, on any worker,
// and the scale is halved (engine/ops/optimizer/loss_scale.cc). All of it happens where the step runs. Scale
// and counters are variables, so checkpoints have them. Thread rule: one thread.
#pragma once

#include <vector>

#include "worker/step/clip_gradients.h"
#include "worker/step/training_graph.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// What the job asks for, or nothing.
std::optional<LossScaleOptions> loss_scale_of(const proto::Job& job);

/// The loss times the scale, whose variables are added. REQUIRES: not differentiated yet.
ValueRef add_loss_scale(TrainingGraph& training, ValueRef loss, const LossScaleOptions& options);

/// Divides the gradients, and lets the step be skipped. Does nothing where the loss is not scaled.
/// `sum_over_ranks` as for clip_by_global_norm(). REQUIRES: gradients are those that updates will get.
void unscale_gradients(TrainingGraph& training, std::vector<VariableGradient>& gradients,
                       const SumOverRanks& sum_over_ranks = {});

/// The same where updates are made elsewhere: where a gradient is no finite number, all of this worker's are
/// zeros.
void unscale_or_drop_gradients(TrainingGraph& training, std::vector<VariableGradient>& gradients);

}  // namespace braid::worker
