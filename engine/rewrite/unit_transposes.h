// Transpositions that move no axis of more than one element past another are views, and reductions of floats
// along axes of one element are. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Transpose [b, t, 1] -> [b, 1, t] becomes Reshape: ONNX's softmax along the places of a sequence, say, has
/// one on either side. Sum [b, 1, n] -> [b, n] does, too. Behind the passes that know transpositions by their
/// axes.
void view_unit_transposes(Plan& plan);

}  // namespace braid
