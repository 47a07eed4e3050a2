#include "ps/server/shard_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "proto/ps.pb.h"
#include "ps/server/stored_values.h"
#include "ps/table_set_proto.h"

namespace braid::ps {
namespace {

constexpr const char* kHeadEntry = "@server";

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

void add_floats(ShardWriter& out, const std::string& name, std::vector<std::int64_t> shape,
                const std::vector<float>& values) {
  out.add({name, DType::Float32, std::move(shape), values.size() * sizeof(float)}, bytes_of(values));
}

proto::PsShardHead head_of(const Snapshot& snapshot, int servers, const std::string& run) {
  proto::PsShardHead head;
  to_proto(snapshot.tables().set(), head.mutable_tables());
  head.set_step(snapshot.step());
  head.set_server(snapshot.tables().server());
  head.set_servers(servers);
  head.set_run(run);
  for (const WorkerMarks& marks : snapshot.marks()) {
    auto* to = head.add_marks();
    to->set_worker(marks.worker);
    to->set_session(marks.session);
    to->set_floor(marks.floor);
    for (const auto& [step, sequences] : marks.taken) {
      auto* taken = to->add_steps();
      taken->set_step(step);
      for (std::uint32_t sequence : sequences) taken->add_sequences(sequence);
    }
  }
  return head;
}

WorkerMarks marks_of(const proto::PsWorkerMarks& in) {
  WorkerMarks marks{in.worker(), in.session(), in.floor(), {}};
  for (const auto& step : in.steps())
    marks.taken[step.step()] = {step.sequences().begin(), step.sequences().end()};
  return marks;
}

struct Shard {
  std::filesystem::path file;
  ShardReader reader;
  proto::PsShardHead head;

