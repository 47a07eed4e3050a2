// What strategies have in common under which the workers of a group (strategy.mesh) each have a slice of some
// variables, with its slots: sums and gathers over some ranks, names and first values of slices, clipping,
// and what the leader needs of others' slices between steps (tensor_service.h). Thread rule: that of
// Strategy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/job/mesh.h"
#include "worker/job/optimizers.h"
#include "worker/strategies/served_strategy.h"
#include "worker/strategies/tensor_service.h"

namespace braid::worker {

class SlicedStrategy : public ServedStrategy {
 public:
  SlicedStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers, const Mesh& mesh);

  bool ranks_differ() const override { return mesh_.workers > 1; }
  bool takes_initial_value(const std::string& variable, const Tensor& whole) override;
  std::string model_name(const std::string& local) const override;
  Shape whole_shape(const std::string& name, const Shape& local) const override;
  bool saves_local_variable(const std::string& name) const override;
  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override;
  void refresh_variables(const WaitContext& wait) override { service_->gather(wait); }

 protected:
  RankService& service() override { return *service_; }
  bool is_shared(const std::string& variable) const override { return saves_local_variable(variable); }

  static std::vector<std::int64_t> members(const std::vector<int>& ranks) {
    return {ranks.begin(), ranks.end()};
  }
  std::vector<int> all_ranks() const { return Mesh{1, peers_.world}.group_ranks(peers_.rank); }
  std::vector<int> group() const { return mesh_.group_ranks(peers_.rank); }

  /// Over some ranks, of which this is one; of one alone the values themselves. `narrow`: they travel as
  /// strategy.wire says.
  std::vector<ValueRef> sum_over(Graph& graph, std::vector<ValueRef> values, const std::vector<int>& ranks,
                                 const std::string& name, bool narrow = false);
  /// [ranks, ...]: the values of those ranks, in their order.
  ValueRef gather_over(Graph& graph, ValueRef value, const std::vector<int>& ranks, const std::string& name);

  /// These variables will lie in slices. REQUIRES: `graph` has them whole yet.
  void note_slices(const Graph& graph, const std::vector<TensorSlice>& slices);
  bool is_sliced(const VariableGradient& gradient) const {
    return model_names_.contains(gradient.variable.name);
  }
  /// A worker has the squares of its slices only.
  void clip(TrainingGraph& training, std::vector<VariableGradient>& gradients);
  /// Of all gradients, which are whole or slices, and the service of the slices. Throws: InvalidArgument for
  /// slices of tables whose optimizer needs whole rows.
  void add_updates(TrainingGraph& training, const std::vector<VariableGradient>& gradients);
  /// What a sum adds up of dense gradients.
  static std::int64_t bytes_of(const VariableGradient& gradient);

  const Mesh mesh_;
  const float clip_norm_;

 private:
  std::vector<ValueRef> gathered_sums(Graph& graph, std::vector<ValueRef> values,
                                      const std::vector<int>& ranks, const std::string& name);
  void note_slots(const VariableGradient& gradient, const OptimizerSpec& optimizer);
  const TensorSlice& slice_of_variable(const std::string& name) const;
  bool initialize(const StoredSlice& slice, Tensor& whole) const;

  const Optimizers optimizers_;
  const std::uint64_t seed_;
  std::map<std::string, Node> handles_;              // of sliced variables, as the model has them
  std::map<std::string, std::string> model_names_;   // by slice_name()
  std::map<std::string, std::string> former_names_;  // by the model's
  std::vector<StoredSlice> stored_;
  std::map<std::string, Tensor> given_;  // first values that are not their initialiser's, by slice_name()
  std::unique_ptr<TensorService> service_;
};

}  // namespace braid::worker
