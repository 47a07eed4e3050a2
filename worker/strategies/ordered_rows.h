// The nodes of a step whose sparse tables lie on parameter servers. The tables of one dim are a group, and
// for each group there are, in forward:
//
//   ids of all its gathers -> PsKeys -> PsRows -> Unbucket for each gather -> rows, as a gather gives them
//
// and in backward:
//
//   gradients of rows, one behind the other -> SumBuckets -> PsPushRows
//
// Dense variables may travel with them, so that a step of small ones has one request each way.
//
// PsKeys needs a batch's ids alone and is for the stage (TrainingGraph::ahead). PsRows pulls all groups. So
// rows travel once, in one block each way, and a step makes and looks up no keys. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/step/training_graph.h"

namespace braid::worker {

/// The keys of a batch's ids (braid.PsKeys), made in its stage. `tables`: the gathers of each. `entries`:
/// which ids a key has is wanted, too.
NodeId add_row_keys(TrainingGraph& training, std::int64_t dim, const std::vector<std::vector<NodeId>>& tables,
                    std::int64_t servers, bool entries = true);

class OrderedRows {
 public:
  struct Options {
    std::int64_t servers = 1;
    bool versioned = false;  // a pull is of the step's round
    bool ahead = false;      // and made before it, to be repaired (ps/client/ps_client.h)
    bool fill = false;       // blocks hold numbers everywhere
    bool cached = false;     // rows may be here (cached_rows.h): tables of a group have slots as wide
  };
  /// `training` outlives it.
  OrderedRows(TrainingGraph& training, const Options& options)
      : training_(training), graph_(training.graph), options_(options) {}

  /// Whether the gradient's rows are those that gathers read, in some order of these.
  static bool can_take(const Graph& graph, const VariableGradient& gradient);

  /// REQUIRES: can_take(). `table`: its number in the table set; `slots`: numbers of a row's slots.
  void add(const VariableGradient& gradient, int table, std::size_t slots);
  bool empty() const { return groups_.empty(); }
  /// The tables of each group, by number.
  std::vector<std::vector<int>> tables() const;
  int groups() const { return static_cast<int>(groups_.size()); }

  /// A dense variable on servers, or its gradient: table number and handle, or value.
  struct Dense {
    int table;
    ValueRef value;
  };
  /// Puts the pull in the place of the gathers; `dense` variables are pulled with them, and whoever reads
  /// these waits for it. Result: the votes, when it is asked for them.
  ValueRef pull(bool votes, const std::vector<Dense>& dense = {});
  /// Which groups are pushed together: those whose gradients take no more than `bytes` by themselves; a
  /// request costs more than it gains by leaving earlier with so little. `examples`: of a step.
  std::vector<std::vector<int>> pushes(std::int64_t bytes, std::int64_t examples) const;
  /// The push of such groups, and of `dense` gradients, a target. `vote`: invalid, or this worker's wish to
  /// stop.
  void push(const std::vector<int>& groups, std::int64_t sequence, std::int64_t examples, ValueRef vote,
            const std::vector<Dense>& dense = {});

 private:
  struct Table {
    VariableGradient gradient;
    int number;
    std::vector<NodeId> gathers;  // in the order of the gradient's rows
  };
  struct Group {
    std::int64_t dim;
    std::size_t slots;  // 0 where rows are not cached
    std::vector<Table> tables;
    NodeId keys = kNoNode;
  };

  void add_keys(Group& group);
  NodeId add_plan();
  std::int64_t bytes_of(const Group& group, std::int64_t examples) const;
  void replace_gathers(const Group& group, ValueRef rows);
  ValueRef sums_of(const Group& group);

  TrainingGraph& training_;
  Graph& graph_;
  const Options options_;
  std::vector<Group> groups_;
};

}  // namespace braid::worker
