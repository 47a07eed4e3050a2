// How long an op is expected to take on this kind of machine, from its flops and bytes: the roofline
// max(flops / rate, bytes / bandwidth) plus a fixed part. Only comparisons matter: which of two schedules is
// shorter. The rates are round numbers for one server core and a datacentre network, the same on every
// machine, so that a plan does not depend on where it is made.
#pragma once

namespace braid {

struct CostModel {
  double flops_per_us = 20e3;         // one core, vectorised arithmetic
  double bytes_per_us = 8e3;          // one core, from memory
  double network_bytes_per_us = 1e3;  // Pull, Push and Comm lanes
  double kernel_us = 0.3;             // dispatch and the kernel's entry
  double network_us = 60;             // a round trip
  double cross_stream_us = 6;         // a wait that has to wake a thread
  double contention = 0.04;           // slow-down by each other stream that is busy at the time
  /// AUTO leaves one stream only for a gain of at least this share.
  double worthwhile_gain = 0.03;
};

inline constexpr CostModel kHostCosts{};

}  // namespace braid
