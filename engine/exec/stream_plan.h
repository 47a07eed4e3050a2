// What AUTO has decided for a program, in a form that outlives the process: the policy, the number of streams
// and the costs that were measured. A restart, and every other process of the job, compiles with it and gets
// the same program. Thread rule: a plain record.
//
//   braid stream plan 1
//   made for <16 hexadecimal digits>
//   policy <name>
//   streams <number>
//   without ids                       scopes decide no stream; they keep siblings apart all the same
//   why <text>
//   warning <text>                    a line for each
//   cost <microseconds> <node>        a line for each measured node, sorted by name
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/options.h"

namespace braid {

struct StreamPlan {
  std::uint64_t made_for = 0;  // stream_plan_key
  StreamPolicy policy = StreamPolicy::None;
  int streams = 1;
  bool without_ids = false;           // Scopes::KeptApart
  std::string why;                    // one line, for people
  std::vector<std::string> warnings;  // about ids and rules that the policy does not look at
  MeasuredCosts costs;                // in thousandths of a microsecond, so that the text is exact

  /// `streams` with this decision in place of AUTO.
  StreamOptions apply(StreamOptions streams) const;
  std::string to_text() const;
  /// Throws: InvalidArgument with `source` and line.
  static StreamPlan from_text(std::string_view text, const std::string& source);
};

/// Equal where a plan may be used again: the same nodes, feeds, stream options, batching and device.
std::uint64_t stream_plan_key(const Graph& graph, const CompileRequest& request,
                              const CompileOptions& options);

}  // namespace braid
