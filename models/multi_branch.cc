#include "models/multi_branch.h"

#include <cmath>
#include <optional>
#include <string>

#include "models/common.h"

namespace braid {
namespace {

/// The scope of branch `index`, or none.
class BranchScope {
 public:
  BranchScope(GraphBuilder& builder, std::size_t index, int streams) {
    if (streams > 0) scope_.emplace(builder, static_cast<int>(index) % streams);
  }

 private:
  std::optional<StreamScope> scope_;
};

Output task_loss(GraphBuilder& b, const std::string& name, const Output& hidden, std::int64_t width,
                 const Output& label) {
  const Output logits = b.reshape(b.dense(name, hidden, width, 1, false), {-1});
  return mean_sigmoid_loss(b, logits, label);
}

}  // namespace

Output build_towers(GraphBuilder& b, const std::vector<Output>& inputs, std::int64_t width,
                    const Output& label, int streams) {
  std::vector<Output> tops;
  std::int64_t top_width = 0;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const BranchScope scope(b, t, streams);
    top_width = width;
    tops.push_back(mlp_layers(b, "tower" + std::to_string(t), inputs[t], top_width, {512, 256, 128}));
  }
  const BranchScope scope(b, 0, streams);
  return task_loss(b, "head", b.concat(tops, 1), top_width * static_cast<std::int64_t>(inputs.size()), label);
}

Output build_mmoe(GraphBuilder& b, const Output& input, std::int64_t width, const std::vector<Output>& labels,
                  int experts, int streams) {
  std::vector<Output> tops;
  std::int64_t top_width = 0;
  for (int e = 0; e < experts; ++e) {
    const BranchScope scope(b, static_cast<std::size_t>(e), streams);
    top_width = width;
    tops.push_back(mlp_layers(b, "expert" + std::to_string(e), input, top_width, {512, 256}));
  }
  Output all;  // [B, experts, top]
  {
    const BranchScope scope(b, 0, streams);
    all =
        b.op("Pack", tops, {{"N", static_cast<std::int64_t>(experts)}, {"axis", std::int64_t{1}}}, "experts");
  }
  std::vector<Output> losses;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    const BranchScope scope(b, t, streams);
    NameScope name(b, "task" + std::to_string(t));
    const Output gate = b.op("Softmax", {b.dense("gate", input, width, experts, false)});
    const Output weights = b.reshape(gate, {-1, 1, experts});
    const Output mixed = b.reshape(b.op("BatchMatMulV2", {weights, all}), {-1, top_width});
    losses.push_back(task_loss(b, "head", b.dense("hidden", mixed, top_width, 128, true), 128, labels[t]));
  }
  const BranchScope scope(b, 0, streams);
  return b.op("AddN", losses, {{"N", static_cast<std::int64_t>(losses.size())}}, "loss");
}

Output build_dlrm_branches(GraphBuilder& b, const Output& dense, std::int64_t width,
                           const std::vector<Output>& ids, std::int64_t rows, std::int64_t dim,
                           const Output& label, int streams) {
  std::vector<Output> vectors;
  {
    const BranchScope scope(b, 0, streams);
    std::int64_t bottom = width;
    vectors.push_back(mlp_layers(b, "bottom", dense, bottom, {512, 256, dim}));
  }
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const BranchScope scope(b, t + 1, streams);
    vectors.push_back(embedding(b, "table" + std::to_string(t), ids[t], rows, dim, true,
                                uniform_init(1 / std::sqrt(static_cast<double>(dim)))));
  }
  const BranchScope scope(b, 0, streams);
  const auto n = static_cast<std::int64_t>(vectors.size());
  const Output all = b.op("Pack", vectors, {{"N", n}, {"axis", std::int64_t{1}}}, "vectors");  // [B, n, dim]
  const Output dots = b.op("BatchMatMulV2", {all, all}, {{"adj_x", false}, {"adj_y", true}}, "dots");
  std::vector<std::int32_t> pairs;  // below the diagonal
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) pairs.push_back(static_cast<std::int32_t>(i * n + j));
  const auto count = static_cast<std::int64_t>(pairs.size());
  const Output chosen =
      b.op("GatherV2", {b.reshape(dots, {-1, n * n}),
                        b.constant(Tensor::from<std::int32_t>(Shape{count}, pairs), "pairs"),
                        b.constant(Tensor::scalar<std::int32_t>(1), "pair_axis")});
  std::int64_t top = dim + count;
  const Output hidden = mlp_layers(b, "top", b.concat({vectors[0], chosen}, 1), top, {512, 256});
  return task_loss(b, "head", hidden, top, label);
}

}  // namespace braid
