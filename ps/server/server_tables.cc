#include "ps/server/server_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace braid::ps {

ServerTables::ServerTables(const TableSet& set, int server, int servers, int threads)
    : set_(set), plan_(set, servers), server_(server), threads_(threads) {
  for (std::uint32_t table = 0; table < set.dense.size(); ++table) {
    const DenseRange part = range(table);
    dense_.push_back(
        part.count == 0 ? nullptr : std::make_unique<DenseTable>(part.count, optimizer_of(dense_id(table))));
  }
  for (const SparseTableSpec& spec : set.sparse) {
    auto& parts = sparse_.emplace_back();
    for (int thread = 0; thread < threads; ++thread)
      parts.emplace_back(spec, set_.optimizer_of(spec.group), set.cached);
  }
}

std::vector<TableId> ServerTables::ids() const {
  std::vector<TableId> all;
  for (std::size_t table = 0; table < tables(); ++table) all.push_back(static_cast<TableId>(table));
  return all;
}

std::vector<TableId> ServerTables::ids_of(const PushJob& job) const {
  std::vector<TableId> named;
  for (const DensePart& part : job.dense) named.push_back(dense_id(part.table));
  for (const SparsePart& part : job.sparse) named.push_back(sparse_id(part.table));
  return named;
}

std::vector<TableId> ServerTables::ids_of(const PullJob& job) const {
  std::vector<TableId> named;
  for (std::uint32_t dense : job.dense) named.push_back(dense_id(dense));
  for (const SparsePart& part : job.sparse) named.push_back(sparse_id(part.table));
  return named;
}

const OptimizerSpec& ServerTables::optimizer_of(TableId table) const {
  const std::size_t at = index_of(table), dense = set_.dense.size();
  return set_.optimizer_of(at < dense ? set_.dense[at].group : set_.sparse[at - dense].group);
}

const std::string& ServerTables::name(TableId table) const {
  const std::size_t at = index_of(table), dense = set_.dense.size();
  return at < dense ? set_.dense[at].name : set_.sparse[at - dense].name;
}

bool ServerTables::present(TableId table) const {
  const std::size_t at = index_of(table);
  return at >= dense_.size() || dense_[at] != nullptr;
}

void ServerTables::check(const std::vector<DensePart>& dense, const std::vector<SparsePart>& sparse) const {
  std::vector<bool> seen(tables());
  auto check_once = [&](TableId table) {
    if (seen[index_of(table)])
      throw InvalidArgument(fmt::format("[ps] table '{}' occurs twice in a push", name(table)));
    seen[index_of(table)] = true;
  };
  for (const DensePart& part : dense) {
    const std::int64_t expected = part.table < dense_.size() ? range(part.table).count : 0;
    if (expected == 0)
      throw InvalidArgument(fmt::format("[ps] server {} holds no dense table {}", server_, part.table));
    if (static_cast<std::int64_t>(part.values.size()) != expected)
      throw InvalidArgument(fmt::format("[ps] table '{}': server {} holds {} elements, got {}",
                                        name(dense_id(part.table)), server_, expected, part.values.size()));
    check_once(dense_id(part.table));
  }
  for (const SparsePart& part : sparse) {
    check_part(part);
    check_once(sparse_id(part.table));
  }
}

void ServerTables::check_part(const SparsePart& part, bool slots) const {
  if (part.table >= sparse_.size())
    throw InvalidArgument(fmt::format("[ps] server {} has no sparse table {}", server_, part.table));
  if (const std::size_t its = width(part.table, slots); part.dim != its)
    throw InvalidArgument(fmt::format("[ps] table '{}': its rows have {} elements, not {}",
                                      set_.sparse[part.table].name, its, part.dim));
}

void ServerTables::check_pull(const PullJob& job) const {
  for (std::uint32_t table : job.dense)
    if (table >= dense_.size() || !dense_[table])
      throw InvalidArgument(fmt::format("[ps] server {} holds no dense table {}", server_, table));
  for (const SparsePart& part : job.sparse) check_part(part, job.slots);
  if (job.kind == PullKind::Changed && !(set_.cached && job.slots && job.insert))
    throw InvalidArgument("[ps] a pull of changed rows, of tables that are not declared as cached");
}

void ServerTables::check_written(const std::vector<SparsePart>& rows) const {
  if (!set_.cached || set_.consistency != Consistency::Asp)
    throw InvalidArgument("[ps] rows come back, of tables whose home is no worker");
  for (SparsePart part : rows) {
    if (part.dim == 0) throw InvalidArgument("[ps] rows come back without a step");
    --part.dim;
    check_part(part, true);
  }
}

void ServerTables::positions_of(int thread, const SparsePart& part, std::vector<std::uint32_t>& out) const {
  const std::span<const std::int64_t> keys = part.keys;
  if (threads_ == 1) {
    out.resize(keys.size());
    std::iota(out.begin(), out.end(), 0U);
    return;
  }
  if (part.ordered) {
    const auto first = [&](int of) {
      const int bucket = first_bucket_of(of, threads_);
      return std::partition_point(keys.begin(), keys.end(),
                                  [&](std::int64_t key) { return bucket_of_hash(key_hash(key)) < bucket; }) -
             keys.begin();
    };
    const auto begin = first(thread), end = std::max(begin, first(thread + 1));
    for (auto i = begin; i < end; ++i)
      if (thread_of_hash(key_hash(keys[static_cast<std::size_t>(i)]), threads_) != thread)
        throw InvalidArgument(fmt::format("[ps] table '{}': keys are not in the order of their buckets",
                                          name(sparse_id(part.table))));
    out.resize(static_cast<std::size_t>(end - begin));
    std::iota(out.begin(), out.end(), static_cast<std::uint32_t>(begin));
    return;
  }
  out.clear();
  for (std::uint32_t i = 0; i < keys.size(); ++i)
    if (thread_of_hash(key_hash(keys[i]), threads_) == thread) out.push_back(i);
}

