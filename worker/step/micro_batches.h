// Gradient accumulation as a rewrite of the training graph: a step's batch is cut into parts, each goes
// through forward and backward by itself, one after another, and their gradients add up before anything else
// sees them. What strategies, optimizers and the trainer see is one step over the whole batch.
//
//   loss = sum_i (rows_i / rows) loss_i,  g = sum_i (rows_i / rows) g_i;  rows of tables stand side by side
//
// The nodes that depend on the batch (and random ones) are there once a part, as "<name>/part<i>" from the
// second on; what depends on variables alone is computed once. A part's first uses of variables wait for the
// part before, so that memory for activations is that of one part. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// The loss of a forward graph, times the share of rows that its part of the batch is. To be differentiated.
ValueRef add_part_weight(Graph& graph, ValueRef loss);

enum class PartOrder {
  InTurn,    // as above
  AnyOrder,  // nothing but the sums orders parts
};

/// Cuts a differentiated graph whose loss is what add_part_weight() gave. `columns` are the placeholders of
/// the batch, of `rows` rows. Throws: InvalidArgument when there are more parts than rows.
void split_into_parts(TrainingGraph& training, const std::vector<std::string>& columns, std::int64_t rows,
                      std::int64_t parts, PartOrder order = PartOrder::InTurn);

}  // namespace braid::worker
