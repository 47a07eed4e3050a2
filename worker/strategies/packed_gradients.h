// The gradients of a bucket as one array: one behind another, and zeros behind them up to a multiple of the
// number of ranks. Thread rule: const after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/ir/op.h"

namespace braid::worker {

struct PackedGradients {
  /// The first `variables` inputs of the node; all where that is negative. A rank's part is a multiple of
  /// `multiple`.
  PackedGradients(const PrepareContext& c, int ranks, std::int64_t variables = -1, std::int64_t multiple = 1)
      : world(ranks) {
    const std::size_t count = variables < 0 ? c.inputs.size() : static_cast<std::size_t>(variables);
    for (std::size_t i = 0; i < count; ++i) {
      if (c.inputs[i].dtype != DType::Float32) c.fail("gradients must be float32");
      counts.push_back(c.inputs[i].shape.elements());
      total += counts.back();
    }
    part = (total + world - 1) / world;
    part = (part + multiple - 1) / multiple * multiple;
  }
  std::int64_t size() const { return part * world; }

  void pack(const KernelArgs& args, float* to) const {
    float* at = to;
    for (std::size_t i = 0; i < counts.size(); at += counts[i++])
      std::memcpy(at, args.inputs[i], static_cast<std::size_t>(counts[i]) * sizeof(float));
    std::fill(at, to + size(), 0.0F);
  }
  void unpack(const float* from, const KernelArgs& args) const {
    for (std::size_t i = 0; i < counts.size(); from += counts[i++])
      std::memcpy(args.outputs[i], from, static_cast<std::size_t>(counts[i]) * sizeof(float));
  }

  int world;
  std::vector<std::int64_t> counts;
  std::int64_t total = 0, part = 0;
};

}  // namespace braid::worker