  explicit Shard(const std::filesystem::path& path) : file(path), reader(path) {
    const auto bytes = reader.read(kHeadEntry);
    if (!head.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      throw DataLoss(fmt::format("{}: entry '{}' is damaged", path.string(), kHeadEntry));
  }

  template <class T>
  std::vector<T> read(const std::string& name, std::size_t count) const {
    const CheckpointEntry* entry = reader.find(name);
    if (entry == nullptr) return {};
    if (entry->bytes != count * sizeof(T))
      throw DataLoss(fmt::format("{}: entry '{}' has {} bytes, expected {}", file.string(), name,
                                 entry->bytes, count * sizeof(T)));
    std::vector<T> values(count);
    reader.read(name, std::as_writable_bytes(std::span<T>(values)));
    return values;
  }
};

/// All shards of the checkpoint, by server. All must be there, and of one step and run.
std::vector<std::unique_ptr<Shard>> open_shards(const std::filesystem::path& directory) {
  std::vector<std::unique_ptr<Shard>> shards;
  shards.push_back(std::make_unique<Shard>(directory / shard_file_name(0)));
  const int servers = shards[0]->head.servers();
  for (int server = 1; server < servers; ++server) {
    const auto file = directory / shard_file_name(server);
    if (!std::filesystem::exists(file))
      throw InvalidArgument(fmt::format("{}: this shard of {} servers is missing", file.string(), servers));
    shards.push_back(std::make_unique<Shard>(file));
    if (shards.back()->head.step() != shards[0]->head.step() || shards.back()->head.servers() != servers)
      throw InvalidArgument(fmt::format("{}: of another checkpoint than {} (steps {} and {})", file.string(),
                                        shards[0]->file.string(), shards.back()->head.step(),
                                        shards[0]->head.step()));
    if (shards.back()->head.run() != shards[0]->head.run())
      throw InvalidArgument(fmt::format("{}: of another run than {} ('{}' and '{}')", file.string(),
                                        shards[0]->file.string(), shards.back()->head.run(),
                                        shards[0]->head.run()));
  }
  return shards;
}

/// Run `run` of a dense table's range on the reading server, put together from the ranges of the writing
/// servers. Empty when no shard has it.
std::vector<float> read_dense_run(const std::vector<std::unique_ptr<Shard>>& shards, const ShardPlan& written,
                                  int written_table, const std::string& entry, const DenseRange& wanted) {
  std::vector<float> out;
  for (const DenseRange& range : written.ranges(written_table)) {
    const std::int64_t begin = std::max(range.begin, wanted.begin);
    const std::int64_t end = std::min(range.begin + range.count, wanted.begin + wanted.count);
    if (begin >= end) continue;
    const auto values = shards[static_cast<std::size_t>(range.server)]->read<float>(
        fmt::format("{}@{}", entry, range.begin), static_cast<std::size_t>(range.count));
    if (values.empty()) return {};
    out.resize(static_cast<std::size_t>(wanted.count));
    std::copy(values.begin() + (begin - range.begin), values.begin() + (end - range.begin),
              out.begin() + (begin - wanted.begin));
  }
  return out;
}

void read_dense(const std::vector<std::unique_ptr<Shard>>& shards, const TableSet& written_set,
                const ShardPlan& written, ServerTables& tables) {
  for (std::uint32_t table = 0; table < tables.dense_tables(); ++table) {
    const DenseTableSpec& spec = tables.set().dense[table];
    const auto slots = optimizer_slots(tables.set().optimizer_of(spec.group));
    const auto named = [&](const std::string& name) {
      return std::find_if(written_set.dense.begin(), written_set.dense.end(),
                          [&](const DenseTableSpec& other) { return !name.empty() && other.name == name; });
    };
    auto found = named(spec.name);
    const bool is_former = found == written_set.dense.end();
    if (is_former) found = named(spec.former_name);
    if (found == written_set.dense.end())
      throw InvalidArgument(
          fmt::format("{}: the checkpoint has no table '{}'", shards[0]->file.string(), spec.name));
    if (is_former ? found->elements < spec.elements : found->elements != spec.elements)
      throw InvalidArgument(fmt::format("{}: table '{}' has {} elements, the job's has {}",
                                        shards[0]->file.string(), spec.name, found->elements, spec.elements));
    DenseTable* dense = tables.dense(table);
    if (dense == nullptr) continue;
    const int written_table = static_cast<int>(found - written_set.dense.begin());
    const DenseRange wanted = tables.range(table);
    const std::string& name = found->name;
    const auto values = read_dense_run(shards, written, written_table, name, wanted);
    if (values.empty())
      throw DataLoss(fmt::format("{}: no values of table '{}'", shards[0]->file.string(), spec.name));
    for (std::int64_t block = 0; block < dense->blocks(); ++block) dense->assign(block, values.data());
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const auto slot =
          read_dense_run(shards, written, written_table, fmt::format("{}/{}", name, slots[k].name), wanted);
      for (std::int64_t block = 0; !slot.empty() && block < dense->blocks(); ++block)
        dense->assign_slot(block, static_cast<int>(k), slot.data());
    }
  }
}

void read_sparse(const Shard& shard, ServerTables& tables) {
  for (std::uint32_t table = 0; table < tables.set().sparse.size(); ++table) {
    const SparseTableSpec& spec = tables.set().sparse[table];
    const auto slots = optimizer_slots(tables.set().optimizer_of(spec.group));
    std::string name = spec.name;
    const CheckpointEntry* keys = shard.reader.find(name + "@keys");
    if (keys == nullptr && !spec.former_name.empty()) {
      name = spec.former_name;
      keys = shard.reader.find(name + "@keys");
    }
    if (keys == nullptr)
      throw InvalidArgument(
          fmt::format("{}: the checkpoint has no table '{}'", shard.file.string(), spec.name));
    const auto count = static_cast<std::size_t>(keys->bytes / sizeof(std::int64_t));
    const auto floats = count * static_cast<std::size_t>(spec.dim);
    SparseRows rows;
    rows.keys = shard.read<std::int64_t>(name + "@keys", count);
    rows.last_use = shard.read<std::uint64_t>(name + "@last_use", count);
    rows.values = shard.read<float>(name + "@rows", floats);
    const auto of_slot =
        count * static_cast<std::size_t>(slot_width(tables.set().optimizer_of(spec.group), spec.dim));
    for (const SlotSpec& slot : slots)
      rows.slots.push_back(shard.read<float>(fmt::format("{}/{}@rows", name, slot.name), of_slot));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t hash = key_hash(rows.keys[i]);
      if (server_of_hash(hash, tables.plan().servers()) == tables.server())
        tables.sparse(table, thread_of_hash(hash, tables.threads())).restore_row(rows, i);
    }
  }
}

/// By their own names, or by those that they had.
bool has_all_tables(const TableSet& written, const TableSet& wanted) {
  const auto has = [](const auto& all, const auto& table) {
    return std::ranges::any_of(all, [&](const auto& other) {
      return other.name == table.name || (!table.former_name.empty() && other.name == table.former_name);
    });
  };
  return std::ranges::all_of(wanted.dense, [&](const auto& table) { return has(written.dense, table); }) &&
         std::ranges::all_of(wanted.sparse, [&](const auto& table) { return has(written.sparse, table); });
}

/// What the reading server has of the pushes. With as many servers as before it is what its own shard has;
/// with another number a push counts as taken when every shard has it, so that no part of one is lost when it
/// is sent again.
std::vector<WorkerMarks> marks_for(const ServerTables& tables,
                                   const std::vector<std::unique_ptr<Shard>>& shards) {
  std::vector<WorkerMarks> own;
  if (static_cast<int>(shards.size()) == tables.plan().servers()) {
    for (const auto& marks : shards[static_cast<std::size_t>(tables.server())]->head.marks())
      own.push_back(marks_of(marks));
    return own;
  }
  std::vector<WorkerMarks> common;
  for (const auto& marks : shards[0]->head.marks()) common.push_back(marks_of(marks));
  for (std::size_t i = 1; i < shards.size(); ++i) {
    std::map<std::pair<std::int32_t, std::uint64_t>, WorkerMarks> other;
    for (const auto& marks : shards[i]->head.marks())
      other[{marks.worker(), marks.session()}] = marks_of(marks);
    for (WorkerMarks& marks : common) {
      const WorkerMarks& there = other[{marks.worker, marks.session}];
      marks.floor = std::min(marks.floor, there.floor);
      for (auto& [step, sequences] : marks.taken) {
        const auto taken = there.taken.find(step);
        std::erase_if(sequences, [&](std::uint32_t s) {
          return taken == there.taken.end() || !taken->second.contains(s);
        });
      }
    }
  }
  return common;
}

}  // namespace

