// A program that can be run for its time alone: what would talk to other processes (lanes Pull, Push and
// Comm) is replaced by nodes that write zeros and complete after the cost that the program has for them, on a
// device after what its bytes take between GPUs of one host, unless its lane is among those that are real.
// Thread rule: one thread; outlives the instances of its programs.
#pragma once

#include <memory>
#include <vector>

#include "engine/program/program.h"

namespace braid {

class LaneStandIns {
 public:
  LaneStandIns();
  ~LaneStandIns();
  LaneStandIns(const LaneStandIns&) = delete;

  std::shared_ptr<const Program> without_peers(const Program& program, const std::vector<Lane>& real = {});

 private:
  class Timer;
  std::shared_ptr<Timer> timer_;
  std::vector<std::unique_ptr<OpDef>> ops_;
};

}  // namespace braid
