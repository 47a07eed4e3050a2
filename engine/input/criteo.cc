// The Criteo layout (Kaggle Display Advertising Challenge): label, I1..I13 integers, C1..C26 hexadecimal
// hashes; empty means missing. Integers become log(1 + max(x, 0)), missing ones 0. A category is taken modulo
// `buckets` after mixing in its column; missing ones share bucket 0 of their column. Spreadsheets turn some
// hashes into numbers such as 1E+05: what is not hexadecimal is hashed as text.
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

constexpr std::size_t kIntegers = 13, kCategories = 26, kFields = 1 + kIntegers + kCategories;

std::int64_t bucket_of(std::string_view field, std::size_t column, std::int64_t buckets) {
  if (field.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  if (error != std::errc() || end != field.data() + field.size()) value = stable_hash(field);
  value = (value ^ (column + 1) * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  value ^= value >> 31;
  return buckets == 1 ? 0 : 1 + static_cast<std::int64_t>(value % static_cast<std::uint64_t>(buckets - 1));
}

bool parse_float(std::string_view field, float& value) {
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size() && std::isfinite(value);
}

}  // namespace

std::shared_ptr<const Table> read_criteo(const std::vector<std::filesystem::path>& files,
                                         const CriteoOptions& options) {
  if (options.buckets < 1) throw InvalidArgument("criteo: hash buckets must be at least 1");
  std::vector<float> dense, label;
  std::vector<std::int64_t> sparse;
  BadRecords bad(options.max_bad_records);
  std::vector<std::string_view> fields;
  std::string unquoted;
  std::array<float, kIntegers> integers{};
  for (const auto& file : files) {
    const std::string text = read_text_file(file);
    const char separator = text.substr(0, text.find('\n')).find('\t') != std::string::npos ? '\t' : ',';
    for_each_line(text, [&](std::string_view line, std::int64_t number) {
      if (line.empty() || (number == 1 && line.starts_with("label"))) return;
      split_fields(line, separator, fields, unquoted);
      if (fields.size() != kFields)
        return bad.add(
            file, number,
            "expected " + std::to_string(kFields) + " fields, got " + std::to_string(fields.size()));
      if (fields[0] != "0" && fields[0] != "1")
        return bad.add(file, number, "label '" + std::string(fields[0]) + "' is not 0 or 1");
      for (std::size_t i = 0; i < kIntegers; ++i) {
        float value = 0;
        if (!fields[1 + i].empty() && !parse_float(fields[1 + i], value))
          return bad.add(
              file, number,
              "I" + std::to_string(i + 1) + " '" + std::string(fields[1 + i]) + "' is not a number");
        integers[i] = std::log1p(std::max(value, 0.0F));
      }
      label.push_back(fields[0] == "1" ? 1.0F : 0.0F);
      dense.insert(dense.end(), integers.begin(), integers.end());
      for (std::size_t c = 0; c < kCategories; ++c)
        sparse.push_back(bucket_of(fields[1 + kIntegers + c], c, options.buckets));
    });
  }
  auto table = std::make_shared<Table>();
  table->rows = static_cast<std::int64_t>(label.size());
  table->skipped = bad.count();
  table->columns.push_back({"dense", Tensor::from<float>(Shape{table->rows, kIntegers}, dense)});
  table->columns.push_back({"sparse", Tensor::from<std::int64_t>(Shape{table->rows, kCategories}, sparse)});
  table->columns.push_back({"label", Tensor::from<float>(Shape{table->rows}, label)});
  return table;
}

}  // namespace braid
