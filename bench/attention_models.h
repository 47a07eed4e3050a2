// Models whose attention is written as other programs write it, for fusion_bench --attention:
//
//   encoder      two layers as Keras writes them, queries scaled, a padding mask added to scores
//   decoder      two layers with a causal mask, chosen by comparing places
//   cross        queries of 32 places over a memory of 96, two layers, without a mask
//   long         one layer of 512 places, heads of 64
//   short        two layers of 4 places, heads of 8
//   target       one query of each row over its history of 50, without heads
#pragma once

#include <optional>
#include <string>

#include "models/model.h"

namespace braid::bench {

/// Nothing for other names. Batches of 16 or 64 are of interest.
std::optional<ModelGraph> attention_model(const std::string& name);

}  // namespace braid::bench
