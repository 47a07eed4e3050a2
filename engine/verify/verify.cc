#include "engine/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace braid {
namespace {

using Word = std::uint64_t;

/// One run of one op.
struct Run {
  int op = -1;
  int step = 0;
};

/// Clocks over all steps at once: a component for each stream (its runs so far) and a bit for each run of an
/// asynchronous op.
class History {
 public:
  History(const Program& program, int steps)
      : program_(program), steps_(steps), streams_(program.streams.size()) {
    position_.resize(program.ops.size());
    async_.assign(program.ops.size(), -1);
    length_.assign(streams_, 0);
    int count = 0;
    for (std::size_t s = 0; s < streams_; ++s) {
      for (const Instruction& instruction : program.streams[s].instructions) {
        if (instruction.kind != Instruction::Kind::Run) continue;
        const auto op = static_cast<std::size_t>(instruction.op);
        position_[op] = length_[s]++;
        if (program.ops[op].async) async_[op] = count++;
      }
    }
    asyncs_ = count;
    width_ = streams_ + static_cast<std::size_t>((count * steps + 63) / 64);
  }

  std::size_t width() const { return width_; }

  bool knows(const std::vector<Word>& row, Run run) const {
    const auto op = static_cast<std::size_t>(run.op);
    if (async_[op] >= 0) {
      const auto bit = bit_of(run);
      return (row[streams_ + bit / 64] >> (bit % 64)) & 1;
    }
    return row[static_cast<std::size_t>(program_.ops[op].stream)] > place_of(run);
  }

  void learn(std::vector<Word>& row, Run run) const {
    const auto op = static_cast<std::size_t>(run.op);
    if (async_[op] >= 0) {
      const auto bit = bit_of(run);
      row[streams_ + bit / 64] |= Word{1} << (bit % 64);
    } else {
      Word& at = row[static_cast<std::size_t>(program_.ops[op].stream)];
      at = std::max(at, place_of(run) + 1);
    }
  }

  /// The stream goes past the run, complete or not.
  void pass(std::vector<Word>& row, Run run) const {
    Word& at = row[static_cast<std::size_t>(program_.ops[static_cast<std::size_t>(run.op)].stream)];
    at = std::max(at, place_of(run) + 1);
  }

  void join(std::vector<Word>& row, const std::vector<Word>& other) const {
    for (std::size_t i = 0; i < streams_; ++i) row[i] = std::max(row[i], other[i]);
    for (std::size_t i = streams_; i < width_; ++i) row[i] |= other[i];
  }

 private:
  Word place_of(Run run) const {
    const auto op = static_cast<std::size_t>(run.op);
    const auto stream = static_cast<std::size_t>(program_.ops[op].stream);
    return static_cast<Word>(run.step) * static_cast<Word>(length_[stream]) +
           static_cast<Word>(position_[op]);
  }
  std::size_t bit_of(Run run) const {
    return static_cast<std::size_t>(run.step * asyncs_ + async_[static_cast<std::size_t>(run.op)]);
  }

  const Program& program_;
  const int steps_;
  const std::size_t streams_;
  std::size_t width_ = 0;
  int asyncs_ = 0;
  std::vector<int> position_, async_, length_;
};

/// Who touched a piece of memory last.
struct Cell {
  Run writer;
  int buffer = -1;           // whose bytes these were then
  std::vector<Run> readers;  // since
};

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : program_(program),
        steps_(std::min(program.steps_in_flight + 1, 3)),
        history_(program, steps_),
        start_(program.ops.size() * static_cast<std::size_t>(steps_)) {
    make_cells();
  }

