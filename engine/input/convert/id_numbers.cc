#include "engine/input/convert/id_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <queue>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/convert/item_writer.h"

namespace braid {
namespace {

constexpr std::size_t kValuesAtOnce = std::size_t{1} << 18;  // values that are read, or written, at once
constexpr int kMostParts = 1024;

std::uint32_t hash(std::uint32_t value) {
  std::uint64_t h = (value + 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  h ^= h >> 31;
  return static_cast<std::uint32_t>((h * 0x94D049BB133111EBULL) >> 32);
}

/// Which of the parts a value belongs to: by bits that its place in a table does not use.
int part_of(std::uint32_t value, int parts) {
  return static_cast<int>((hash(value ^ 0x5BD1E995U) >> 8) % static_cast<std::uint32_t>(parts));
}

/// Calls visit(values of a chunk, their first place in the file) for all of a file.
template <class T, class Visit>
void for_each_chunk(const std::filesystem::path& path, const Visit& visit) {
  const File file = File::open(path);
  file.advise_sequential();
  const std::uint64_t count = file.size() / sizeof(T);
  std::vector<T> chunk;
  for (std::uint64_t at = 0; at < count; at += chunk.size()) {
    chunk.resize(std::min<std::uint64_t>(kValuesAtOnce, count - at));
    file.read_at(at * sizeof(T), std::as_writable_bytes(std::span(chunk)));
    visit(std::span<T>(chunk), at);
  }
}

/// Items of a file of ItemWriter, from front to back.
template <class T>
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : file_(File::open(path)), left_(file_.size() / sizeof(T)) {}
  const T* peek() {
    if (at_ < items_.size()) return &items_[at_];
    if (left_ == 0) return nullptr;
    constexpr std::uint64_t kItems = 4096;
    items_.resize(std::min(kItems, left_));
    file_.read_at(offset_, std::as_writable_bytes(std::span(items_)));
    offset_ += items_.size() * sizeof(T);
    left_ -= items_.size();
    at_ = 0;
    return &items_[at_];
  }
  void pop() { ++at_; }

 private:
  const File file_;
  std::uint64_t left_, offset_ = 0;
  std::vector<T> items_;
  std::size_t at_ = 0;
};

struct First {              // of a value
  std::uint64_t place = 0;  // over all files
  std::uint64_t value = 0;
};
struct Numbered {
  std::uint32_t value = 0, number = 0;
};

class ColumnInParts {
 public:
  ColumnInParts(const NumberColumnOptions& options, int parts)
      : options_(options), parts_(parts), table_(options.memory_bytes) {}
  ~ColumnInParts() {
    std::error_code ignored;
    for (int part = 0; part < parts_; ++part)
      for (const char* what : {"first", "numbers"}) std::filesystem::remove(scratch(what, part), ignored);
  }
  ColumnInParts(const ColumnInParts&) = delete;
  ColumnInParts& operator=(const ColumnInParts&) = delete;

  /// False: a part does not fit.
  bool run(std::uint64_t& distinct) {
    for (int part = 0; part < parts_; ++part)
      if (!find_firsts(part)) return false;
    distinct = number();
    for (int part = 0; part < parts_; ++part) write_ids(part);
    return true;
  }

 private:
  std::filesystem::path scratch(const char* what, int part) const {
    return fmt::format("{}.{}.{}", options_.scratch.string(), what, part);
  }

  bool find_firsts(int part) {
    table_.clear();
    ItemWriter<First> firsts(scratch("first", part), kValuesAtOnce);
    std::uint64_t place = 0;
    bool fits = true;
    for (const std::filesystem::path& file : options_.values)
      for_each_chunk<std::uint32_t>(file, [&](std::span<std::uint32_t> values, std::uint64_t) {
        for (const std::uint32_t value : values) {
          const std::uint64_t here = place++;
          if (!fits || part_of(value, parts_) != part) continue;
          const std::uint64_t before = table_.size();
          fits = table_.number_of(value, 1).has_value();
          if (table_.size() > before) firsts.add({here, value});
        }
      });
    firsts.finish();
    return fits;
  }

