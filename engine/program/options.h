// What compile() is asked for: the feeds and fetches of a program, streams and their policy, and what else is
// decided before there is a program. Plain records. Names of policies are those of job files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace braid {

class StreamRules;

/// Names are those of job files. AUTO takes the candidate with the least predicted step time.
enum class StreamPolicy { None, User, Embedding, Full, Cost, Auto };
std::optional<StreamPolicy> stream_policy_from_name(std::string_view name);  // "NONE", "USER", ...
std::string_view stream_policy_name(StreamPolicy policy);
std::vector<std::string> stream_policy_names();  // of all policies

/// Microseconds of ops by the nodes' names.
using MeasuredCosts = std::map<std::string, double, std::less<>>;

inline constexpr std::uint64_t kNoMemoryWaits = ~std::uint64_t{0};

/// What the ids mean that are written on nodes (StreamScope, attribute _stream_id).
enum class Scopes {
  Used,
  KeptApart,  // they keep siblings apart, as they do when they are used, and decide no stream: other streams,
              // the same bits
  Ignored,    // as if no node had one
};

struct StreamOptions {
  int count = 1;  // compute streams
  StreamPolicy policy = StreamPolicy::Auto;
  bool keep_all_events = false;  // no elimination, for comparison and for finding faults
  bool grad_follows_forward = true;
  std::shared_ptr<const StreamRules> rules = nullptr;  // streams by node name (stream_rules.h)
  Scopes scopes = Scopes::Used;
  bool scopes_win = false;           // over the rules
  bool forward_propagation = false;  // an op without a stream takes that of most of its inputs
  /// Streams wait for each other so that buffers of this many bytes and more can share memory, where that is
  /// predicted to stop nobody. kNoMemoryWaits: never.
  std::uint64_t memory_waits_from = 64 << 10;
  /// Measured costs; what they lack is modelled (cost_model.h).
  std::shared_ptr<const MeasuredCosts> costs = nullptr;
  std::string why = {};                    // of a decision that was made before, for the program's notes
  std::vector<std::string> warnings = {};  // that were given then
};

struct FeedSpec {
  std::string name;  // a Placeholder's name, or any value that is fed instead of computed
  DType dtype = DType::Float32;
  Shape shape;  // static
};

struct CompileRequest {
  std::vector<FeedSpec> feeds;
  std::vector<std::string> fetches;  // value names whose results come back
  std::vector<std::string> targets;  // nodes that run for their effect
};

/// Independent nodes of one kind and shape as one (engine/rewrite/horizontal_fusion.h).
enum class BatchSiblings {
  Off,
  WithinScopes,  // nodes that the user has put on different streams stay apart
  AcrossScopes,
};

/// Attention that is written as products and softmax as one node (engine/rewrite/fuse_attention.cc).
enum class AttentionNodes { Never, WhereFaster, Always };

/// Mixed precision (engine/rewrite/mixed_precision.cc).
struct PrecisionOptions {
  DType half = DType::Float32;  // BFloat16 or Float16: what products read; Float32: everything is as written
  std::vector<std::string> keep_ops = {};  // products of these ops stay float32
  std::string keep_nodes = {};             // and nodes in whose name this regular expression is found
};

/// Values that rest in a step are on the host meanwhile (engine/rewrite/offload_values.cc): those of nodes
/// with these names or, where there is no scope, a share of all.
struct OffloadOptions {
  std::vector<std::string> scope = {};  // regular expressions (RE2) for whole names of nodes
  double share = 0;                     // of the bytes that rest, those that are made first
};

struct CompileOptions {
  StreamOptions streams;
  BatchSiblings batch_siblings = BatchSiblings::Off;
  /// Regions of elementwise nodes and reductions of rows become one node each
  /// (engine/rewrite/region_finder.h).
  bool fusion = false;
  AttentionNodes attention = AttentionNodes::WhereFaster;
  PrecisionOptions precision = {};
  OffloadOptions offload = {};
  /// Device: ops that have a kernel for CUDA run there, the others on the host, with copies between.
  Domain domain = Domain::Host;
  int steps_in_flight = 2;
  bool verify = true;
  bool deterministic = true;
  /// Nodes that ask for a device which the program does not have, or which has no kernel for them, run on
  /// the host; else they are refused.
  bool soft_placement = true;
  /// The first NaN or infinity ends the step (engine/graph/check_values.h).
  bool check_numerics = false;
};

}  // namespace braid
