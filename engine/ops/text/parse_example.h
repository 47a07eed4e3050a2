// ParseExample, ParseExampleV2 and ParseSingleExample: serialized tf.train.Example records to tensors; of a
// scalar the outputs have no axis of records. They are among the ops of text_ops.cc: dense features and the
// sparse (and, in V2, ragged) ones, whose sizes the records decide.
#pragma once

#include <span>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

void infer_parse_example(InferContext& c);
/// Throws: InvalidArgument (a record that is no Example, a feature of another type or length, one that is
/// required and missing), naming the record and the feature.
std::vector<Tensor> parse_example(const Node& node, std::span<const Tensor* const> inputs);

}  // namespace braid
