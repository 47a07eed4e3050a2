// Three models of many small branches: what ranking models are made of, and what leaves a GPU idle on one
// stream. Branch i is on stream i modulo `streams`, when that is not 0; the rest is on stream 0. All float32.
// The caller makes the inputs, so that they may be columns of a batch or fixed tensors.
#pragma once

#include <vector>

#include "engine/builder/graph_builder.h"

namespace braid {

/// One tower 512-256-128 with ReLU for each input [B, width], their outputs side by side, a linear head; the
/// mean sigmoid cross entropy with `label` [B].
Output build_towers(GraphBuilder& builder, const std::vector<Output>& inputs, std::int64_t width,
                    const Output& label, int streams);

/// Multi-gate mixture of experts (Ma et al. 2018): `experts` networks 512-256 with ReLU over `input`
/// [B, width]; for each label [B] a softmax gate over them, a hidden layer of 128 and a linear head. The sum
/// of the tasks' mean sigmoid cross entropies.
Output build_mmoe(GraphBuilder& builder, const Output& input, std::int64_t width,
                  const std::vector<Output>& labels, int experts, int streams);

/// DLRM (Naumov et al. 2019): a network 512-256-dim with ReLU over `dense` [B, width], one table
/// [rows, dim] for each of `ids` [B], dot products of all pairs, a network 512-256 with ReLU, a linear head;
/// the mean sigmoid cross entropy with `label` [B]. Tables are updated by rows.
Output build_dlrm_branches(GraphBuilder& builder, const Output& dense, std::int64_t width,
                           const std::vector<Output>& ids, std::int64_t rows, std::int64_t dim,
                           const Output& label, int streams);

}  // namespace braid
