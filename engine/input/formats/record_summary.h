// What the records of a file have in common: names, types, how often, how many, and the range and
// distribution of the values. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "engine/input/formats/example.h"
#include "engine/input/schema/value_statistics.h"

namespace braid {

inline constexpr std::array kListSeparators{'|', ';'};

struct FeatureSummary {
  FeatureKind kind = FeatureKind::None;  // of the first values
  bool mixed = false;                    // other records have values of another kind
  bool is_list = false;                  // a list of features (SequenceExample)
  std::int64_t present = 0;              // records that have it, empty or not
  std::int64_t values = 0;
  std::int64_t fewest = 0, most = 0;  // values in one record that has it
  double sum = 0, min = 0, max = 0;   // of floats; of bytes: their lengths
  __int128 int_sum = 0;               // of int64s
  std::int64_t int_min = 0, int_max = 0;

  Moments moments;           // of numbers; of bytes: of those that are texts of finite numbers
  Moments log1p_moments;     // of log(1 + max(x, 0)) of the same
  double number_min = 0;     // of the same
  QuantileSketch quantiles;  // of the same
  std::int64_t blanks = 0;   // bytes that are empty or "?", which a schema takes for missing
  DistinctCounter distinct;  // of all values but blanks
  WordCounter words;         // of bytes, and of int64s as decimal text

  /// Bytes that have kListSeparators[i] in them, as lists in text have, and what it parts.
  std::array<std::int64_t, 2> parted{};
  std::array<DistinctCounter, 2> items;
};

/// So that I2 comes before I10.
struct NaturalOrder {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const;
};

class RecordSummary {
 public:
  void add(const FeatureSet& record);
  std::int64_t records() const { return records_; }
  const std::map<std::string, FeatureSummary, NaturalOrder>& features() const { return features_; }

 private:
  std::int64_t records_ = 0;
  std::map<std::string, FeatureSummary, NaturalOrder> features_;
};

/// A 128-bit integer as decimal text.
std::string to_text(__int128 value);

}  // namespace braid
