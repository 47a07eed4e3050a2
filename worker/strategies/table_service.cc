#include "worker/strategies/table_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "worker/process/share_text.h"
#include "worker/strategies/hot_rows.h"
#include "worker/strategies/read_rows.h"
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
  const std::int64_t dim = table.local_dim();
  std::vector<std::int64_t> locals, hot;  // rows of the part, places of hot ones
  std::vector<bool> is_hot;               // of each row that is held
  for (const std::int64_t id : ids) {
    if (!table.holds(id)) continue;
    const std::int64_t place = table.hot_place(id);
    is_hot.push_back(place >= 0);
    (place >= 0 ? hot : locals).push_back(place >= 0 ? place : table.local_row(id));
  }
  const auto read = [&](const std::string& variable, std::int64_t rows,
                        const std::vector<std::int64_t>& wanted) {
    std::vector<float> values(wanted.size() * static_cast<std::size_t>(dim));
    if (!wanted.empty()) read_rows(store_, device_, variable, Shape{rows, dim}, wanted, values.data());
    return values;
  };
  std::vector<float> cold_rows = read(table.name, table.local_rows(), locals);
  if (hot.empty()) return cold_rows;
  const std::vector<float> hot_rows = read(hot_variable(table, table.name), std::ssize(table.hot), hot);
  std::vector<float> rows;
  auto next_cold = cold_rows.begin();
  auto next_hot = hot_rows.begin();
  for (const bool of_hot : is_hot) {
    if (of_hot)
      rows.insert(rows.end(), next_hot, next_hot + dim), next_hot += dim;
    else
      rows.insert(rows.end(), next_cold, next_cold + dim), next_cold += dim;
  }
  return rows;
}

namespace {

/// Numbers that each rank sends of the rows of `ids`: all of them a part, or each the rows that it has.
std::vector<std::int64_t> numbers_by_rank(const TableShard& table, std::span<const std::int64_t> ids) {
  const std::int64_t dim = table.local_dim();
  if (table.plan == TablePlan::Column)
    return std::vector<std::int64_t>(static_cast<std::size_t>(table.world), std::ssize(ids) * dim);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(table.world));
  for (const std::int64_t id : ids) numbers[static_cast<std::size_t>(table.rank_of(id))] += dim;
  return numbers;
}

/// `received`: of rank 0, 1, ... what numbers_by_rank() says, in the order of `ids`.
void place_rows(const TableShard& table, std::span<const std::int64_t> ids,
                const std::vector<float>& received, const std::vector<std::int64_t>& numbers, float* rows) {
  const bool columns = table.plan == TablePlan::Column;
  const std::int64_t dim = table.local_dim();
  std::vector<const float*> next;
  const float* begin = received.data();
  for (const std::int64_t count : numbers) {
    next.push_back(begin);
    begin += count;
  }
  for (const std::int64_t id : ids) {
    const int rank = columns ? 0 : table.rank_of(id);
    for (int r = rank; r <= (columns ? table.world - 1 : rank); ++r) {
      const float*& from = next[static_cast<std::size_t>(r)];
      rows = std::copy_n(from, dim, rows);
      from += dim;
    }
  }
}

}  // namespace

void TableService::look_up_together(const TableShard& table, std::span<const std::int64_t> ids, float* rows,
                                    const WaitContext& wait) {
  const bool columns = table.plan == TablePlan::Column;
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> asks(static_cast<std::size_t>(table.world)), asked(asks.size());
  for (int rank = 0; rank < table.world; ++rank) {
    const std::size_t before = sent.size();
    for (const std::int64_t id : ids)
      if (columns || table.rank_of(id) == rank) sent.push_back(id);
    asks[static_cast<std::size_t>(rank)] = static_cast<std::int64_t>(sent.size() - before);
  }
  communicator_->all_to_all(static_cast<const void*>(asks.data()), asked.data(), 1, DType::Int64,
                            StreamRef::host(), wait);
  std::int64_t all = 0;
  for (const std::int64_t count : asked) all += count;
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(all));
  communicator_->all_to_all(sent.data(), asks, wanted.data(), asked, DType::Int64, StreamRef::host(), wait);
  const std::vector<float> own = own_rows(table, wanted);
  const std::vector<std::int64_t> receives = numbers_by_rank(table, ids);
  std::vector<float> received(static_cast<std::size_t>(std::ssize(ids) * table.dim));
  for (std::int64_t& count : asked) count *= table.local_dim();
  communicator_->all_to_all(own.data(), asked, received.data(), receives, DType::Float32, StreamRef::host(),
                            wait);
  place_rows(table, ids, received, receives, rows);
}

void TableService::look_up(int index, std::span<const std::int64_t> ids, float* rows,
                           const WaitContext& wait) {
  const TableShard& table = tables_[static_cast<std::size_t>(index)];
  for (const std::int64_t id : ids)
    if (id < 0 || id >= table.rows)
      throw InvalidArgument(fmt::format("table '{}': id {} is not in [0, {})", table.name, id, table.rows));
  if (together_) return look_up_together(table, ids, rows, wait);
  Request request{Request::LookUp, index, std::ssize(ids)};
  ask(request, wait);
  std::vector<std::int64_t> copy(ids.begin(), ids.end());
  communicator_->broadcast(copy.data(), request.count, DType::Int64, 0, StreamRef::host(), wait);
  const std::vector<float> own = own_rows(table, ids);
  std::vector<std::int64_t> sends(static_cast<std::size_t>(table.world));
  sends[0] = std::ssize(own);
  const std::vector<std::int64_t> receives = numbers_by_rank(table, ids);
  std::vector<float> received(static_cast<std::size_t>(request.count * table.dim));
  communicator_->all_to_all(own.data(), sends, received.data(), receives, DType::Float32, StreamRef::host(),
                            wait);
  place_rows(table, ids, received, receives, rows);
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
