#include "bench/gpu/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "engine/device/activity.h"
#include "engine/fusion/cuda_source.h"
#include "engine/program/cost_model.h"
#include "engine/program/program.h"

namespace braid::bench {
namespace {

/// What a node has to do, by the cost model.
struct Work {
  Cost cost;
  double us = 0;  // predicted
  std::string op;
};

/// In a captured graph a node has its kernel's name, which regions of the same text share.
std::string kernel_of(const Program& program, const ProgramOp& region) {
  const auto text = program.graph.node(region.node).attrs.require<std::string>("program");
  return fusion::cuda_source(fusion::Region::parse(text)).name;
}

std::map<std::string, Work> work_by_name(const Program& program) {
  std::map<std::string, Work> work;
  for (const ProgramOp& op : program.ops) {
    const Cost cost = modelled_cost(program, op);
    Work& of = op.op == "braid.Fused" ? work[kernel_of(program, op)] : work[op.name];
    of.cost.bytes += cost.bytes;
    of.cost.flops += cost.flops;
    of.us += op.cost_us;
    of.op = op.op;
  }
  return work;
}

/// What the cost model says beside what was measured, of all nodes of an op.
void print_by_op(const Program& program, const std::map<std::string, double>& measured) {
  std::map<std::string, double> predicted;
  for (const ProgramOp& op : program.ops) predicted[op.op] += op.cost_us;
  fmt::print("  predicted: {:.1f} us on these streams, {:.1f} on one; by op, measured and predicted:\n",
             program.stats.step_us, program.stats.serial_us);
  for (const auto& [op, us] : measured)
    if (us > 5) fmt::print("  {:>9.1f} us {:>9.1f} predicted  {}\n", us, predicted[op], op);
}

/// Whatever regions read and write, by the names that their kernels have.
void print_regions(const Program& program) {
  for (const ProgramOp& op : program.ops) {
    if (op.op != "braid.Fused") continue;
    const Node& node = program.graph.node(op.node);
    fmt::print("  {} '{}' stream {}\n", kernel_of(program, op), op.name, op.stream);
    for (const ValueRef input : node.inputs) {
      const OutputInfo& info = program.graph.info(input);
      fmt::print("    in {} {} of {} '{}'\n", dtype_name(info.dtype), info.shape.to_string(),
                 program.graph.node(input.node).op->name, program.graph.node(input.node).name);
    }
    fmt::print("{}\n", node.attrs.require<std::string>("program"));
  }
}

}  // namespace

void print_program(const Program& program) {
  for (const ProgramOp& op : program.ops) {
    const Node& node = program.graph.node(op.node);
    std::string line = fmt::format("{} '{}' stream {}", op.op, op.name, op.stream);
    for (const ValueRef input : node.inputs) {
      const OutputInfo& info = program.graph.info(input);
      line += fmt::format(" ({}:{} {} {})", program.graph.node(input.node).name, input.output,
                          dtype_name(info.dtype), info.shape.to_string());
    }
    line += " ->";
    for (const OutputInfo& info : node.outputs)
      line += fmt::format(" {} {}", dtype_name(info.dtype), info.shape.to_string());
    fmt::print("  {}\n", line);
  }
  print_regions(program);
}

void profile(TimedSteps& steps, const std::vector<std::vector<Tensor>>& batches, Accelerator& device,
             double us, std::size_t top) {
  const auto sampler = make_activity_sampler(device);
  if (!sampler) return fmt::print("  no CUPTI here\n");
  DeviceActivity activity;
  std::atomic<bool> done{false};
  std::thread watching([&] {
    const auto length = std::chrono::microseconds(static_cast<std::int64_t>(us * 12));
    activity = sampler->sample({.settle = std::chrono::milliseconds(50), .length = length}, {});
    done = true;
  });
  while (!done) steps.run(batches, 5);
  watching.join();
  const double count = activity.window_seconds * 1e6 / us;
  fmt::print("  window {:.1f} ms, {:.1f} steps, busy {:.1f} %, overlap {:.2f}, {} dropped\n",
             activity.window_seconds * 1e3, count, 100 * activity.busy_seconds / activity.window_seconds,
             activity.overlap_factor(), activity.dropped);
  for (const StreamActivity& stream : activity.streams)
    if (stream.pieces > 0)
      fmt::print("  stream {:<24} busy {:>5.1f} %, {:.1f} pieces a step\n", stream.stream,
                 100 * stream.busy_seconds / activity.window_seconds,
                 static_cast<double>(stream.pieces) / count);
  struct Sum {
    double us = 0;
    int pieces = 0;
    int stream = 0;
  };
  std::map<std::string, Sum> by_name;
  double alone = 0;
  for (const ActivitySlice& slice : activity.slices) {
    Sum& sum = by_name[slice.name];
    sum.us += std::chrono::duration<double, std::micro>(slice.end - slice.begin).count();
    sum.pieces += 1;
    sum.stream = slice.stream;
  }
  std::vector<std::pair<std::string, Sum>> sorted(by_name.begin(), by_name.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  const std::map<std::string, Work> work = work_by_name(steps.program());
  std::map<std::string, double> measured;  // by op
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, sum] = sorted[i];
    const double each = sum.us / count;
    alone += each;
    const auto known = work.find(name);
    measured[known == work.end() ? "" : known->second.op] += each;
    if (i >= top) continue;
    const Work of = known == work.end() ? Work{} : known->second;
    fmt::print(
        "  {:>9.1f} us {:>5.1f} pieces, stream {}, {:>6.0f} GB/s {:>6.1f} TFLOP/s, {:>8.1f} predicted  {} "
        "{}\n",
        each, sum.pieces / count, sum.stream, of.cost.bytes / each / 1e3, of.cost.flops / each / 1e6, of.us,
        of.op, name.substr(0, 90));
  }
  fmt::print("  {:.1f} us of {} nodes in all\n", alone, sorted.size());
  print_by_op(steps.program(), measured);
}

}  // namespace braid::bench