std::string shard_file_name(int server) { return fmt::format("ps-{}.shard", server); }

ShardInfo write_shard(const Snapshot& snapshot, int servers, const std::filesystem::path& directory,
                      const std::string& run) {
  const ServerTables& tables = snapshot.tables();
  ShardWriter out(directory / shard_file_name(tables.server()));
  const std::string head = head_of(snapshot, servers, run).SerializeAsString();
  out.add({kHeadEntry, DType::UInt8, {static_cast<std::int64_t>(head.size())}, head.size()},
          std::as_bytes(std::span<const char>(head)));
  for (std::uint32_t table = 0; table < tables.dense_tables(); ++table) {
    const DenseRange range = tables.range(table);
    if (range.count == 0) continue;
    const std::string& name = tables.name(tables.dense_id(table));
    const auto slots = optimizer_slots(tables.optimizer_of(tables.dense_id(table)));
    add_floats(out, fmt::format("{}@{}", name, range.begin), {range.count}, snapshot.dense(table, 0));
    for (std::size_t k = 0; k < slots.size(); ++k)
      add_floats(out, fmt::format("{}/{}@{}", name, slots[k].name, range.begin), {range.count},
                 snapshot.dense(table, static_cast<int>(k) + 1));
  }
  for (std::uint32_t table = 0; table < tables.set().sparse.size(); ++table) {
    const SparseTableSpec& spec = tables.set().sparse[table];
    const auto slots = optimizer_slots(tables.set().optimizer_of(spec.group));
    const SparseRows rows = snapshot.sparse(table);
    const auto count = static_cast<std::int64_t>(rows.keys.size());
    out.add({spec.name + "@keys", DType::Int64, {count}, rows.keys.size() * sizeof(std::int64_t)},
            bytes_of(rows.keys));
    out.add({spec.name + "@last_use", DType::UInt64, {count}, rows.last_use.size() * sizeof(std::uint64_t)},
            bytes_of(rows.last_use));
    add_floats(out, spec.name + "@rows", {count, spec.dim}, rows.values);
    std::vector<std::int64_t> of_slot{count, spec.dim};
    if (tables.set().optimizer_of(spec.group).row_wise) of_slot.pop_back();
    for (std::size_t k = 0; k < slots.size(); ++k)
      add_floats(out, fmt::format("{}/{}@rows", spec.name, slots[k].name), of_slot, rows.slots[k]);
  }
  return out.finish();
}

RestoredState read_shards(const std::filesystem::path& directory, ServerTables& tables) {
  if (!std::filesystem::exists(directory / shard_file_name(0))) {
    if (std::filesystem::exists(directory / "MANIFEST")) return {read_values(directory, tables), {}};
    throw InvalidArgument(fmt::format("{}: no shards of parameter servers here", directory.string()));
  }
  const auto shards = open_shards(directory);
  const TableSet written_set = from_proto(shards[0]->head.tables());
  // Of PS_ALLREDUCE workers have what servers do not.
  if (!has_all_tables(written_set, tables.set()) && std::filesystem::exists(directory / "MANIFEST"))
    return {read_values(directory, tables), {}};
  const ShardPlan written(written_set, shards[0]->head.servers());
  read_dense(shards, written_set, written, tables);
  for (const auto& shard : shards) read_sparse(*shard, tables);
  return {shards[0]->head.step(), marks_for(tables, shards)};
}

}  // namespace braid::ps
