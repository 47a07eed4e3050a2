#include "engine/input/formats/record_summary.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/env.h"
#include "base/init.h"

namespace braid {
namespace {

template <class T>
void widen(bool first, T value, T& min, T& max) {
  min = first ? value : std::min(min, value);
  max = first ? value : std::max(max, value);
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string_view take_digits(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

void add_to_moments(FeatureSummary& summary, double value) {
  summary.number_min = summary.moments.count() == 0 ? value : std::min(summary.number_min, value);
  summary.moments.add(value);
  summary.quantiles.add(value);
  summary.log1p_moments.add(std::log1p(std::max(value, 0.0)));
}

template <class Bits>
std::uint64_t hash_of_bits(Bits bits) {
  return stable_hash({reinterpret_cast<const char*>(&bits), sizeof(bits)});
}

void add_list(FeatureSummary& summary, std::string_view text) {
  for (std::size_t i = 0; i < kListSeparators.size(); ++i) {
    if (text.find(kListSeparators[i]) == std::string_view::npos) continue;
    ++summary.parted[i];
    for (std::size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
      end = std::min(text.find(kListSeparators[i], begin), text.size());
      if (end > begin) summary.items[i].add(stable_hash(text.substr(begin, end - begin)));
    }
  }
}

void add_text(FeatureSummary& summary, std::string_view text) {
  if (text.empty() || text == "?") {
    ++summary.blanks;
    return;
  }
  summary.distinct.add(stable_hash(text));
  summary.words.add(text);
  add_list(summary, text);
  if (const auto number = parse_double(text)) add_to_moments(summary, *number);
}

}  // namespace

bool NaturalOrder::operator()(std::string_view a, std::string_view b) const {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view x = take_digits(a), y = take_digits(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

void RecordSummary::add(const FeatureSet& record) {
  ++records_;
  for (const Feature& feature : record.features()) {
    auto at = features_.find(feature.name);
    if (at == features_.end()) at = features_.emplace(std::string(feature.name), FeatureSummary{}).first;
    FeatureSummary& summary = at->second;
    const auto count = static_cast<std::int64_t>(feature.count);
    widen(summary.present == 0, count, summary.fewest, summary.most);
    ++summary.present;
    summary.is_list = summary.is_list || feature.steps.has_value();
    if (feature.kind == FeatureKind::None) continue;
    if (summary.kind == FeatureKind::None) summary.kind = feature.kind;
    summary.mixed = summary.mixed || summary.kind != feature.kind;
    bool first = summary.values == 0;
    summary.values += count;
    const auto add_number = [&](double value) {
      summary.sum += value;
      widen(std::exchange(first, false), value, summary.min, summary.max);
    };
    switch (feature.kind) {
      case FeatureKind::Int64:
        for (const std::int64_t value : record.ints(feature)) {
          summary.int_sum += value;
          widen(std::exchange(first, false), value, summary.int_min, summary.int_max);
          add_to_moments(summary, static_cast<double>(value));
          summary.distinct.add(hash_of_bits(value));
          if (!summary.words.too_many()) summary.words.add(std::to_string(value));
        }
        break;
      case FeatureKind::Float:
        for (const float value : record.floats(feature)) {
          add_number(value);
          add_to_moments(summary, value);
          summary.distinct.add(hash_of_bits(value + 0.0F));  // -0 is 0
        }
        break;
      default:
        for (const std::string_view value : record.bytes(feature)) {
          add_number(static_cast<double>(value.size()));
          add_text(summary, value);
        }
    }
  }
}

std::string to_text(__int128 value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string text;
  for (; value != 0; value /= 10)
    text.push_back(static_cast<char>('0' + (negative ? -(value % 10) : value % 10)));
  if (negative) text.push_back('-');
  std::reverse(text.begin(), text.end());
  return text;
}

}  // namespace braid
