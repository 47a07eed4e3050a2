// The exchange of ids a step ahead: a step reads the ids that the one before has received, and sends those of
// the next batch beside its dense layers.
//
//   variables ids_ahead/<n> -> what looked at received ids
//   ids of the next batch -> ToOwners -> KeepValues -> variables, behind all that reads them
//
// Rows are looked up when their step runs, so all bits are those of ids that travel in their own step. Before
// the first step the exchange runs alone (worker/step/next_batch.h). The variables belong to no checkpoint:
// batches are functions of their number. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/step/next_batch.h"
#include "worker/step/training_graph.h"
#include "worker/strategies/hybrid_rewrite.h"

namespace braid::worker {

class IdsAhead {
 public:
  /// The owner of what does not travel: this rank keeps it for its next step.
  static constexpr std::int64_t kStays = -1;

  /// What travels: values of this rank's batch, by owner. All outlive it.
  IdsAhead(TrainingGraph& training, int rank, int world, std::vector<ValueRef> values,
           std::vector<std::int64_t> owners);

  /// Whether all of it follows from columns alone, and has a size that is known. Nothing is added where not.
  bool possible() const { return !shapes_.empty(); }
  /// What has been received for this step, in the order of the values: those of all ranks at the owner, empty
  /// elsewhere; or what stayed. REQUIRES: possible().
  const std::vector<ValueRef>& received();
  /// Adds the exchange for the next step. REQUIRES: received() was called.
  void exchange(const AddCollective& add_collective);
  /// Of a value as this rank has it. REQUIRES: possible().
  const Shape& shape(std::size_t value) const { return shapes_[value]; }

 private:
  void find_shapes();

  TrainingGraph& training_;
  const int rank_, world_;
  const std::vector<ValueRef> values_;
  const std::vector<std::int64_t> owners_;
  std::vector<Shape> shapes_;
  std::vector<ValueRef> handles_, received_;
};

/// Whether it is one of these variables, which hold nothing of the model.
bool is_of_ids_ahead(std::string_view variable);

}  // namespace braid::worker
