// Programs and instances of one graph by the signature (types and shapes) of its feeds: a remainder batch or
// a batch of evaluation is another program over the same variables. Keeps the `capacity` signatures used
// last.
//
// Two instances of a cache may not have steps in flight at once when one of them writes variables: take the
// results of the one before starting the other. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/program/program.h"

namespace braid {

/// compile(), for programs that share the variables of `store`. Where siblings are batched their variables
/// lie one after another, as the first program has laid them out, and a program that they do not fit is
/// compiled without batching. Makes the memory of the slabs. Throws: what compile() throws; OutOfMemory.
std::shared_ptr<const Program> compile_to_fit(const Graph& graph, const CompileRequest& request,
                                              CompileOptions options, VariableStore& store);

class ProgramCache {
 public:
  static constexpr std::size_t kDefaultCapacity = 8;

  /// Compiles for `runtime`, which outlives the cache.
  ProgramCache(Graph graph, std::vector<std::string> fetches, std::vector<std::string> targets,
               CompileOptions options, Runtime& runtime, std::size_t capacity = kDefaultCapacity,
               InstanceOptions instance_options = {});

  /// The instance for these feeds; compiled and bound when there is none. An instance that falls out of the
  /// cache lives on with whoever holds it. Throws: what compile() and Instance throw.
  std::shared_ptr<Instance> instance(const std::vector<FeedSpec>& feeds);

  std::size_t size() const { return entries_.size(); }
  std::uint64_t compiled() const { return compiled_; }  // since the beginning

 private:
  struct Entry {
    std::vector<FeedSpec> feeds;
    std::shared_ptr<Instance> instance;
  };

  const Graph graph_;
  const std::vector<std::string> fetches_, targets_;
  const CompileOptions options_;
  Runtime& runtime_;
  const std::size_t capacity_;
  const InstanceOptions instance_options_;
  std::list<Entry> entries_;  // the one used last first
  std::uint64_t compiled_ = 0;
};

}  // namespace braid
