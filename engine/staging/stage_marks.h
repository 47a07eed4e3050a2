// How a graph says where its stages are: the values of a cut pass through Identity nodes with the attribute
// `_stage` (the stage's name) and the stage's options as attributes beside it (`_stage_capacity`, ...; absent
// ones have their defaults). So a GraphDef carries stages anywhere, and runs unstaged as it is. Thread rule:
// pure functions.
#pragma once

#include <utility>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "engine/staging/graph_stage.h"
#include "engine/staging/nested.h"

namespace braid {

/// Puts a stage around `features`: the same structure, of values that come out of the stage. `feed_dict` maps
/// placeholders above the stage to the values that are evaluated and fed for each record. Without a name of
/// its own ("stage") it gets one that is free.
/// Throws: InvalidArgument for features without a tensor, a name that is taken.
Nested<Output> staged(GraphBuilder& builder, const Nested<Output>& features, StageOptions options = {},
                      const std::vector<std::pair<Output, Output>>& feed_dict = {});

/// A stage with several producers, each with a thread of its own: `features` are alternatives of one
/// structure and of the same types. The values that come out stand for whichever producer made the record.
/// Throws also: InvalidArgument when there are none, or their structures differ.
Nested<Output> prefetch_join(GraphBuilder& builder, const std::vector<Nested<Output>>& features,
                             StageOptions options = {});

/// The stages of a graph, in the order of their first nodes. Throws: InvalidArgument naming the node: another
/// op than Identity, options that differ within a stage, feeds of values that do not exist.
std::vector<GraphStage> stages_of(const Graph& graph);

}  // namespace braid
