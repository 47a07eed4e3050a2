// The gradients that a training graph of TensorFlow computes itself: the nodes below its train_op that apply
// them say the variable, the gradient and the optimizer. Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/model.h"
#include "worker/model/initial_values.h"
#include "worker/model/model_file.h"
#include "worker/model/problems.h"

namespace braid::worker {

/// Of (Resource)(Sparse)Apply GradientDescent, Momentum, Adagrad(V2), Adam, Ftrl(V2), RMSProp, and of
/// ScatterSub and its kin, with the hyperparameters that their inputs say. Gradients of rows whose duplicates
/// TensorFlow has summed (Unique, UnsortedSegmentSum) are taken from before that: updates here sum them.
/// Learning rates are factors of the job's. Of variables that are not `trained`, such as slots, nothing is
/// kept. REQUIRES: feeds are in the graph. Adds a problem for each node that changes trained variables
/// otherwise.
std::vector<GivenGradient> find_kept_gradients(const ModelFile& file, const std::string& train_op,
                                               const InitialValues& initial, float learning_rate,
                                               const std::function<bool(const std::string&)>& trained,
                                               Problems& problems);

}  // namespace braid::worker
