// Folds what shape inference leaves: it computes values up to 64 KiB, because it runs often. Here nodes are
// folded whose inputs are all known and whose results are not much larger than those, e.g. transposed or cast
// weights of a frozen graph. What makes something large of little (Fill, ZerosLike) stays a node, whose
// memory others can use afterwards.
#pragma once

namespace braid {

struct Plan;

/// REQUIRES: shapes are inferred.
void fold_constants(Plan& plan);

}  // namespace braid
