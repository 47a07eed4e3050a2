// The traces of a job's processes (engine/exec/trace.h) as one, on one clock: a process for each, and arrows
// between them. A collective's arrow leaves the rank that came last, when it begins there, and ends where it
// ends on another rank. In a job whose workers wait for each other one goes from the last push of a step to
// the next step's last pull of every other worker. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

namespace braid::watch {

struct ProcessTrace {
  std::string task;
  std::string json;     // of /trace.json
  double clock_us = 0;  // what is added to the process's steady clock to have that of the merged trace
  bool synchronous = true;
};

struct MergedTrace {
  std::string json;
  std::size_t slices = 0;
  std::size_t arrows = 0;  // between processes
  double worst_us = 0;     // the largest by which an arrow would end before it begins: clocks, if above 0
};

/// Arrows that would go back in time are left out, and counted in worst_us. Throws: InvalidArgument naming
/// the task whose text is no trace.
MergedTrace merge_traces(const std::vector<ProcessTrace>& traces);

}  // namespace braid::watch
