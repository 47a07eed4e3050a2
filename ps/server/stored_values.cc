#include "ps/server/stored_values.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/checkpoint_values.h"
#include "base/error.h"
#include "base/table_row.h"

namespace braid::ps {
namespace {

class StoredValues {
 public:
  StoredValues(const std::filesystem::path& directory, ServerTables& tables)
      : values_(read_checkpoint(directory)), tables_(tables) {}

  std::uint64_t read() {
    for (std::uint32_t table = 0; table < tables_.dense_tables(); ++table) dense(table);
    for (std::uint32_t table = 0; table < tables_.set().sparse.size(); ++table) sparse(table);
    return values_.meta().step;
  }

 private:
  bool has(const std::string& name) const { return values_.values().contains(name); }

  std::vector<float> floats(const std::string& name) const {
    if (!has(name)) return {};
    const std::vector<std::byte> bytes = values_.read(name);
    std::vector<float> out(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(fmt::format("{}: {}", values_.directory().string(), what));
  }

  void dense(std::uint32_t table) {
    DenseTable* const to = tables_.dense(table);
    const DenseTableSpec& spec = tables_.set().dense[table];
    const bool is_former = !has(spec.name) && !spec.former_name.empty();
    const std::string& name = is_former ? spec.former_name : spec.name;
    if (!has(name)) refuse(fmt::format("the checkpoint has no table '{}'", spec.name));
    if (to == nullptr) return;
    const DenseRange range = tables_.range(table);
    const auto part = [&](const std::string& entry) {
      const std::vector<float> all = floats(entry);
      if (all.empty()) return all;
      const auto elements = static_cast<std::size_t>(spec.elements);
      if (is_former ? all.size() < elements : all.size() != elements)
        refuse(fmt::format("'{}' has {} elements, the job's has {}", entry, all.size(), spec.elements));
      return std::vector<float>(all.begin() + range.begin, all.begin() + range.begin + range.count);
    };
    const std::vector<float> values = part(name);
    for (std::int64_t block = 0; block < to->blocks(); ++block) to->assign(block, values.data());
    const auto slots = optimizer_slots(tables_.set().optimizer_of(spec.group));
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const std::vector<float> slot = part(fmt::format("{}/{}", name, slots[k].name));
      for (std::int64_t block = 0; !slot.empty() && block < to->blocks(); ++block)
        to->assign_slot(block, static_cast<int>(k), slot.data());
    }
  }

  void sparse(std::uint32_t table) {
    const SparseTableSpec& spec = tables_.set().sparse[table];
    std::string name = spec.name;
    if (!has(name) && !has(name + "@keys") && !spec.former_name.empty()) name = spec.former_name;
    const bool by_rows = has(name + "@keys");
    if (!by_rows && !has(name)) refuse(fmt::format("the checkpoint has no table '{}'", spec.name));
    const std::string end = by_rows ? "@rows" : "";
    SparseRows rows;
    rows.values = floats(name + end);
    const auto count = rows.values.size() / static_cast<std::size_t>(spec.dim);
    rows.keys.resize(count);
    if (by_rows) {
      const std::vector<std::byte> keys = values_.read(name + "@keys");
      if (keys.size() != count * sizeof(std::int64_t) ||
          rows.values.size() % static_cast<std::size_t>(spec.dim) != 0)
        refuse(fmt::format("rows of '{}' are not {} wide", name, spec.dim));
      if (!keys.empty()) std::memcpy(rows.keys.data(), keys.data(), keys.size());
    } else {
      std::iota(rows.keys.begin(), rows.keys.end(), std::int64_t{0});
    }
    rows.last_use.assign(count, values_.meta().step);
    for (const SlotSpec& slot : optimizer_slots(tables_.set().optimizer_of(spec.group))) {
      rows.slots.push_back(floats(fmt::format("{}/{}{}", name, slot.name, end)));
      const auto expected =
          count * static_cast<std::size_t>(slot_width(tables_.set().optimizer_of(spec.group), spec.dim));
      if (!rows.slots.back().empty() && rows.slots.back().size() != expected)
        refuse(fmt::format("'{}/{}' has {} elements, expected {} of a table of {}", name, slot.name,
                           rows.slots.back().size(), expected, rows.values.size()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t hash = key_hash(rows.keys[i]);
      if (server_of_hash(hash, tables_.plan().servers()) == tables_.server())
        tables_.sparse(table, thread_of_hash(hash, tables_.threads())).restore_row(rows, i);
    }
  }

  const CheckpointValues values_;
  ServerTables& tables_;
};

}  // namespace

std::uint64_t read_values(const std::filesystem::path& directory, ServerTables& tables) {
  return StoredValues(directory, tables).read();
}

}  // namespace braid::ps
