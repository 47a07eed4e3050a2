// AUTO by measurement: before step 0, compiles the candidates for a program's streams and times them on
// scratch data, with variables, streams and a pool of their own, so nothing of the job is touched. What needs
// other processes is replaced by its modelled time (stubbed_peers.h), but for what can be made on trial.
//
// First the costs of the ops are measured, in steps on one stream, and every candidate is compiled with them.
// Then the candidates run in turns, a burst of steps each, with as many steps in flight as the job has, so
// that what else the machine does hits all of them; each is compared with the serial one of the same turn.
// The serial one uses no ids: it wins over streams that the user has assigned too, if they cost time. Where
// nodes have ids, every policy is tried with them and without. Only streams, events and memory differ between
// candidates (without its ids a graph's siblings still stay apart), so the choice keeps the bits of every
// step.
//
// Thread rule: one thread, no step of the job in flight.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/exec/runtime.h"
#include "engine/exec/stream_plan.h"

namespace braid {

class Instance;  // engine/exec/instance.h

struct TuneOptions {
  std::chrono::milliseconds budget{2000};                      // for timing; compiling comes on top
  std::uint64_t most_variable_bytes = std::uint64_t{2} << 30;  // they exist twice while this runs
  double worthwhile_gain = 0.02;  // what another candidate must gain over the serial one
  double as_fast = 0.01;          // so near to the fastest, a smaller arena wins,
  double smaller = 0.95;          //   if it is at most this part of the fastest one's
  std::uint64_t seed = 0;         // of the scratch variables' values
  std::vector<Lane> real = {};    // of nodes that talk to other processes and may do so here
};

/// The decision for a program that is compiled with `options` (policy AUTO). `feeds` are values for the
/// request's feeds; none: zeros. `job` is the runtime that the program is for: its device, its services and
/// the width of its pool are used, its streams and variables are not. Where nothing can be measured the
/// modelled costs decide, and `why` says so. Throws: what compile() throws.
StreamPlan tune_streams(const Graph& graph, const CompileRequest& request, const CompileOptions& options,
                        std::vector<Tensor> feeds, Runtime& job, const TuneOptions& tune = {});

/// Which of some plans AUTO takes. `ratios`: of their steps to those of the first one, which is serial;
/// `arenas`: their bytes. REQUIRES: as many of both, at least one.
std::size_t choose_plan(const std::vector<double>& ratios, const std::vector<std::uint64_t>& arenas,
                        const TuneOptions& tune);

/// Medians of what the ops of a program take, in microseconds by node name, over some steps of an instance
/// whose runtime traces; of nodes that complete later those on the lanes `real`. REQUIRES: no step in flight,
/// a program of the host.
MeasuredCosts measure_costs(Instance& instance, Runtime& runtime, const std::vector<Tensor>& feeds,
                            const std::vector<Lane>& real = {});

}  // namespace braid
