// A compiled program: which node runs on which stream, after which events, in which memory. A plain record
// that the passes fill and that is only handed out as const; everything that executes, reports on or checks a
// program reads it from here. docs/design/compiler.md describes the life of one.
//
// Order. A stream's instructions are executed in order. Run starts an op when the instructions before it are
// done; an asynchronous op is only *issued* by it, and known to be complete through its event alone. Wait
// stops the stream until the named op has completed in this step, WaitPrevious until it has completed in the
// step before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/program/note.h"
#include "engine/program/options.h"

namespace braid {

enum class BufferKind {
  Arena,  // shared by all steps in flight
  Slot,   // one copy for each step in flight: fetched values, and what Pull and HostToDevice nodes bring, so
          // that they can be issued while the step before still uses its own
  Variable,  // the store's
  Feed,      // the user's, of the step
  Constant,
};

/// Memory that ops access. Views are resolved: several values may be one buffer.
struct ProgramBuffer {
  BufferKind kind = BufferKind::Arena;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;      // Arena: a multiple of 64; the device's arena begins where the host's ends
  int index = -1;                // others: position among the program's slots, variables, feeds, constants
  Domain domain = Domain::Host;  // Feed, Constant: both have it, as far as ops of both use it
};

/// One input or output of an op.
struct Operand {
  int buffer = -1;               // none where only the shape of an input is used
  Access access = Access::None;  // what the op does with the bytes
  int producer = -1;             // inputs in Arena and Slot buffers: the op that wrote the value
};

enum class OpKind {
  Kernel,  // a node's kernel
  Copy,    // inputs[0] to outputs[0]: a variable's value taken before a later write
  Join,    // nothing but its dependencies
};

struct ProgramOp {
  OpKind kind = OpKind::Kernel;
  NodeId node = kNoNode;  // in Program::graph; Copy and Join: the node they stand for
  std::string name;       // the node's, or of Copy and Join their own
  std::string op;         // the op's name
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  std::vector<int>
      deps;  // ops that complete before this one starts: data, control, order of variables; sorted
  Domain domain = Domain::Host;
  int stream = 0;
  bool async = false;  // completes through its event only
  bool writes_variable = false;
  int event = -1;      // position among the program's events; -1: nobody waits for it
  double cost_us = 0;  // modelled
};

struct Instruction {
  enum class Kind { Run, Wait, WaitPrevious };
  Kind kind = Kind::Run;
  int op = 0;  // the op that runs, or that is waited for
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct ProgramStream {
  std::string name;   // "compute0", "pull"
  std::string cause;  // under which others book waiting for it: "compute", "pull"
  Lane lane = Lane::Compute;
  Domain domain = Domain::Host;
  std::vector<Instruction> instructions = {};
};

/// A part of the program that is issued as a whole: the device's as one graph launch. The segments of the
/// device follow each other; the host's are one, without ranges of the device's streams.
struct Segment {
  struct Range {
    int stream;
    int begin, end;  // of the stream's instructions
  };
  Domain domain = Domain::Host;
  std::vector<Range> ranges;
  /// Device: host ops that complete before the segment is launched; of the step before where `previous`.
  struct HeadWait {
    int op = 0;
    bool previous = false;
    friend auto operator<=>(const HeadWait&, const HeadWait&) = default;
  };
  std::vector<HeadWait> head_waits;
};

struct ProgramFeed {
  std::string name;
  DType dtype = DType::Invalid;
  Shape shape;
  int buffer = -1;
};

struct ProgramFetch {
  std::string name;
  DType dtype = DType::Invalid;
  Shape shape;
  int buffer = -1;  // Slot, Feed or Constant
};

struct ProgramVariable {
  std::string name;
  DType dtype = DType::Invalid;
  Shape shape;
  int buffer = -1;
  /// A slab: the variables that it consists of, one after another along its first axis.
  std::vector<std::string> members = {};
};

/// What the passes found out, for reports.
struct ProgramStats {
  int waits_issued = 0;            // in-step waits in the instruction lists
  int waits_removed = 0;           // cross-stream dependencies that other order already implies
  int waits_for_memory = 0;        // dependencies that only memory asks for
  int waits_previous = 0;          // waits on the step before
  int events = 0;                  // ops that signal
  double step_us = 0;              // predicted
  double serial_us = 0;            // predicted on one compute stream
  double critical_path_us = 0;     // with unlimited streams
  std::vector<int> critical_path;  // ops, first to last
  std::uint64_t arena_bytes = 0;   // of the host
  std::uint64_t device_arena_bytes = 0;
};

class Program {
 public:
  Graph graph;                 // pruned, with inferred shapes
  std::vector<ProgramOp> ops;  // in issue order: a topological order that every stream follows
  std::vector<ProgramBuffer> buffers;
  std::vector<ProgramStream> streams;  // compute streams first, then the lanes in use
  std::vector<ProgramFeed> feeds;
  std::vector<ProgramFetch> fetches;
  std::vector<ProgramVariable> variables;
  std::vector<Tensor> constants;
  std::vector<Segment> segments;
  Domain domain = Domain::Host;
  int compute_streams = 1;
  int events = 0;
  int steps_in_flight = 1;
  bool deterministic = true;
  StreamPolicy policy = StreamPolicy::None;  // what was chosen, when AUTO was asked for
  Scopes scopes = Scopes::Used;              // likewise
  std::vector<Note> notes;                   // decisions and their reasons
  ProgramStats stats;

  /// "[MatMul] node 'dense/matmul'".
  std::string place(int op) const {
    return "[" + ops[static_cast<std::size_t>(op)].op + "] node '" + ops[static_cast<std::size_t>(op)].name +
           "'";
  }
};

}  // namespace braid