PullWork ServerTables::begin_pull(const PullJob& job, BufferPool& pool) const {
  PullWork work;
  for (std::uint32_t table : job.dense)
    work.dense.emplace_back(static_cast<std::size_t>(dense_[table]->blocks()));
  if (job.kind == PullKind::Repair || job.kind == PullKind::Changed) return work;
  std::size_t floats = 0;
  for (const SparsePart& part : job.sparse) floats += part.keys.size() * width(part.table, job.slots);
  if (floats != 0) work.rows = pool.take(floats * sizeof(float));
  auto* next = reinterpret_cast<float*>(work.rows.get());
  for (const SparsePart& part : job.sparse) {
    work.sparse.emplace_back(next, part.keys.size() * width(part.table, job.slots));
    next += work.sparse.back().size();
  }
  return work;
}

std::int64_t ServerTables::pull(int thread, const PullJob& job, PullWork& work) {
  for (std::size_t i = 0; i < job.dense.size(); ++i) {
    const DenseTable& table = *dense_[job.dense[i]];
    for (std::int64_t block = 0; block < table.blocks(); ++block)
      if (owns_block(thread, job.dense[i], block))
        work.dense[i][static_cast<std::size_t>(block)].emplace(table.read(block));
  }
  std::int64_t made = 0;
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < work.sparse.size(); ++i) {
    positions_of(thread, job.sparse[i], positions);
    made += sparse(job.sparse[i].table, thread)
                .pull(job.sparse[i].keys, positions, job.insert, job.min_version, work.sparse[i].data(),
                      job.slots);
  }
  return made;
}

std::int64_t ServerTables::repair(int thread, const PulledAhead& ahead, std::uint64_t step,
                                  RepairWork& work) {
  RepairWork::Share& share = work.shares[static_cast<std::size_t>(thread)];
  std::int64_t made = 0;
  std::uint32_t first = 0;
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < ahead.rounds.size(); ++i) {
    const SparsePart& part = ahead.pull->sparse[i];
    positions_of(thread, part, positions);
    made += sparse(part.table, thread)
                .repair(part.keys, positions, ahead.rounds[i], step, first, share.where, share.rows,
                        ahead.pull->slots);
    first += static_cast<std::uint32_t>(part.keys.size());
  }
  return made;
}

std::int64_t ServerTables::changed(int thread, const PullJob& job, RepairWork& work) {
  RepairWork::Share& share = work.shares[static_cast<std::size_t>(thread)];
  std::int64_t made = 0;
  std::uint32_t first = 0;
  std::vector<std::uint32_t> positions;
  for (const SparsePart& part : job.sparse) {
    positions_of(thread, part, positions);
    made += sparse(part.table, thread)
                .changed(part.keys, positions, part.known, job.sender.worker, job.min_version, first,
                         share.where, share.rows);
    first += static_cast<std::uint32_t>(part.keys.size());
  }
  return made;
}

std::int64_t ServerTables::apply(int thread, const ReadyRound& round) {
  const PreparedUpdate update = prepare_update(optimizer_of(round.table), round.params);
  const auto number = static_cast<std::uint32_t>(round.table);
  if (number < dense_.size()) {
    std::vector<const float*> gradients;
    for (const Contribution& c : round.contributions)
      gradients.push_back(c.push->dense[c.part].values.data());
    DenseTable& table = *dense_[number];
    for (std::int64_t block = 0; block < table.blocks(); ++block)
      if (owns_block(thread, number, block)) table.apply(block, update, gradients);
    return 0;
  }
  std::vector<std::vector<std::uint32_t>> positions(round.contributions.size());
  std::vector<SparseGradient> gradients;
  for (std::size_t i = 0; i < round.contributions.size(); ++i) {
    const SparsePart& part = round.contributions[i].push->sparse[round.contributions[i].part];
    positions_of(thread, part, positions[i]);
    gradients.push_back({part.keys, positions[i], part.rows, round.contributions[i].worker});
  }
  return sparse(number - static_cast<std::uint32_t>(dense_.size()), thread)
      .apply(update, round.round, gradients);
}

std::int64_t ServerTables::apply(int thread, const PushJob& push) {
  for (const DensePart& part : push.dense) {
    const PreparedUpdate update = prepare_update(optimizer_of(dense_id(part.table)), push.params);
    const float* gradient = part.values.data();
    DenseTable& table = *dense_[part.table];
    for (std::int64_t block = 0; block < table.blocks(); ++block)
      if (owns_block(thread, part.table, block)) table.apply(block, update, {&gradient, 1});
  }
  std::int64_t made = 0;
  std::vector<std::uint32_t> positions;
  for (const SparsePart& part : push.sparse) {
    positions_of(thread, part, positions);
    const PreparedUpdate update =
        prepare_update(set_.optimizer_of(set_.sparse[part.table].group), push.params);
    const SparseGradient gradient{part.keys, positions, part.rows, push.sender.worker};
    made += sparse(part.table, thread).apply(update, push.step, {&gradient, 1});
  }
  return made;
}

void ServerTables::assign(int thread, const DensePart& part) {
  DenseTable& table = *dense_[part.table];
  for (std::int64_t block = 0; block < table.blocks(); ++block)
    if (owns_block(thread, part.table, block)) table.assign(block, part.values.data());
}

std::int64_t ServerTables::write(int thread, const SparsePart& part) {
  std::vector<std::uint32_t> positions;
  positions_of(thread, part, positions);
  return sparse(part.table, thread).write(part.keys, positions, part.rows);
}

}  // namespace braid::ps