  void run() {
    const std::size_t streams = program_.streams.size();
    std::vector<std::vector<Word>> now(streams, std::vector<Word>(history_.width(), 0));
    std::vector<std::size_t> at(streams, 0);
    std::vector<int> step(streams, 0);
    std::vector<char> done(start_.size(), 0);
    // Any order that the waits allow is as good as another: what is ordered in one is ordered in all.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < streams; ++s) {
        const auto& list = program_.streams[s].instructions;
        while (step[s] < steps_ && !list.empty()) {
          if (at[s] == 0 && !begin_step(now[s], step[s], done)) break;
          if (!execute(list[at[s]], step[s], now[s], done)) break;
          moved = true;
          if (++at[s] == list.size()) {
            at[s] = 0;
            ++step[s];
          }
        }
      }
    }
    for (std::size_t s = 0; s < streams; ++s) {
      const auto& list = program_.streams[s].instructions;
      if (step[s] < steps_ && !list.empty()) refuse_hang(s, list[at[s]]);
    }
  }

 private:
  std::size_t number(Run run) const {
    return static_cast<std::size_t>(run.step) * program_.ops.size() + static_cast<std::size_t>(run.op);
  }

  /// Step n starts when step n - k has ended everywhere.
  bool begin_step(std::vector<Word>& now, int step, const std::vector<char>& done) {
    const int ended = step - program_.steps_in_flight;
    if (ended < 0) return true;
    for (int op = 0; op < static_cast<int>(program_.ops.size()); ++op)
      if (!done[number({op, ended})]) return false;
    for (int op = 0; op < static_cast<int>(program_.ops.size()); ++op) history_.learn(now, {op, ended});
    return true;
  }

  /// False when the instruction has to wait.
  bool execute(const Instruction& instruction, int step, std::vector<Word>& now, std::vector<char>& done) {
    if (instruction.kind == Instruction::Kind::Run) {
      const Run run{instruction.op, step};
      start_[number(run)] = now;
      check_dependencies(run, now);
      check_accesses(run, now);
      history_.pass(now, run);
      done[number(run)] = 1;
      return true;
    }
    const Run awaited{instruction.op, instruction.kind == Instruction::Kind::WaitPrevious ? step - 1 : step};
    if (awaited.step < 0) return true;
    if (!done[number(awaited)]) return false;
    history_.join(now, start_[number(awaited)]);
    history_.learn(now, awaited);
    return true;
  }

  void check_dependencies(Run run, const std::vector<Word>& now) const {
    for (const int dep : program_.ops[static_cast<std::size_t>(run.op)].deps)
      if (!history_.knows(now, {dep, run.step})) refuse_pair({dep, run.step}, run, "the graph orders them");
    const bool async = program_.ops[static_cast<std::size_t>(run.op)].async;
    if (async && run.step > 0 && !history_.knows(now, {run.op, run.step - 1}))
      refuse_pair({run.op, run.step - 1}, run, "one node, issued again before it is complete");
  }

  void check_accesses(Run run, const std::vector<Word>& now) {
    const ProgramOp& op = program_.ops[static_cast<std::size_t>(run.op)];
    // An output in place of an input is the same memory: reads first.
    for (const Operand& in : op.inputs)
      if (in.buffer >= 0 && (in.access == Access::Read || in.access == Access::ReadWrite)) read(run, in, now);
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const Operand& operand : *operands)
        if (operand.buffer >= 0 && (operand.access == Access::Write || operand.access == Access::ReadWrite))
          write(run, operand.buffer, now);
  }

  void read(Run run, const Operand& in, const std::vector<Word>& now) {
    for (Cell* cell : cells_of(in.buffer, run.step)) {
      if (cell->writer.op >= 0 && !same(cell->writer, run) && !history_.knows(now, cell->writer))
        refuse_pair(cell->writer, run, describe(in.buffer) + " is written and read");
      if (in.producer >= 0 &&
          (cell->writer.op != in.producer || cell->writer.step != run.step || cell->buffer != in.buffer))
        refuse_overwritten(run, in, *cell);
      cell->readers.push_back(run);
    }
  }

  void write(Run run, int buffer, const std::vector<Word>& now) {
    for (Cell* cell : cells_of(buffer, run.step)) {
      if (cell->writer.op >= 0 && !same(cell->writer, run) && !history_.knows(now, cell->writer))
        refuse_pair(cell->writer, run, describe(buffer) + " is written twice");
      for (const Run& reader : cell->readers)
        if (!same(reader, run) && !history_.knows(now, reader))
          refuse_pair(reader, run, describe(buffer) + " is read and written");
      cell->writer = run;
      cell->buffer = buffer;
      cell->readers.clear();
    }
  }

  static bool same(Run a, Run b) { return a.op == b.op && a.step == b.step; }

  /// The arena is cut at the borders of all buffers; each variable, and each step's copy of a slot, is one
  /// cell.
  void make_cells() {
    std::vector<std::uint64_t> borders;
    for (const ProgramBuffer& buffer : program_.buffers) {
      if (buffer.kind != BufferKind::Arena || buffer.bytes == 0) continue;
      borders.push_back(buffer.offset);
      borders.push_back(buffer.offset + buffer.bytes);
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    cells_.resize(borders.size());
    ranges_.resize(program_.buffers.size());
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const ProgramBuffer& buffer = program_.buffers[b];
      const auto at = [&](std::uint64_t border) {
        return static_cast<std::size_t>(std::lower_bound(borders.begin(), borders.end(), border) -
                                        borders.begin());
      };
      if (buffer.kind == BufferKind::Arena) {
        if (buffer.bytes != 0) ranges_[b] = {at(buffer.offset), at(buffer.offset + buffer.bytes), 0};
      } else if (buffer.kind == BufferKind::Variable) {
        ranges_[b] = {cells_.size(), cells_.size() + 1, 0};
        cells_.emplace_back();
      } else if (buffer.kind == BufferKind::Slot) {
        ranges_[b] = {cells_.size(), cells_.size() + 1, 1};
        cells_.resize(cells_.size() + static_cast<std::size_t>(program_.steps_in_flight));
      }
    }
  }

  std::vector<Cell*>& cells_of(int buffer, int step) {
    const Range& range = ranges_[static_cast<std::size_t>(buffer)];
    const std::size_t shift = range.copies ? static_cast<std::size_t>(step % program_.steps_in_flight) : 0;
    scratch_.clear();
    for (std::size_t c = range.begin; c < range.end; ++c) scratch_.push_back(&cells_[c + shift]);
    return scratch_;
  }

  std::string describe(int buffer) const {
    const ProgramBuffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
    const auto index = static_cast<std::size_t>(b.index);
    switch (b.kind) {
      case BufferKind::Arena:
        return fmt::format("arena [{}, {})", b.offset, b.offset + b.bytes);
      case BufferKind::Variable:
        return "variable '" + program_.variables[index].name + "'";
      case BufferKind::Feed:
        return "feed '" + program_.feeds[index].name + "'";
      case BufferKind::Slot:
        return fmt::format("slot {}", b.index);
      case BufferKind::Constant:
        return "a constant";
    }
    return {};
  }

  std::string describe(Run run) const {
    const ProgramOp& op = program_.ops[static_cast<std::size_t>(run.op)];
    return fmt::format("{} (stream {}, step n{})", program_.place(run.op),
                       program_.streams[static_cast<std::size_t>(op.stream)].name,
                       run.step == 0 ? std::string() : fmt::format(" + {}", run.step));
  }

  [[noreturn]] void refuse_pair(Run first, Run second, const std::string& why) const {
    throw Internal(fmt::format("unordered: {} and {}: {}", describe(first), describe(second), why));
  }

  [[noreturn]] void refuse_overwritten(Run reader, const Operand& in, const Cell& cell) const {
    const std::string other = cell.writer.op < 0 ? "nothing" : describe(cell.writer);
    throw Internal(fmt::format("overwritten: {} reads {}, what {} wrote there, but finds what {} wrote",
                               describe(reader), describe(in.buffer), describe(Run{in.producer, reader.step}),
                               other));
  }

  [[noreturn]] void refuse_hang(std::size_t stream, const Instruction& instruction) const {
    throw Internal(fmt::format("stream {} waits for {}, which waits for it", program_.streams[stream].name,
                               program_.place(instruction.op)));
  }

  struct Range {
    std::size_t begin = 0, end = 0;
    int copies = 0;  // one for each step in flight
  };
  const Program& program_;
  const int steps_;
  History history_;
  std::vector<std::vector<Word>> start_;  // by run: what was complete when it started
  std::vector<Cell> cells_;
  std::vector<Range> ranges_;  // by buffer
  std::vector<Cell*> scratch_;
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace braid
