#include "examples/multistream_training/branches.h"

#include <cmath>

#include "base/init.h"
#include "engine/builder/graph_builder.h"
#include "proto/graph.pb.h"

namespace braid {

GraphDef make_branches(const BranchesOptions& options) {
  GraphBuilder b;
  const Output x = b.placeholder("x", DType::Float32, Shape{options.rows, options.width});
  const float deviation = 1.0F / std::sqrt(static_cast<float>(options.width));
  std::vector<Output> ends;
  for (int branch = 0; branch < options.branches; ++branch) {
    const StreamScope stream(b, branch, options.include_grad);
    const NameScope name(b, "branch" + std::to_string(branch));
    Output h = x;
    for (int layer = 0; layer < options.layers; ++layer) {
      const Output w = b.variable("w" + std::to_string(layer), Shape{options.width, options.width},
                                  {.init = {InitKind::Normal, 0, deviation}});
      h = b.op("Tanh", {b.matmul(h, b.read(w))});
    }
    ends.push_back(h);
  }
  const Output sum = b.op("AddN", ends);
  b.op("Identity", {b.reduce_mean(b.op("Square", {sum}))}, {}, kBranchesLoss);
  return b.graph();
}

Feed branches_feed(const BranchesOptions& options, std::uint64_t seed) {
  Tensor x(DType::Float32, Shape{options.rows, options.width});
  fill_normal01(make_rng_key(seed, "x"), 0, x.data<float>());
  return {"x", std::move(x)};
}

}  // namespace braid
