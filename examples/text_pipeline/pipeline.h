// A pipeline over text that users of staged input know: lines are split into two columns, which are staged;
// the first is hashed and looked up in a table that changes in every step, the second gets a word more, and
// both become one matrix of text. main.cc runs it; tests compare it staged by hand, automatically, and not at
// all.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/ir/graph.h"

namespace braid {

struct TextPipeline {
  Graph graph;
  // Names in the graph.
  static constexpr const char* kLines = "lines";  // string [batch], the placeholder
  static constexpr const char* kWords = "words";  // string [batch + 1]: the second column and "xxx"
  static constexpr const char* kTarget =
      "target";  // string [batch + 2, batch + 1], where that is the table's width
  static constexpr const char* kUpdate = "update";  // adds 0.125 to the table
};

/// The table is [100, batch + 1], so that numbers and words are rows of one length; its values are uniform in
/// [-1, 1), by the seed. `with_stage` puts a stage around the columns.
TextPipeline make_text_pipeline(std::int64_t batch, bool with_stage);

}  // namespace braid
