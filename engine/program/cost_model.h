// How long an op is expected to take on this kind of machine, from its flops and bytes: the roofline
// max(flops / rate, bytes / bandwidth) plus a fixed part. Only comparisons matter: which of two schedules is
// shorter. The rates are round numbers for one server core and a datacentre network, the same on every
// machine, so that a plan does not depend on where it is made.
#pragma once

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/program/options.h"

namespace braid {

class Program;
struct Plan;
struct ProgramOp;

struct CostModel {
  double flops_per_us = 20e3;         // one core, vectorised arithmetic
  double bytes_per_us = 8e3;          // one core, from memory
  double network_bytes_per_us = 1e3;  // Pull, Push and Comm lanes
  double link_bytes_per_us = 8e3;     // HostToDevice and DeviceToHost lanes
  double kernel_us = 0.3;             // dispatch and the kernel's entry
  double network_us = 60;             // a round trip
  double cross_stream_us = 6;         // a wait that has to wake a thread
  double contention = 0.04;           // slow-down by each other stream that is busy at the time
  /// AUTO leaves one stream only for a gain of at least this share.
  double worthwhile_gain = 0.03;
  /// Siblings are batched only for a gain of more than this share of what they take alone. A batched node of
  /// the host saves the dispatch of its lanes and nothing else, so small gains are errors of the model, and
  /// it takes work from the other streams.
  double worthwhile_batching = 0.2;
};

inline constexpr CostModel kHostCosts{};

/// One datacentre GPU whose kernels are launched as a captured graph: a kernel takes at least what the next
/// one waits for it, and a wait on another stream is an edge of the graph.
inline constexpr CostModel kDeviceCosts{.flops_per_us = 60e6,
                                        .bytes_per_us = 2.5e6,
                                        .network_bytes_per_us = 280e3,
                                        .link_bytes_per_us = 45e3,
                                        .kernel_us = 2.5,
                                        .network_us = 8,
                                        .cross_stream_us = 1.0,
                                        .contention = 0.1,
                                        .worthwhile_batching = 0};

constexpr const CostModel& cost_model(Domain domain) {
  return domain == Domain::Device ? kDeviceCosts : kHostCosts;
}

/// What the op declares, or all its inputs and outputs once. REQUIRES: inferred shapes.
Cost modelled_cost(const Graph& graph, const Node& node);
/// The same of an op of a program; nothing for a Join.
Cost modelled_cost(const Program& program, const ProgramOp& op);
/// The roofline.
double modelled_us(const Cost& cost, Lane lane, Domain domain);
/// OpDef costs to microseconds, for every op of the plan.
void model_costs(Plan& plan);

}  // namespace braid
