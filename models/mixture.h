// A feed-forward layer that is a sparse mixture of experts (Shazeer et al. 2017; as Fedus et al. 2022 where a
// token has one choice):
//   g = softmax(x W_g);  y = sum over the k largest g_e of w_e E_e(x);  E_e(x) = V_e relu(W_e x + b_e) + c_e
// w is g where k is 1, else g over the sum of the k. An expert takes no more tokens than its capacity; others
// get nothing of it (engine/ops/sparse/experts.cc).
#pragma once

#include <string>

#include "engine/builder/graph_builder.h"
#include "models/model.h"

namespace braid {

struct MixtureLayer {
  Output y;        // [T, dim]
  Output balance;  // scalar: E sum_e (share of choices of e) (mean of g_e), 1 where all are alike
};

/// x [T, dim]. Variables "<name>/gate/kernel" [dim, E], "<name>/inner/kernel" [E, dim, hidden],
/// "<name>/inner/ bias" [E, 1, hidden], and "<name>/outer/..." likewise. Throws: InvalidArgument for more
/// choices than experts.
MixtureLayer mixture_layer(GraphBuilder& builder, const std::string& name, const Output& x, std::int64_t dim,
                           std::int64_t hidden, const MixtureConfig& config);

}  // namespace braid
