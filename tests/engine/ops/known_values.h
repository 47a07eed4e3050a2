// What shape inference knows of an op's outputs when all of its inputs are known at compile time.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/attr.h"
#include "engine/ir/tensor.h"

namespace braid::testing {

/// Throws: Internal, when a value is not known; what the op's shape rule throws. Fails the test where the
/// inferred shape is not the value's.
std::vector<Tensor> known_outputs(const std::string& op, const std::vector<Tensor>& inputs,
                                  AttrMap attrs = {});
/// One of them; the others need not be known.
Tensor known(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs = {}, int output = 0);
/// The message of the InvalidArgument that these inputs are refused with.
std::string known_refusal(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs = {});

}  // namespace braid::testing
