// The stream of every op. Nodes of a lane other than Compute go to that lane's stream. For the others it is
// what the user has given (engine/schedule/stream_pins.h), and then what the policy decides
// (engine/schedule/stream_policy.h).
#include <fmt/format.h>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/schedule/passes.h"
#include "engine/schedule/stream_pins.h"
#include "engine/schedule/stream_policy.h"

namespace braid {
namespace {

constexpr Lane kLanes[] = {Lane::Compute, Lane::Pull,         Lane::Push,
                           Lane::Comm,    Lane::HostToDevice, Lane::DeviceToHost};

Lane lane_of(const Plan& plan, int op) {
  return plan.op(op).kind == OpKind::Kernel ? plan.node_of(op)->op->lane : Lane::Compute;
}

/// Whether the policy chooses the op's stream: ops of the compute lane on the program's own side.
bool is_policys(const Plan& plan, int op) {
  return lane_of(plan, op) == Lane::Compute && plan.op(op).domain == plan.program.domain;
}

void make_streams(Plan& plan) {
  Program& program = plan.program;
  for (int s = 0; s < program.compute_streams; ++s)
    program.streams.push_back({fmt::format("compute{}", s), "compute", Lane::Compute, program.domain});
  for (const Domain domain : {Domain::Device, Domain::Host}) {
    for (const Lane lane : kLanes) {
      bool used = false;
      for (int op = 0; op < plan.ops(); ++op) {
        if (lane_of(plan, op) != lane || plan.op(op).domain != domain || is_policys(plan, op)) continue;
        plan.op(op).stream = static_cast<int>(program.streams.size());
        used = true;
      }
      // What a device's program leaves to the host has one stream there.
      const std::string name(lane == Lane::Compute ? "host" : lane_name(lane));
      if (used) program.streams.push_back({name, name, lane, domain});
    }
  }
}

}  // namespace

void assign_streams(Plan& plan) {
  const StreamOptions& options = plan.options.streams;
  if (options.count < 1)
    throw InvalidArgument(fmt::format("a program needs at least one compute stream, got {}", options.count));
  Program& program = plan.program;
  program.compute_streams = options.count;
  make_streams(plan);
  std::vector<int> lanes(static_cast<std::size_t>(plan.ops()), kNoStream);
  for (int op = 0; op < plan.ops(); ++op)
    if (!is_policys(plan, op)) lanes[static_cast<std::size_t>(op)] = plan.op(op).stream;
  const StreamPins pins = find_stream_pins(plan, lanes);
  const std::vector<int> streams = apply_policy(plan, pins, lanes);
  for (int op = 0; op < plan.ops(); ++op) plan.op(op).stream = streams[static_cast<std::size_t>(op)];
}

}  // namespace braid
