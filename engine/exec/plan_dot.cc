#include "engine/exec/plan_dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace braid {
namespace {

/// Colours that are told apart easily: hues a golden angle apart.
std::string colour(int stream, double saturation, double value) {
  const double hue = 0.58 + 0.381966 * stream;
  return fmt::format("{:.3f} {:.2f} {:.2f}", hue - static_cast<int>(hue), saturation, value);
}

std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

class Drawing {
 public:
  explicit Drawing(const Program& program) : program_(program) {}

  std::string draw() {
    add("digraph program {{\n  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n");
    for (int s = 0; s < static_cast<int>(program_.streams.size()); ++s) draw_stream(s);
    for (int s = 0; s < static_cast<int>(program_.streams.size()); ++s) draw_waits(s);
    draw_implied();
    add("}}\n");
    return std::move(text_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  const ProgramOp& op(int index) const { return program_.ops[static_cast<std::size_t>(index)]; }
  const ProgramStream& stream(int index) const { return program_.streams[static_cast<std::size_t>(index)]; }

  void draw_stream(int s) {
    if (stream(s).instructions.empty()) return;
    const auto& path = program_.stats.critical_path;
    const std::set<int> critical(path.begin(), path.end());
    add("  subgraph cluster_{} {{\n    label=\"{}\"; color=\"{}\";\n", s, stream(s).name,
        colour(s, 0.6, 0.8));
    int previous = -1;
    for (const Instruction& instruction : stream(s).instructions) {
      if (instruction.kind != Instruction::Kind::Run) continue;
      const ProgramOp& node = op(instruction.op);
      add("    n{} [label=\"{}\\n{}\\n{:.1f} us\", fillcolor=\"{}\"{}];\n", instruction.op, quoted(node.op),
          quoted(node.name), node.cost_us, colour(s, 0.25, 0.95),
          critical.contains(instruction.op) ? ", penwidth=3" : "");
      if (previous >= 0) add("    n{} -> n{} [color=gray];\n", previous, instruction.op);
      previous = instruction.op;
    }
    add("  }}\n");
  }

  void draw_waits(int s) {
    std::vector<Instruction> waits;
    for (const Instruction& instruction : stream(s).instructions) {
      if (instruction.kind != Instruction::Kind::Run) {
        waits.push_back(instruction);
        continue;
      }
      for (const Instruction& wait : waits) {
        const bool before = wait.kind == Instruction::Kind::WaitPrevious;
        add("  n{} -> n{} [color=\"{}\", penwidth=2{}];\n", wait.op, instruction.op,
            colour(op(wait.op).stream, 0.8, 0.8),
            before ? ", style=dashed, constraint=false, label=\"step before\"" : "");
        if (!before) drawn_.emplace(wait.op, instruction.op);
      }
      waits.clear();
    }
  }

  void draw_implied() {
    for (int to = 0; to < static_cast<int>(program_.ops.size()); ++to)
      for (const int from : op(to).deps)
        if (op(from).stream != op(to).stream && !drawn_.contains({from, to}))
          add("  n{} -> n{} [style=dotted, color=gray, constraint=false];\n", from, to);
  }

  const Program& program_;
  std::string text_;
  std::set<std::pair<int, int>> drawn_;  // waits
};

}  // namespace

std::string plan_dot(const Program& program) { return Drawing(program).draw(); }

}  // namespace braid
