#include "engine/input/convert/criteo_days.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/convert/bag_tables.h"
#include "engine/input/convert/id_numbers.h"
#include "engine/input/convert/item_writer.h"
#include "engine/input/files/data_file.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/line_reader.h"

namespace braid {
namespace {

using Path = std::filesystem::path;

/// What a row has beside its categories.
struct Front {
  std::int32_t label = 0;
  float dense[kMlperfDense] = {};
};

constexpr std::size_t kItemsAtOnce = 65536;  // items that are written at once

template <class T>
void read_items(const File& file, std::int64_t first, std::span<T> to) {
  file.read_at(static_cast<std::uint64_t>(first) * sizeof(T), std::as_writable_bytes(to));
}

bool is_there(const Path& path) {
  std::error_code missing;
  return std::filesystem::is_regular_file(path, missing);
}
void remove_file(const Path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

/// A line's numbers and categories. Result: what keeps it from being a row; empty when nothing does.
std::string parse_line(const std::vector<std::string_view>& fields, Front& front,
                       std::span<std::uint32_t> categories) {
  if (fields.size() != kCriteoFields)
    return fmt::format("expected {} fields, got {}", kCriteoFields, fields.size());
  const auto parse = [](std::string_view text, auto& value, int base) {
    value = 0;
    if (text.empty()) return true;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return read.ec == std::errc() && read.ptr == text.data() + text.size();
  };
  if (!parse(fields[0], front.label, 10) || fields[0].empty() || front.label < 0 || front.label > 1)
    return fmt::format("label '{}' is not 0 or 1", fields[0]);
  for (std::size_t i = 0; i < kCriteoIntegers; ++i) {
    std::int32_t number = 0;
    if (!parse(fields[1 + i], number, 10) || number < -2)
      return fmt::format("{} '{}' is no integer of -2 or more", criteo_name(1 + i), fields[1 + i]);
    front.dense[i] = static_cast<float>(std::log(static_cast<double>(number) + 3));
  }
  for (std::size_t c = 0; c < kCriteoCategories; ++c)
    if (!parse(fields[1 + kCriteoIntegers + c], categories[c], 16))
      return fmt::format("{} '{}' is no hexadecimal number of up to 8 digits",
                         criteo_name(1 + kCriteoIntegers + c), fields[1 + kCriteoIntegers + c]);
  return {};
}

class Conversion {
 public:
  explicit Conversion(const CriteoDaysOptions& options) : options_(options), bad_(options.max_bad_records) {
    for (int c = 0; c < kMlperfColumns; ++c) tables_.push_back(mlperf_rows(c, options.max_rows));
  }

  CriteoDaysResult run() {
    begin();
    for (std::size_t day = 0; day < options_.days.size(); ++day) rows_.push_back(split(day));
    for (std::size_t column = 0; column < tables_.size(); ++column) number(column);
    const std::vector<Path> bags =
        make_bag_tables(options_.work, tables_, kMlperfHots, [&](std::size_t column) {
          tell(fmt::format("bags of column {}: {} rows of {} ids", column, tables_[column],
                           kMlperfHots[column]));
        });
    std::vector<BagTable> tables;
    for (std::size_t c = 0; c < bags.size(); ++c)
      tables.emplace_back(bags[c], tables_[c], kMlperfHots[c] - 1);
    for (std::size_t day = 0; day < options_.days.size(); ++day) write_day(day, tables);
    tables.clear();
    remove_tree(options_.work);
    return std::move(result_);
  }

 private:
  void tell(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }
  Path work(const std::string& name) const { return options_.work / name; }
  std::string name_of(std::size_t day) const {
    const Path name = options_.days[day].filename();
    return (name.extension() == ".gz" || name.extension() == ".zst" ? name.stem() : name).string();
  }
  Path values_of(std::size_t day, std::size_t column) const {
    return work(fmt::format("day_{}.values_{:02}", day, column));
  }
  Path ids_of(std::size_t day, std::size_t column) const {
    return work(fmt::format("day_{}.ids_{:02}", day, column));
  }
  Path front_of(std::size_t day) const { return work(fmt::format("day_{}.front", day)); }

  /// What the work that is there belongs to.
  void begin() {
    if (options_.days.empty()) throw InvalidArgument("there are no days to convert");
    std::set<std::string> names;
    std::string text = fmt::format("braid-criteo-days 1\nmax_rows {} max_bad_records {}\n", options_.max_rows,
                                   options_.max_bad_records);
    for (std::size_t day = 0; day < options_.days.size(); ++day) {
      if (!names.insert(name_of(day)).second)
        throw InvalidArgument("two days are called '" + name_of(day) + "': their rows would be one file");
      const FileStamp stamp = stamp_of(options_.days[day]);
      text += fmt::format("{} {} {}\n", stamp.size, stamp.changed_ns, options_.days[day].string());
    }
    make_directories(options_.out);
    make_directories(options_.work);
    const Path file = work("days");
    if (!is_there(file)) return write_file_atomically(file, text);
    if (read_file(file) != text)
      throw InvalidArgument(
          fmt::format("'{}' has work of other days or settings: remove it, or name another "
                      "directory",
                      options_.work.string()));
  }

  /// The columns of a day. Result: its rows.
  std::int64_t split(std::size_t day) {
    const Path done = work(fmt::format("day_{}.split", day));
    std::int64_t rows = 0, bad = 0;
    if (is_there(done)) {
      std::istringstream(read_file(done)) >> rows >> bad;
      result_.bad_records += bad;
      return rows;
    }
    const std::int64_t bad_before = bad_.count();
    FieldReader lines(open_bytes(options_.days[day]), '\t');
    ItemWriter<Front> fronts(front_of(day), kItemsAtOnce);
    std::vector<std::unique_ptr<ItemWriter<std::uint32_t>>> columns;
    for (std::size_t c = 0; c < kCriteoCategories; ++c)
      columns.push_back(std::make_unique<ItemWriter<std::uint32_t>>(values_of(day, c), kItemsAtOnce));
    Front front;
    std::uint32_t categories[kCriteoCategories];
    while (lines.next()) {
      const std::string problem =
          lines.problem().empty() ? parse_line(lines.fields(), front, categories) : lines.problem();
      if (!problem.empty()) {
        bad_.add(options_.days[day], lines.line(), problem);
        continue;
      }
      fronts.add(front);
      for (std::size_t c = 0; c < kCriteoCategories; ++c) columns[c]->add(categories[c]);
      ++rows;
    }
    fronts.finish();
    for (const auto& column : columns) column->finish();
    bad = bad_.count() - bad_before;
    result_.bad_records += bad;
    write_file_atomically(done, fmt::format("{} {}\n", rows, bad));
    tell(fmt::format("{}: {} rows", options_.days[day].string(), rows));
    return rows;
  }

  void number(std::size_t column) {
    const Path done = work(fmt::format("column_{:02}.numbered", column));
    std::uint64_t distinct = 0;
    if (is_there(done)) {
      std::istringstream(read_file(done)) >> distinct;
    } else {
      NumberColumnOptions options;
      options.scratch = work(fmt::format("column_{:02}", column));
      options.rows = tables_[column];
      options.memory_bytes = options_.memory_bytes;
      for (std::size_t day = 0; day < options_.days.size(); ++day) {
        options.values.push_back(values_of(day, column));
        options.ids.push_back(ids_of(day, column));
      }
      const NumberedColumn numbered = number_column(options);
      distinct = numbered.distinct;
      write_file_atomically(done, fmt::format("{}\n", distinct));
      tell(fmt::format("column {}: {} different values, in {} part{}", column, distinct, numbered.parts,
                       numbered.parts == 1 ? "" : "s"));
    }
    for (std::size_t day = 0; day < options_.days.size(); ++day) remove_file(values_of(day, column));
    result_.distinct.push_back(distinct);
  }

  void write_day(std::size_t day, const std::vector<BagTable>& tables) {
    const bool is_last = day + 1 == options_.days.size() && day > 0;
    const std::int64_t rows = rows_[day];
    if (!is_last) {
      write_rows(day, 0, rows, options_.out / (name_of(day) + ".bin"), tables, result_.train);
      result_.train_rows += rows;
      return;
    }
    const std::int64_t half = (rows + 1) / 2;
    write_rows(day, 0, half, options_.out / "val_data.bin", tables, result_.validation);
    write_rows(day, half, rows - half, options_.out / "test_data.bin", tables, result_.test);
    result_.validation_rows = half;
    result_.test_rows = rows - half;
  }

  void write_rows(std::size_t day, std::int64_t first, std::int64_t count, const Path& file,
                  const std::vector<BagTable>& tables, std::vector<Path>& written) const {
    written.push_back(file);
    const Path done = work(file.filename().string() + ".written");
    if (is_there(done) && is_there(file)) return;
    const Path part = file.string() + ".part";
    File out = File::create(part);
    const File fronts = File::open(front_of(day));
    std::vector<File> columns;
    for (std::size_t c = 0; c < tables.size(); ++c) columns.push_back(File::open(ids_of(day, c)));
    constexpr std::int64_t kRows = 8192;
    std::vector<Front> front;
    std::vector<std::int32_t> ids;
    std::vector<MlperfRow> block;
    for (std::int64_t at = first; at < first + count; at += std::ssize(block)) {
      const auto n = static_cast<std::size_t>(std::min(kRows, first + count - at));
      front.resize(n);
      ids.resize(n);
      block.resize(n);
      read_items(fronts, at, std::span(front));
      for (std::size_t r = 0; r < n; ++r) {
        block[r].label = front[r].label;
        std::copy_n(front[r].dense, kMlperfDense, block[r].dense);
      }
      std::size_t place = 0;
      for (std::size_t c = 0; c < tables.size(); place += static_cast<std::size_t>(kMlperfHots[c++])) {
        read_items(columns[c], at, std::span(ids));
        for (std::size_t r = 0; r < n; ++r) {
          block[r].ids[place] = ids[r];
          std::ranges::copy(tables[c].row(ids[r]), block[r].ids + place + 1);
        }
      }
      out.write(std::as_bytes(std::span(block)));
    }
    out.close();
    rename_path(part, file);
    write_file_atomically(done, "");
    tell(fmt::format("{}: {} rows", file.string(), count));
  }

  const CriteoDaysOptions& options_;
  BadRecords bad_;
  std::vector<std::int64_t> tables_;  // rows of each
  std::vector<std::int64_t> rows_;    // of each day
  CriteoDaysResult result_;
};

}  // namespace

CriteoDaysResult convert_criteo_days(const CriteoDaysOptions& options) { return Conversion(options).run(); }

}  // namespace braid
