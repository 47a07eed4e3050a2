// `braid data show --json`. Written by hand but for texts: sums of int64s need more digits than the library's
// integers have. What JSON has no number for is a text, "NaN", "Infinity" or "-Infinity"; bytes that are no
// UTF-8 are {"base64": ...}.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/data_show.h"

namespace braid::cli {
namespace {

std::string json_text(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      text.push_back(i <= group.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=');
  }
  return text;
}

std::string json_of(std::string_view bytes) {
  return is_utf8(bytes) ? json_text(bytes) : fmt::format("{{\"base64\": \"{}\"}}", base64(bytes));
}
std::string json_of(std::int64_t value) { return std::to_string(value); }
std::string json_of(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return nlohmann::json(value).dump();
}

template <class T>
std::string json_list(std::span<const T> values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(json_of(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string json_of(const FeatureSummary& f) {
  std::string json =
      fmt::format("{{\"type\": \"{}\", \"present\": {}, \"values\": {}",
                  f.mixed ? std::string_view("mixed") : feature_kind_name(f.kind), f.present, f.values);
  if (f.is_list) json += ", \"list\": true";
  json += fmt::format(", \"distinct\": {}, \"distinct_exact\": {}", f.distinct.count(), f.distinct.exact());
  if (f.kind == FeatureKind::Bytes) {
    json += fmt::format(", \"bytes\": {}", static_cast<std::int64_t>(f.sum));
  } else if (f.kind != FeatureKind::None) {
    const bool ints = f.kind == FeatureKind::Int64;
    json += ", \"sum\": " + (ints ? to_text(f.int_sum) : json_of(f.sum));
    if (f.values > 0)
      json += fmt::format(", \"min\": {}, \"max\": {}", ints ? json_of(f.int_min) : json_of(f.min),
                          ints ? json_of(f.int_max) : json_of(f.max)) +
              fmt::format(", \"mean\": {}, \"std\": {}", json_of(f.moments.mean()),
                          json_of(f.moments.deviation()));
  }
  return json + "}";
}

}  // namespace

std::string json_of_record(const FeatureSet& record) {
  std::vector<std::string> features;
  for (const Feature& f : record.features()) {
    std::string values = "[]";
    if (f.kind == FeatureKind::Bytes) values = json_list(record.bytes(f));
    if (f.kind == FeatureKind::Int64) values = json_list(record.ints(f));
    if (f.kind == FeatureKind::Float) {
      const auto floats = record.floats(f);
      values = json_list<double>(std::vector<double>(floats.begin(), floats.end()));
    }
    features.push_back(fmt::format("\n  {}: [\"{}\", {}]", json_text(shown_name(f.name)),
                                   feature_kind_name(f.kind), values));
  }
  return fmt::format("{{{}\n }}", fmt::join(features, ","));
}

std::string json_of_file(const std::string& path, const RecordFile& file, const RecordSummary& summary,
                         const std::vector<std::string>& records) {
  std::vector<std::string> features;
  for (const auto& [name, f] : summary.features())
    features.push_back(fmt::format("\n  {}: {}", json_text(shown_name(name)), json_of(f)));
  std::string json = fmt::format(
      "{{\n \"file\": {},\n \"format\": \"{}\",\n \"compression\": \"{}\",\n \"records\": {},\n"
      " \"bad_records\": {},\n",
      json_of(path), file_format_name(file.format()), compression_name(file.compression()), summary.records(),
      file.bad_records());
  if (file.format() == FileFormat::TfRecord) json += fmt::format(" \"crc_ok\": {},\n", summary.records());
  json += fmt::format(" \"features\": {{{}\n }},\n", fmt::join(features, ","));
  if (!records.empty()) json += fmt::format(" \"first_record\": {},\n", records[0]);
  return json + fmt::format(" \"first_records\": [{}]\n}}\n", fmt::join(records, ", "));
}

}  // namespace braid::cli