  /// All values by their first places. Result: how many.
  std::uint64_t number() {
    std::vector<std::unique_ptr<Reader<First>>> firsts;
    std::vector<std::unique_ptr<ItemWriter<Numbered>>> numbers;
    using Next = std::pair<std::uint64_t, int>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    for (int part = 0; part < parts_; ++part) {
      firsts.push_back(std::make_unique<Reader<First>>(scratch("first", part)));
      numbers.push_back(std::make_unique<ItemWriter<Numbered>>(scratch("numbers", part), kValuesAtOnce));
      if (const First* const first = firsts.back()->peek()) next.emplace(first->place, part);
    }
    std::uint64_t count = 0;
    for (; !next.empty(); ++count) {
      const int part = next.top().second;
      next.pop();
      Reader<First>& its = *firsts[static_cast<std::size_t>(part)];
      numbers[static_cast<std::size_t>(part)]->add(
          {static_cast<std::uint32_t>(its.peek()->value), static_cast<std::uint32_t>(kFirstNumber + count)});
      its.pop();
      if (const First* const first = its.peek()) next.emplace(first->place, part);
    }
    for (const auto& its : numbers) its->finish();
    return count;
  }

  void write_ids(int part) {
    table_.clear();
    for_each_chunk<Numbered>(scratch("numbers", part), [&](std::span<Numbered> all, std::uint64_t) {
      for (const Numbered& each : all) table_.number_of(each.value, each.number);
    });
    for (std::size_t f = 0; f < options_.values.size(); ++f) {
      if (part == 0) File::create(options_.ids[f]).close();
      std::fstream out(options_.ids[f], std::ios::in | std::ios::out | std::ios::binary);
      std::vector<std::int32_t> ids;
      for_each_chunk<std::uint32_t>(
          options_.values[f], [&](std::span<std::uint32_t> values, std::uint64_t at) {
            ids.assign(values.size(), 0);
            const auto bytes = static_cast<std::streamsize>(ids.size() * sizeof(std::int32_t));
            const auto begin = static_cast<std::streamoff>(at * sizeof(std::int32_t));
            if (part > 0) out.seekg(begin).read(reinterpret_cast<char*>(ids.data()), bytes);
            for (std::size_t i = 0; i < values.size(); ++i)
              if (part_of(values[i], parts_) == part)
                ids[i] = static_cast<std::int32_t>(*table_.number_of(values[i], 0) % options_.rows);
            out.seekp(begin).write(reinterpret_cast<const char*>(ids.data()), bytes);
          });
      out.close();
      if (!out) throw Unavailable("cannot write '" + options_.ids[f].string() + "'");
    }
  }

  const NumberColumnOptions& options_;
  const int parts_;
  NumberTable table_;
};

/// Numbers and ids in one pass. False: the values do not fit.
bool number_at_once(const NumberColumnOptions& options, std::uint64_t& distinct) {
  NumberTable table(options.memory_bytes);
  bool fits = true;
  for (std::size_t f = 0; f < options.values.size() && fits; ++f) {
    ItemWriter<std::int32_t> ids(options.ids[f], kValuesAtOnce);
    for_each_chunk<std::uint32_t>(options.values[f], [&](std::span<std::uint32_t> values, std::uint64_t) {
      for (std::size_t i = 0; i < values.size() && fits; ++i) {
        const auto number =
            table.number_of(values[i], static_cast<std::uint32_t>(kFirstNumber + table.size()));
        fits = number.has_value();
        if (fits) ids.add(static_cast<std::int32_t>(*number % options.rows));
      }
    });
    ids.finish();
  }
  distinct = table.size();
  return fits;
}

}  // namespace

NumberTable::Slot& NumberTable::slot_of(std::uint32_t value) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash(value) & mask;
  while (slots_[at].number != 0 && slots_[at].value != value) at = (at + 1) & mask;
  return slots_[at];
}

std::optional<std::uint32_t> NumberTable::number_of(std::uint32_t value, std::uint32_t next) {
  Slot* slot = &slot_of(value);
  if (slot->number != 0) return slot->number;
  if (size_ * 3 >= slots_.size() * 2) {
    if (!grow()) return std::nullopt;
    slot = &slot_of(value);
  }
  *slot = {value, next};
  ++size_;
  return next;
}

bool NumberTable::grow() {
  const std::size_t larger = 2 * slots_.size();
  // While it grows both are there.
  if ((slots_.size() + larger) * sizeof(Slot) > memory_bytes_) return false;
  std::vector<Slot> old(larger);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.number != 0) slot_of(slot.value) = slot;
  return true;
}

void NumberTable::clear() {
  std::ranges::fill(slots_, Slot{});
  size_ = 0;
}

NumberedColumn number_column(const NumberColumnOptions& options) {
  NumberedColumn column;
  if (number_at_once(options, column.distinct)) return column;
  for (column.parts = 2; column.parts <= kMostParts; column.parts *= 2)
    if (ColumnInParts(options, column.parts).run(column.distinct)) return column;
  throw InvalidArgument(fmt::format("{} bytes of memory are too few to number a column in {} parts",
                                    options.memory_bytes, kMostParts));
}

}  // namespace braid
