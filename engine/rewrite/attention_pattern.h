// Attention as programs write it, from the product of queries and keys to that of weights and values, and its
// gradient, for fuse_attention.cc:
//
//   S = q k^T;  S c, S / c;  S + mask, S - mask, select(seen, S, low);  P = softmax(S);  output = P v
//   dP = d_output v^T;  dS = the gradient of softmax, as one node or as P (dP - sum(P dP));  back through the
//   mask and the scale;  dv = P^T d_output, dq = dS k, dk = dS^T q
//
// Products are MatMul, BatchMatMul or Einsum. Scales, and masks in any number where they are added, stand in
// this order. Heads may be an axis in front of the rows, or behind them, also by transpositions of q, k, v
// and the output that nobody else reads. Thread rule: one thread.
#pragma once

#include <optional>
#include <vector>

#include "engine/rewrite/rule.h"

namespace braid {

struct AttentionPattern {
  struct Mask {
    enum class Kind { Added, Subtracted, Seen, Hidden } kind = Kind::Added;
    ValueRef value;
    NodeId at = kNoNode;  // the node that puts it
    double low = 0;       // of Seen and Hidden: what other scores become
  };

  ValueRef q, k, v;
  std::vector<Mask> masks;  // of Seen and Hidden at most one, and then no other
  Shape scores;             // [..., H, n, m]
  double scale = 1;
  bool heads_inside = false;
  ValueRef output;               // in its place comes the node
  std::vector<NodeId> products;  // that of q and k, that of weights and v

  ValueRef d_output;    // none: there is no gradient
  ValueRef dq, dk, dv;  // in their places come the gradient's; those that nobody wants are none
  /// Sums of the scores' gradient, by axes or to another's shape, that give those of masks.
  std::vector<NodeId> mask_gradients;
};

/// `softmax`: a Softmax. Nothing where it is not of that form, or somebody else has to do with what goes
/// away.
std::optional<AttentionPattern> find_attention(const Rewrite& r, const Node& softmax);

}  // namespace braid
