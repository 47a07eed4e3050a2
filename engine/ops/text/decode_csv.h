// DecodeCSV(records, defaults...), attributes field_delim, use_quote_delim, na_value, select_cols: a column
// an output, of the default's type; an empty default makes the column required. It is among the ops of
// text_ops.cc. Thread rule: pure functions.
#pragma once

#include <span>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

void infer_csv(InferContext& c);
/// Throws: InvalidArgument (quotes that do not fit, another number of fields, what is no number, a required
/// field that is empty), naming the record and the field.
std::vector<Tensor> decode_csv(const Node& node, std::span<const Tensor* const> inputs);

}  // namespace braid
