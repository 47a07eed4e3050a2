#include "cli/column_guess.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"

namespace braid::cli {
namespace {

/// Above it a distribution has a tail that log(1 + x) shortens.
constexpr double kHeavyTail = 3;
/// Of the rows: a text that differs in more of them says nothing about another row.
constexpr double kNearlyAll = 0.9;
constexpr std::int64_t kFewRows = 50;
/// Of the texts: so many have a separator where the column is one of lists.
constexpr double kManyLists = 0.1;
constexpr std::int64_t kMostBuckets = 1'000'000;

/// "zip_code", "zipCode" and "zip-code" have the parts zip and code.
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool capital =
        std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if ((std::isalnum(c) == 0 || capital) && !parts.back().empty()) parts.emplace_back();
    if (std::isalnum(c) != 0) parts.back().push_back(static_cast<char>(std::tolower(c)));
  }
  return parts;
}

/// Of two values the one that is not meant.
bool says_no(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  static const std::set<std::string> kNo{"-1", "0", "f", "false", "n", "neg", "negative", "no", "off"};
  return kNo.contains(text);
}

template <std::size_t N>
bool has_part(const std::string& name, const std::array<const char*, N>& words) {
  for (const std::string& part : parts_of(name))
    if (std::find(words.begin(), words.end(), part) != words.end()) return true;
  return false;
}

/// A whole number is a name there and no amount. Of "user" and "user_age" only the first names who it is.
bool names_an_id(const std::string& name) {
  static constexpr std::array kThings{"user",       "customer",  "member",  "item",     "product",
                                      "sku",        "brand",     "seller",  "merchant", "campaign",
                                      "advertiser", "publisher", "creative"};
  return has_part(name, std::array{"id", "ids", "uid", "uuid", "code", "zip", "zipcode", "postcode", "hash",
                                   "category", "categories", "cat", "type", "kind", "class", "device",
                                   "region", "country", "city"}) ||
         has_part(parts_of(name).back(), kThings);
}

bool names_a_label(const std::string& name) {
  return has_part(
      name, std::array{"label",      "target",   "y",         "click",  "clicked",  "outcome", "converted",
                       "conversion", "purchase", "purchased", "bought", "survived", "churn",   "default",
                       "fraud",      "income",   "response",  "class",  "is",       "has"});
}

/// Whether all that is not missing is a number, be the column read as texts for the sake of a "?".
bool is_numeric(const FeatureSummary& f) {
  if (f.kind == FeatureKind::Int64 || f.kind == FeatureKind::Float) return true;
  return f.kind == FeatureKind::Bytes && f.moments.count() > 0 && f.moments.count() + f.blanks == f.values;
}

bool whole_numbers(const FeatureSummary& f) {
  return f.kind == FeatureKind::Int64 || (f.kind == FeatureKind::Bytes && is_numeric(f));
}

bool has_two_values(const FeatureSummary& f) {
  return f.distinct.count() == 2 && f.most == 1 && !f.mixed && f.kind != FeatureKind::None;
}

/// A round number that leaves room: twice as many as there are, of the series 10, 20, 50, 100, ...
std::int64_t buckets_for(std::int64_t distinct) {
  for (std::int64_t decade = 10; decade < kMostBuckets; decade *= 10)
    for (const std::int64_t digit : {1, 2, 5})
      if (decade * digit >= 2 * distinct) return decade * digit;
  return kMostBuckets;
}

double three_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 2);
  return std::round(value / unit) * unit;
}

