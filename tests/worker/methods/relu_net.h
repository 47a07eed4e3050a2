// A deep net for tests of what a step keeps for its backward pass. Thread rule: one thread.
#pragma once

#include <string>

#include "engine/builder/graph_builder.h"
#include "proto/graph.pb.h"
#include "worker/step/training_graph.h"

namespace braid::worker {

/// Layers "layer0", "layer1", ... of x [?, width] with relu, and a loss.
inline TrainingGraph relu_net(std::int64_t width, std::int64_t layers) {
  GraphBuilder b;
  Output x = b.placeholder("x", DType::Float32, Shape{-1, width});
  for (std::int64_t l = 0; l < layers; ++l) x = b.dense("layer" + std::to_string(l), x, width, width, true);
  const std::string loss = b.reduce_mean(b.mul(x, x)).name();
  return make_training_graph(b.graph(), loss);
}

}  // namespace braid::worker
