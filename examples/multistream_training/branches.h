// The training example of multi-stream TensorFlow: branches of equal layers side by side, each in a scope of
// its own, joined into one loss. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <string>

#include "examples/multistream_training/sgd_loop.h"

namespace braid {

struct BranchesOptions {
  int branches = 4;
  int layers = 20;
  std::int64_t width = 512;  // layers are [width, width]
  std::int64_t rows = 512;
  bool include_grad = true;  // of the scopes: backward nodes follow, or are on stream 0
};

/// The name of its loss.
inline constexpr const char* kBranchesLoss = "loss";

/// Branch i: x -> tanh(x W) `layers` times, on stream i. Loss: the mean square of the branches' sum. The
/// placeholder is "x", [rows, width] f32.
GraphDef make_branches(const BranchesOptions& options);

/// What it is fed with.
Feed branches_feed(const BranchesOptions& options, std::uint64_t seed);

}  // namespace braid
