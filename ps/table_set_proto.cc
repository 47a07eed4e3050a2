#include "ps/table_set_proto.h"

#include "proto/ps.pb.h"

namespace braid::ps {

void to_proto(const TableSet& set, proto::PsTableSet* out) {
  for (const DenseTableSpec& table : set.dense) {
    auto* to = out->add_dense();
    to->set_name(table.name);
    to->set_elements(table.elements);
    to->set_former_name(table.former_name);
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
  }
  auto* optimizer = out->mutable_optimizer();
  optimizer->set_kind(static_cast<int>(set.optimizer.kind));
  optimizer->set_momentum(set.optimizer.momentum);
  optimizer->set_nesterov(set.optimizer.nesterov);
  optimizer->set_beta1(set.optimizer.beta1);
  optimizer->set_beta2(set.optimizer.beta2);
  optimizer->set_epsilon(set.optimizer.epsilon);
  optimizer->set_initial_accumulator(set.optimizer.initial_accumulator);
  optimizer->set_weight_decay(set.optimizer.weight_decay);
  out->set_consistency(static_cast<int>(set.consistency));
  out->set_workers(set.workers);
}

TableSet from_proto(const proto::PsTableSet& in) {
  TableSet set;
  for (const auto& table : in.dense())
    set.dense.push_back({table.name(), table.elements(), table.former_name()});
  for (const auto& table : in.sparse())
    set.sparse.push_back({table.name(),
                          table.dim(),
                          {static_cast<InitKind>(table.init_kind()), table.init_a(), table.init_b()},
                          {table.key()},
                          table.former_name()});
  const auto& optimizer = in.optimizer();
  set.optimizer.kind = static_cast<OptimizerKind>(optimizer.kind());
  set.optimizer.momentum = optimizer.momentum();
  set.optimizer.nesterov = optimizer.nesterov();
  set.optimizer.beta1 = optimizer.beta1();
  set.optimizer.beta2 = optimizer.beta2();
  set.optimizer.epsilon = optimizer.epsilon();
  set.optimizer.initial_accumulator = optimizer.initial_accumulator();
  set.optimizer.weight_decay = optimizer.weight_decay();
  set.consistency = static_cast<Consistency>(in.consistency());
  set.workers = in.workers();
  return set;
}

}  // namespace braid::ps
