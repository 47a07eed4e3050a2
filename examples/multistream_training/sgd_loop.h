// A training loop as small as one can be: the gradients of a loss, plain SGD updates, one program, steps.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/program/program.h"

namespace braid {

class GraphDef;

struct Feed {
  std::string name;
  Tensor value;
};

class SgdLoop {
 public:
  /// Variables begin as their nodes say. Throws: what import_graph(), add_gradients() and compile() throw.
  SgdLoop(const GraphDef& forward, const std::string& loss, float learning_rate, std::vector<Feed> feeds,
          const StreamOptions& streams, std::uint64_t seed, Runtime& runtime);
  /// With `streams` streams nodes go where their scopes say; with one, scopes mean nothing.
  SgdLoop(const GraphDef& forward, const std::string& loss, float learning_rate, std::vector<Feed> feeds,
          int streams, std::uint64_t seed, Runtime& runtime);

  /// One step: the loss before its update.
  float step();
  /// The first element of a variable.
  float value(const std::string& variable) const;
  const Program& program() const { return instance_->program(); }

 private:
  Runtime& runtime_;
  std::vector<Tensor> feeds_;
  std::unique_ptr<Instance> instance_;
  std::uint64_t next_ = 0;
};

}  // namespace braid