std::string share_text(std::int64_t part, std::int64_t whole) {
  return fmt::format("{:.3g} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string count_text(const FeatureSummary& f) {
  return fmt::format("{}{} different values", f.distinct.exact() ? "" : "about ", f.distinct.count());
}

/// Which of kListSeparators parts the texts of a column of lists.
std::optional<std::size_t> separator_of(const FeatureSummary& f) {
  if (f.kind != FeatureKind::Bytes || f.most > 1) return std::nullopt;
  const auto most = static_cast<std::size_t>(std::ranges::max_element(f.parted) - f.parted.begin());
  const auto least = kManyLists * static_cast<double>(f.values - f.blanks);
  if (f.parted[most] == 0 || static_cast<double>(f.parted[most]) < least) return std::nullopt;
  // Sentences differ in what stands between separators as they do as a whole.
  if (static_cast<double>(f.items[most].count()) > kNearlyAll * 2 * static_cast<double>(f.parted[most]) &&
      f.parted[most] >= kFewRows)
    return std::nullopt;
  return most;
}

/// Lists of several lengths, of words or of whole numbers, which are ids then.
bool is_ragged(const FeatureSummary& f) {
  return f.most > 1 && f.fewest < f.most && f.kind != FeatureKind::Float;
}

class Guess {
 public:
  Guess(const RecordFile& file, const RecordSummary& summary, const LabelWish& wish)
      : summary_(summary), wish_(wish) {
    order_ = file.column_names();
    for (const auto& [name, f] : summary.features())
      if (std::find(order_.begin(), order_.end(), name) == order_.end()) order_.push_back(name);
  }

  std::vector<GuessedColumn> columns() {
    const std::string label = label_name();
    std::vector<GuessedColumn> columns;
    for (const std::string& name : order_) {
      const FeatureSummary* f = find(name);
      GuessedColumn column;
      column.spec.name = name;
      if (!f || f->values == f->blanks)
        column.why = "empty";
      else if (name == label)
        describe_label(*f, column);
      else
        describe(*f, column);
      columns.push_back(std::move(column));
    }
    return columns;
  }

 private:
  const FeatureSummary* find(const std::string& name) const {
    const auto at = summary_.features().find(name);
    return at == summary_.features().end() ? nullptr : &at->second;
  }

  /// Of two values and a telling name; else of two values, the last; columns of 0 and 1 come first.
  std::string label_name() const {
    if (!wish_.name.empty()) {
      if (!find(wish_.name))
        throw InvalidArgument(fmt::format("there is no column '{}' with values; there are {}", wish_.name,
                                          fmt::join(order_, ", ")));
      return wish_.name;
    }
    std::string best;
    int best_points = 0;
    for (const std::string& name : order_) {
      const FeatureSummary* f = find(name);
      if (!f || !has_two_values(*f)) continue;
      const bool edge = name == order_.front() || name == order_.back();
      const int points = 1 + (names_a_label(name) ? 4 : 0) + (edge ? 2 : 0);
      if (points >= best_points) best = name;
      best_points = std::max(best_points, points);
    }
    return best;
  }

  void describe_label(const FeatureSummary& f, GuessedColumn& column) const {
    const std::string& name = column.spec.name;
    column.spec.kind = ColumnKind::Label;
    const auto& words = f.words.counts();
    const bool zero_and_one = words.size() == 2 && words.contains("0") && words.contains("1");
    if (!wish_.positive.empty()) {
      const bool known = f.words.too_many() || std::any_of(words.begin(), words.end(), [&](const auto& word) {
                           return word.first.starts_with(wish_.positive);
                         });
      if (!known)
        throw InvalidArgument(fmt::format("no value of column '{}' begins with '{}'", name, wish_.positive));
      column.spec.positive = wish_.positive;
    } else if (f.kind == FeatureKind::Float && f.distinct.count() == 2 && f.min == 0 && f.max == 1) {
      column.why = fmt::format("1 in {} of the rows", share(f.moments.mean()));
    } else if (words.size() == 2) {
      auto yes = words.begin(), no = std::next(words.begin());
      // `positive` is a beginning: of "1" and "10" only the longer one can be told from the other.
      const bool told = says_no(yes->first) != says_no(no->first);
      const bool first =
          !no->first.starts_with(yes->first) && (told ? says_no(no->first) : yes->second < no->second);
      if (!first) std::swap(yes, no);
      if (zero_and_one) {
        yes = words.find("1");
        column.why = fmt::format("1 in {} of the rows", share_text(yes->second, f.values));
      } else {
        column.spec.positive = yes->first;
        column.why = fmt::format("in {} of the rows; the other value is {}",
                                 share_text(yes->second, f.values), text_literal(no->first));
      }
    } else {
      throw InvalidArgument(fmt::format(
          "column '{}' has {}, and models of tables predict one of two: --label {}=VALUE says which value "
          "counts as yes; of values or more classes train a graph (--graph) or a model of Python",
          name, count_text(f), name));
    }
  }

  static std::string share(double mean) { return fmt::format("{:.3g} %", 100 * mean); }

  void describe(const FeatureSummary& f, GuessedColumn& column) const {
    const std::int64_t rows = summary_.records(), distinct = f.distinct.count();
    const std::int64_t missing = rows - f.present + f.blanks;
    if (const auto separator = separator_of(f)) {
      describe_list(f.items[*separator], missing, column);
      if (kListSeparators[*separator] != '|') column.spec.list_separator = kListSeparators[*separator];
      return;
    }
    if (is_ragged(f)) return describe_list(f.distinct, rows - f.present, column);
    if (f.most > 1) column.spec.length = f.most;
    if (distinct <= 1 && f.most <= 1) {
      column.why = "one value only";
      return;
    }
    const bool id = names_an_id(column.spec.name);
    const bool differs =
        rows >= kFewRows && static_cast<double>(distinct) > kNearlyAll * static_cast<double>(f.values);
    if (is_numeric(f) && !(id && whole_numbers(f) && distinct > 2)) {
      describe_numeric(f, missing, column);
    } else if (differs && f.most <= 1) {
      column.why = "differs in nearly every row";
    } else {
      column.spec.kind = ColumnKind::Categorical;
      column.spec.buckets = buckets_for(distinct);
      column.why = count_text(f);
      if (missing > 0) column.why += ", missing in " + share_text(missing, rows);
    }
    // "NA" among them, as other programs write what is missing.
    if (column.spec.kind != ColumnKind::Numeric && f.kind == FeatureKind::Bytes && !id &&
        2 * f.moments.count() > f.values - f.blanks)
      column.why += fmt::format("; numbers in {}: with empty fields or ? for the others it is a NUMERIC",
                                share_text(f.moments.count(), rows));
  }

  void describe_list(const DistinctCounter& items, std::int64_t missing, GuessedColumn& column) const {
    column.spec.kind = ColumnKind::Categorical;
    column.spec.ragged = true;
    column.spec.buckets = buckets_for(items.count());
    column.why = fmt::format("lists of {}{} different items", items.exact() ? "" : "about ", items.count());
    if (missing > 0) column.why += ", missing in " + share_text(missing, summary_.records());
  }

  static void describe_numeric(const FeatureSummary& f, std::int64_t missing, GuessedColumn& column) {
    ColumnSpec& spec = column.spec;
    spec.kind = ColumnKind::Numeric;
    spec.log1p = f.number_min >= 0 && f.moments.skewness() > kHeavyTail && f.distinct.count() > 2;
    const Moments& moments = spec.log1p ? f.log1p_moments : f.moments;
    if (std::isfinite(moments.mean()) && moments.deviation() > 0) {
      spec.shift = three_digits(moments.mean());
      spec.scale = three_digits(moments.deviation());
    }
    // The mean, so that it becomes about 0.
    if (missing > 0) spec.missing = three_digits(spec.log1p ? std::expm1(moments.mean()) : moments.mean());
    column.why = count_text(f);
    if (missing > 0) column.why += fmt::format(", missing {} times", missing);
  }

  const RecordSummary& summary_;
  const LabelWish& wish_;
  std::vector<std::string> order_;
};

}  // namespace

