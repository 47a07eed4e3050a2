#include "ps/server/snapshot.h"

namespace braid::ps {

Snapshot::Snapshot(std::shared_ptr<ServerTables> tables, std::uint64_t step, std::vector<WorkerMarks> marks)
    : tables_(std::move(tables)), step_(step), marks_(std::move(marks)) {
  for (std::uint32_t table = 0; table < tables_->dense_tables(); ++table) {
    const DenseTable* dense = tables_->dense(table);
    auto& blocks = dense_.emplace_back();
    for (std::int64_t block = 0; dense != nullptr && block < dense->blocks(); ++block)
      blocks.emplace_back(static_cast<std::size_t>(dense->slots()) + 1);
  }
  sparse_.assign(tables_->tables() - tables_->dense_tables(),
                 std::vector<SparseRows>(static_cast<std::size_t>(tables_->threads())));
}

void Snapshot::gather(int thread) {
  for (std::uint32_t table = 0; table < dense_.size(); ++table) {
    for (std::size_t block = 0; block < dense_[table].size(); ++block) {
      const auto at = static_cast<std::int64_t>(block);
      if (!tables_->owns_block(thread, table, at)) continue;
      const DenseTable& dense = *tables_->dense(table);
      auto& runs = dense_[table][block];
      runs[0].emplace(dense.read(at));
      for (int k = 0; k < dense.slots(); ++k)
        runs[static_cast<std::size_t>(k) + 1].emplace(dense.read_slot(at, k));
    }
  }
  for (std::size_t table = 0; table < sparse_.size(); ++table)
    tables_->sparse(static_cast<std::uint32_t>(table), thread)
        .append_to(sparse_[table][static_cast<std::size_t>(thread)]);
}

std::vector<float> Snapshot::dense(std::uint32_t table, int run) const {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(tables_->range(table).count));
  for (const auto& runs : dense_[table]) {
    const auto values = runs[static_cast<std::size_t>(run)]->values();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

SparseRows Snapshot::sparse(std::uint32_t sparse) const {
  SparseRows all;
  for (const SparseRows& part : sparse_[sparse]) {
    all.keys.insert(all.keys.end(), part.keys.begin(), part.keys.end());
    all.last_use.insert(all.last_use.end(), part.last_use.begin(), part.last_use.end());
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    all.slots.resize(std::max(all.slots.size(), part.slots.size()));
    for (std::size_t k = 0; k < part.slots.size(); ++k)
      all.slots[k].insert(all.slots[k].end(), part.slots[k].begin(), part.slots[k].end());
  }
  return all;
}

}  // namespace braid::ps
