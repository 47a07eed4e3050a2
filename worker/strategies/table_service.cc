#include "worker/strategies/table_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "worker/process/share_text.h"
#include "worker/strategies/table_files.h"

namespace braid::worker {

/// On the wire, between ranks of one build.
struct TableService::Request {
  enum Kind : std::int64_t { LookUp = 1, Save = 2, Release = 3 };
  std::int64_t kind = Release, table = 0, count = 0;
};

void TableService::ask(Request& request, const WaitContext& wait) {
  static_assert(sizeof(Request) == 3 * sizeof(std::int64_t));
  communicator_->broadcast(&request, 3, DType::Int64, 0, StreamRef::host(), wait);
}

std::vector<float> TableService::own_rows(const TableShard& table, std::span<const std::int64_t> ids) const {
  const Tensor values = *store_.read(table.name);
  const std::span<const float> all = values.data<float>();
  const std::int64_t dim = table.local_dim();
  std::vector<float> rows;
  for (const std::int64_t id : ids) {
    if (!table.holds(id)) continue;
    const auto row =
        all.subspan(static_cast<std::size_t>(table.local_row(id) * dim), static_cast<std::size_t>(dim));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

void TableService::look_up(int index, std::span<const std::int64_t> ids, float* rows,
                           const WaitContext& wait) {
  const TableShard& table = tables_[static_cast<std::size_t>(index)];
  for (const std::int64_t id : ids)
    if (id < 0 || id >= table.rows)
      throw InvalidArgument(fmt::format("table '{}': id {} is not in [0, {})", table.name, id, table.rows));
  Request request{Request::LookUp, index, std::ssize(ids)};
  ask(request, wait);
  std::vector<std::int64_t> copy(ids.begin(), ids.end());
  communicator_->broadcast(copy.data(), request.count, DType::Int64, 0, StreamRef::host(), wait);
  const std::int64_t dim = table.local_dim();
  const bool columns = table.plan == TablePlan::Column;
  const std::vector<float> own = own_rows(table, ids);
  std::vector<std::int64_t> sends(static_cast<std::size_t>(table.world)), receives = sends;
  sends[0] = std::ssize(own);
  std::vector<int> ranks;
  for (const std::int64_t id : ids) {
    ranks.push_back(columns ? 0 : table.rank_of(id));
    if (!columns) receives[static_cast<std::size_t>(ranks.back())] += dim;
  }
  if (columns) std::ranges::fill(receives, request.count * dim);
  std::vector<float> received(static_cast<std::size_t>(request.count * table.dim));
  communicator_->all_to_all(own.data(), sends, received.data(), receives, DType::Float32, StreamRef::host(),
                            wait);
  std::vector<const float*> next;
  const float* begin = received.data();
  for (const std::int64_t count : receives) {
    next.push_back(begin);
    begin += count;
  }
  for (const int rank : ranks)
    for (int r = columns ? 0 : rank; r <= (columns ? table.world - 1 : rank); ++r) {
      const float*& from = next[static_cast<std::size_t>(r)];
      rows = std::copy_n(from, dim, rows);
      from += dim;
    }
}

void TableService::answer_look_up(const TableShard& table, std::span<const std::int64_t> ids,
                                  const WaitContext& wait) {
  const std::vector<float> own = own_rows(table, ids);
  std::vector<std::int64_t> sends(static_cast<std::size_t>(table.world)), receives = sends;
  sends[0] = std::ssize(own);
  float nothing = 0;
  communicator_->all_to_all(own.data(), sends, &nothing, receives, DType::Float32, StreamRef::host(), wait);
}

std::vector<ShardInfo> TableService::save(const std::filesystem::path& directory, const WaitContext& wait) {
  Request request{Request::Save, 0, 0};
  ask(request, wait);
  std::string path = std::filesystem::absolute(directory).string();
  share_text(path, *communicator_, wait);
  return write(path, wait);
}

std::vector<ShardInfo> TableService::write(const std::filesystem::path& directory, const WaitContext& wait) {
  const ShardInfo mine = write_tables(tables_, store_, *communicator_, directory, wait);
  const std::int64_t own[2] = {static_cast<std::int64_t>(mine.bytes), static_cast<std::int64_t>(mine.crc)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(communicator_->size()));
  communicator_->all_gather(own, all.data(), 2, DType::Int64, StreamRef::host(), wait);
  std::vector<ShardInfo> shards;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const auto at = static_cast<std::size_t>(2 * rank);
    shards.push_back(
        {tables_file(rank), static_cast<std::uint64_t>(all[at]), static_cast<std::uint32_t>(all[at + 1])});
  }
  return shards;
}

void TableService::release(const WaitContext& wait) {
  Request request{Request::Release, 0, 0};
  ask(request, wait);
}

void TableService::serve(std::chrono::nanoseconds patience) {
  for (;;) {
    const WaitContext wait = WaitContext::with_timeout(patience);
    Request request;
    ask(request, wait);
    if (request.kind == Request::Release) return;
    if (request.kind == Request::Save) {
      std::string path;
      share_text(path, *communicator_, wait);
      write(path, wait);
      continue;
    }
    std::vector<std::int64_t> ids(static_cast<std::size_t>(request.count));
    communicator_->broadcast(ids.data(), request.count, DType::Int64, 0, StreamRef::host(), wait);
    answer_look_up(tables_.at(static_cast<std::size_t>(request.table)), ids, wait);
  }
}

}  // namespace braid::worker
