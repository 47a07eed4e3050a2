#include "engine/exec/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/init.h"
#include "engine/memory/arena_plan.h"
#include "engine/rewrite/horizontal_fusion.h"

namespace braid {
namespace {

/// First and last op, in issue order, that touch each arena buffer; last < 0 for one that is not used.
struct Life {
  int buffer, first, last;
};

std::vector<Life> lives(const Program& program) {
  std::vector<Life> all;
  std::vector<int> number(program.buffers.size(), -1);
  for (int op = 0; op < static_cast<int>(program.ops.size()); ++op) {
    const ProgramOp& p = program.ops[static_cast<std::size_t>(op)];
    for (const auto* operands : {&p.inputs, &p.outputs}) {
      for (const Operand& operand : *operands) {
        if (operand.buffer < 0 || operand.access == Access::None) continue;
        const auto b = static_cast<std::size_t>(operand.buffer);
        if (program.buffers[b].kind != BufferKind::Arena || program.buffers[b].bytes == 0) continue;
        if (number[b] < 0) {
          number[b] = static_cast<int>(all.size());
          all.push_back({operand.buffer, op, op});
        }
        all[static_cast<std::size_t>(number[b])].last = op;
      }
    }
  }
  return all;
}

std::uint64_t serial_arena(const Program& program, const std::vector<Life>& all) {
  std::vector<std::uint64_t> sizes;
  BitMatrix may_share(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    sizes.push_back(program.buffers[static_cast<std::size_t>(all[i].buffer)].bytes);
    for (std::size_t j = 0; j < all.size(); ++j)
      if (all[i].last < all[j].first || all[j].last < all[i].first) may_share.set(i, j);
  }
  return plan_arena(sizes, may_share).bytes;
}

std::uint64_t largest_live(const Program& program, const std::vector<Life>& all) {
  std::vector<std::int64_t> change(program.ops.size() + 1, 0);
  for (const Life& life : all) {
    const auto bytes =
        static_cast<std::int64_t>(align_up(program.buffers[static_cast<std::size_t>(life.buffer)].bytes));
    change[static_cast<std::size_t>(life.first)] += bytes;
    change[static_cast<std::size_t>(life.last) + 1] -= bytes;
  }
  std::int64_t now = 0, most = 0;
  for (const std::int64_t c : change) most = std::max(most, now += c);
  return static_cast<std::uint64_t>(most);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
  if (bytes < 10 * 1024 * 1024) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

/// Behind a batched node's name.
std::string batch_of(const Program& program, const ProgramOp& op) {
  const std::string lanes = op.node == kNoNode ? "" : lanes_text(program.graph.node(op.node));
  return lanes.empty() ? "" : " = " + lanes;
}

const ProgramStream& stream_of(const Program& program, const ProgramOp& op) {
  return program.streams[static_cast<std::size_t>(op.stream)];
}

std::uint64_t arena_bytes(const Program& program) {
  return program.stats.arena_bytes + program.stats.device_arena_bytes;
}

/// ", on one stream 855.0 KiB (1.30x)".
std::string against_one_stream(const Program& program, const Program& one_stream) {
  const std::uint64_t bytes = arena_bytes(one_stream);
  std::string text = ", on one stream " + bytes_text(bytes);
  if (bytes > 0)
    text += fmt::format(" ({:.2f}x)", static_cast<double>(arena_bytes(program)) / static_cast<double>(bytes));
  return text;
}

}  // namespace

MemoryReport memory_report(const Program& program) {
  MemoryReport report;
  const std::vector<Life> all = lives(program);
  report.arena_bytes = arena_bytes(program);
  report.serial_arena_bytes = serial_arena(program, all);
  report.largest_live_bytes = largest_live(program, all);
  for (const ProgramBuffer& buffer : program.buffers) {
    if (buffer.kind == BufferKind::Slot)
      report.slot_bytes += buffer.bytes * static_cast<std::uint64_t>(program.steps_in_flight);
    if (buffer.kind == BufferKind::Constant) report.constant_bytes += buffer.bytes;
    if (buffer.kind == BufferKind::Variable) report.variable_bytes += buffer.bytes;
  }
  return report;
}

std::vector<StreamReport> stream_report(const Program& program) {
  std::vector<StreamReport> all;
  for (const ProgramStream& stream : program.streams) {
    StreamReport report{stream.name};
    for (const Instruction& instruction : stream.instructions) {
      switch (instruction.kind) {
        case Instruction::Kind::Run:
          ++report.nodes;
          report.cost_us += program.ops[static_cast<std::size_t>(instruction.op)].cost_us;
          break;
        case Instruction::Kind::Wait:
          ++report.waits;
          break;
        case Instruction::Kind::WaitPrevious:
          ++report.waits_previous;
          break;
      }
    }
    all.push_back(std::move(report));
  }
  return all;
}

namespace {

using Out = std::back_insert_iterator<std::string>;

/// Of a program of a device: what it takes there, and of the host's page-locked memory. Scratch of kernels is
/// known only where they are.
void put_device_memory(const Program& program, Out out) {
  const ProgramStats& stats = program.stats;
  std::uint64_t variables[2] = {}, constants = 0, steps = 0;
  for (const ProgramBuffer& buffer : program.buffers) {
    const auto side = static_cast<std::size_t>(buffer.domain == Domain::Host);
    if (buffer.kind == BufferKind::Variable) variables[side] += buffer.bytes;
    if (buffer.kind == BufferKind::Constant) constants += buffer.bytes;
    if (buffer.kind == BufferKind::Feed || (buffer.kind == BufferKind::Slot && side == 0))
      steps += buffer.bytes * static_cast<std::uint64_t>(program.steps_in_flight);
  }
  fmt::format_to(
      out,
      "on the device: {}: variables {}, arena {}, what steps in flight have {}; on the host: variables {}, "
      "arena {}\n",
      bytes_text(variables[0] + constants + steps + stats.device_arena_bytes), bytes_text(variables[0]),
      bytes_text(stats.device_arena_bytes), bytes_text(steps), bytes_text(variables[1]),
      bytes_text(stats.arena_bytes));
}

/// What the whole program takes, a line each.
void put_summary(const Program& program, const Program* one_stream, Out out) {
  const ProgramStats& stats = program.stats;
  const MemoryReport memory = memory_report(program);
  fmt::format_to(
      out, "{} nodes on {} compute stream{} and {} lane{}, policy {}, {} step{} in flight, plan {:016x}\n",
      program.ops.size(), program.compute_streams, program.compute_streams == 1 ? "" : "s",
      program.streams.size() - static_cast<std::size_t>(program.compute_streams),
      program.streams.size() - static_cast<std::size_t>(program.compute_streams) == 1 ? "" : "s",
      stream_policy_name(program.policy), program.steps_in_flight, program.steps_in_flight == 1 ? "" : "s",
      plan_hash(program));
  fmt::format_to(
      out,
      "time (modelled): step {:.1f} us, {:.1f} us on one compute stream: {:.2f}x; critical path {:.1f} us\n",
      stats.step_us, stats.serial_us, stats.step_us > 0 ? stats.serial_us / stats.step_us : 1.0,
      stats.critical_path_us);
  fmt::format_to(out, "order: {} waits issued, {} removed as implied, {} on the step before; {} events\n",
                 stats.waits_issued, stats.waits_removed, stats.waits_previous, stats.events);
  if (stats.waits_for_memory > 0)
    fmt::format_to(out, "       {} dependencies between streams are there for memory alone\n",
                   stats.waits_for_memory);
  fmt::format_to(
      out,
      "memory: arena {}{}; in this order one stream needs {}, largest live set {}; slots {}, constants {}, "
      "variables {}\n",
      bytes_text(memory.arena_bytes), one_stream ? against_one_stream(program, *one_stream) : std::string(),
      bytes_text(memory.serial_arena_bytes), bytes_text(memory.largest_live_bytes),
      bytes_text(memory.slot_bytes), bytes_text(memory.constant_bytes), bytes_text(memory.variable_bytes));
  if (program.domain == Domain::Device) put_device_memory(program, out);
  const auto captured = std::count_if(program.segments.begin(), program.segments.end(),
                                      [](const Segment& s) { return s.domain == Domain::Device; });
  fmt::format_to(out, "segments: {}, of which {} on the device, a graph each\n", program.segments.size(),
                 captured);
  for (const Note& note : program.notes) fmt::format_to(out, "{}\n", to_string(note));
}

void put_streams(const Program& program, Out out) {
  const ProgramStats& stats = program.stats;
  fmt::format_to(out, "\n{:<12} {:>6} {:>12} {:>7} {:>7} {:>12}\n", "stream", "nodes", "cost us", "share",
                 "waits", "on previous");
  for (const StreamReport& stream : stream_report(program))
    fmt::format_to(out, "{:<12} {:>6} {:>12.1f} {:>6.0f}% {:>7} {:>12}\n", stream.name, stream.nodes,
                   stream.cost_us, stats.step_us > 0 ? 100 * stream.cost_us / stats.step_us : 0, stream.waits,
                   stream.waits_previous);
}

/// The critical path, and what each stream does one after the other.
void put_orders(const Program& program, Out out) {
  fmt::format_to(out, "\ncritical path\n");
  for (const int at : program.stats.critical_path) {
    const ProgramOp& op = program.ops[static_cast<std::size_t>(at)];
    fmt::format_to(out, "  {:>10.1f} us  {:<10} {} '{}'\n", op.cost_us, stream_of(program, op).name, op.op,
                   op.name);
  }
  for (const ProgramStream& stream : program.streams) {
    fmt::format_to(out, "\n{}\n", stream.name);
    for (const Instruction& instruction : stream.instructions) {
      const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
      if (instruction.kind == Instruction::Kind::Run)
        fmt::format_to(out, "  {:>10.1f} us  {} '{}'{}\n", op.cost_us, op.op, op.name, batch_of(program, op));
      else
        fmt::format_to(out, "{:15}wait for '{}' on {}{}\n", "", op.name, stream_of(program, op).name,
                       instruction.kind == Instruction::Kind::WaitPrevious ? ", step before" : "");
    }
  }
}

}  // namespace

std::string plan_report(const Program& program, const Program* one_stream) {
  std::string text;
  const auto out = std::back_inserter(text);
  put_summary(program, one_stream, out);
  put_streams(program, out);
  put_orders(program, out);
  return text;
}

std::uint64_t plan_hash(const Program& program) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} {} {}\n", program.compute_streams, program.steps_in_flight, program.deterministic);
  const auto memory = [&](int buffer) {
    if (buffer < 0) return;
    const ProgramBuffer& b = program.buffers[static_cast<std::size_t>(buffer)];
    fmt::format_to(out, " {}:{}:{}:{}", static_cast<int>(b.kind), b.index, b.offset, b.bytes);
  };
  for (const ProgramFeed& feed : program.feeds)
    fmt::format_to(out, "feed {} {} {}\n", feed.name, dtype_name(feed.dtype), feed.shape.to_string());
  for (const ProgramFetch& fetch : program.fetches) {
    fmt::format_to(out, "fetch {} {} {}", fetch.name, dtype_name(fetch.dtype), fetch.shape.to_string());
    memory(fetch.buffer);
    text += '\n';
  }
  for (const ProgramVariable& variable : program.variables)
    fmt::format_to(out, "variable {} {} {}\n", variable.name, dtype_name(variable.dtype),
                   variable.shape.to_string());
  for (const ProgramStream& stream : program.streams) {
    fmt::format_to(out, "stream {}\n", stream.name);
    for (const Instruction& instruction : stream.instructions) {
      const ProgramOp& op = program.ops[static_cast<std::size_t>(instruction.op)];
      fmt::format_to(out, "{} {} {}", static_cast<int>(instruction.kind), op.op, op.name);
      if (instruction.kind == Instruction::Kind::Run)
        for (const auto* operands : {&op.inputs, &op.outputs})
          for (const Operand& operand : *operands) memory(operand.buffer);
      text += '\n';
    }
  }
  return stable_hash(text);
}

}  // namespace braid