std::string text_literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7F)
      result += fmt::format("\\{:03o}", byte);
    else
      result.push_back(c);
  }
  return result + "\"";
}

std::vector<GuessedColumn> guess_columns(const RecordFile& file, const RecordSummary& summary,
                                         const LabelWish& wish) {
  return Guess(file, summary, wish).columns();
}

std::string columns_text(const std::vector<GuessedColumn>& columns, const std::string& indent) {
  std::string text;
  for (const auto& [spec, why] : columns) {
    const char* kind = spec.kind == ColumnKind::Numeric       ? "NUMERIC"
                       : spec.kind == ColumnKind::Categorical ? "CATEGORICAL"
                       : spec.kind == ColumnKind::Label       ? "LABEL"
                                                              : "SKIP";
    text += fmt::format("{}columns {{ name: {} kind: {}", indent, text_literal(spec.name), kind);
    if (spec.buckets != 0) text += fmt::format(" buckets: {}", spec.buckets);
    if (!spec.positive.empty()) text += " positive: " + text_literal(spec.positive);
    if (spec.log1p) text += " log1p: true";
    if (spec.shift != 0) text += fmt::format(" shift: {:.6g}", spec.shift);
    if (spec.scale != 1) text += fmt::format(" scale: {:.6g}", spec.scale);
    if (spec.missing != 0) text += fmt::format(" missing: {:.6g}", spec.missing);
    if (spec.ragged) text += " ragged: true";
    if (spec.list_separator != '|')
      text += fmt::format(" list_separator: {}", text_literal({&spec.list_separator, 1}));
    if (spec.length > 1) text += fmt::format(" length: {}", spec.length);
    text += " }" + (why.empty() ? "" : "  # " + why) + "\n";
  }
  return text;
}

}  // namespace braid::cli
