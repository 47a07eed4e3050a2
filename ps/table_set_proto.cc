#include "ps/table_set_proto.h"

#include "proto/ps.pb.h"

namespace braid::ps {

namespace {

void optimizer_to_proto(const OptimizerSpec& spec, proto::PsOptimizer* out) {
  out->set_kind(static_cast<int>(spec.kind));
  out->set_momentum(spec.momentum);
  out->set_nesterov(spec.nesterov);
  out->set_beta1(spec.beta1);
  out->set_beta2(spec.beta2);
  out->set_epsilon(spec.epsilon);
  out->set_initial_accumulator(spec.initial_accumulator);
  out->set_weight_decay(spec.weight_decay);
  out->set_rho(spec.rho);
  out->set_centered(spec.centered);
  out->set_learning_rate_power(spec.learning_rate_power);
  out->set_l2_shrinkage(spec.l2_shrinkage);
  out->set_l1(spec.l1);
  out->set_l2(spec.l2);
  out->set_clip_value(spec.clip_value);
  out->set_adagrad_epsilon(spec.adagrad_epsilon);
  out->set_row_wise(spec.row_wise);
  out->set_learning_rate_factor(spec.learning_rate_factor);
}

OptimizerSpec optimizer_from_proto(const proto::PsOptimizer& in) {
  OptimizerSpec spec;
  spec.kind = static_cast<OptimizerKind>(in.kind());
  spec.momentum = in.momentum();
  spec.nesterov = in.nesterov();
  spec.beta1 = in.beta1();
  spec.beta2 = in.beta2();
  spec.epsilon = in.epsilon();
  spec.initial_accumulator = in.initial_accumulator();
  spec.weight_decay = in.weight_decay();
  if (in.learning_rate_factor() == 0) return spec;  // of a checkpoint from before the fields below
  spec.rho = in.rho();
  spec.centered = in.centered();
  spec.learning_rate_power = in.learning_rate_power();
  spec.l2_shrinkage = in.l2_shrinkage();
  spec.l1 = in.l1();
  spec.l2 = in.l2();
  spec.clip_value = in.clip_value();
  spec.adagrad_epsilon = in.adagrad_epsilon();
  spec.row_wise = in.row_wise();
  spec.learning_rate_factor = in.learning_rate_factor();
  return spec;
}

}  // namespace

void to_proto(const TableSet& set, proto::PsTableSet* out) {
  for (const DenseTableSpec& table : set.dense) {
    auto* to = out->add_dense();
    to->set_name(table.name);
    to->set_elements(table.elements);
    to->set_former_name(table.former_name);
    to->set_group(table.group);
  }
  for (const SparseTableSpec& table : set.sparse) {
    auto* to = out->add_sparse();
    to->set_name(table.name);
    to->set_dim(table.dim);
    to->set_init_kind(static_cast<int>(table.init.kind));
    to->set_init_a(table.init.a);
    to->set_init_b(table.init.b);
    to->set_key(table.key.value);
    to->set_former_name(table.former_name);
    to->set_group(table.group);
  }
  optimizer_to_proto(set.optimizer, out->mutable_optimizer());
  for (const OptimizerSpec& group : set.groups) optimizer_to_proto(group, out->add_groups());
  out->set_consistency(static_cast<int>(set.consistency));
  out->set_workers(set.workers);
  out->set_staleness(set.staleness);
  auto* timed = out->mutable_timed();
  timed->set_timeout_ms(set.timed.timeout_ms);
  timed->set_quorum(set.timed.quorum);
  timed->set_late(static_cast<int>(set.timed.late));
  timed->set_late_scale(set.timed.late_scale);
  timed->set_max_late_share(set.timed.max_late_share);
  timed->set_rounds(set.timed.rounds);
  out->set_cached(set.cached);
}

TableSet from_proto(const proto::PsTableSet& in) {
  TableSet set;
  for (const auto& table : in.dense())
    set.dense.push_back({table.name(), table.elements(), table.former_name(), table.group()});
  for (const auto& table : in.sparse())
    set.sparse.push_back({table.name(),
                          table.dim(),
                          {static_cast<InitKind>(table.init_kind()), table.init_a(), table.init_b()},
                          {table.key()},
                          table.former_name(),
                          table.group()});
  set.optimizer = optimizer_from_proto(in.optimizer());
  for (const auto& group : in.groups()) set.groups.push_back(optimizer_from_proto(group));
  set.consistency = static_cast<Consistency>(in.consistency());
  set.workers = in.workers();
  set.staleness = in.staleness();
  set.timed = {
      in.timed().timeout_ms(), in.timed().quorum(),         static_cast<TimedRule::Late>(in.timed().late()),
      in.timed().late_scale(), in.timed().max_late_share(), in.timed().rounds()};
  set.cached = in.cached();
  return set;
}

}  // namespace braid::ps
