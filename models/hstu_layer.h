// A layer of HSTU (hstu.cc has the formulas).
#pragma once

#include <cstdint>
#include <optional>

#include "engine/builder/graph_builder.h"

namespace braid {

struct HstuLayer {
  std::int64_t dim = 0, heads = 0;
  double dropout = 0;
  std::optional<Output> share = {};  // [1], that attention is multiplied by
};

/// x [n, dim], rows of which offsets [B + 1] cut into sequences -> [n, dim].
Output hstu_layer(GraphBuilder& builder, const Output& x, const Output& offsets, const HstuLayer& sizes);
/// The same of the last token of each sequence alone, [B, dim]; `last` [B] says where in x these are. Keys
/// and values are those of all tokens, but nothing else is computed for them. REQUIRES: no sequence is empty.
Output hstu_last_layer(GraphBuilder& builder, const Output& x, const Output& offsets, const Output& last,
                       const HstuLayer& sizes);

}  // namespace braid
