// tf.train.Example and tf.train.SequenceExample, read straight from the wire format into memory that is used
// again for the next record, and written. proto/example.proto has the messages; a feature is a name and a
// list of bytes, floats or int64s. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// A feature without a list has kind None.
enum class FeatureKind { None, Bytes, Float, Int64 };
std::string_view feature_kind_name(FeatureKind kind);

struct Feature {
  std::string_view name;
  FeatureKind kind = FeatureKind::None;
  std::size_t begin = 0;  // of its values among those of its kind
  std::size_t count = 0;
  /// A list of features (SequenceExample): how many features its values are from. Absent: a plain feature.
  std::optional<std::int64_t> steps;
};

/// The features of one record, whatever file it is from.
class FeatureSet {
 public:
  std::span<const Feature> features() const { return features_; }
  std::span<const float> floats(const Feature& f) const {
    return std::span(floats_).subspan(f.begin, f.count);
  }
  std::span<const std::int64_t> ints(const Feature& f) const {
    return std::span(ints_).subspan(f.begin, f.count);
  }
  std::span<const std::string_view> bytes(const Feature& f) const {
    return std::span(bytes_).subspan(f.begin, f.count);
  }
  const Feature* find(std::string_view name) const;

  void clear();
  /// The views stay valid as long as what they point at.
  void add(std::string_view name, float value);
  void add(std::string_view name, std::int64_t value);
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, std::span<const float> values);
  void add(std::string_view name, std::span<const std::int64_t> values);
  void add(std::string_view name, std::span<const std::string_view> values);

 protected:
  std::vector<Feature> features_;
  std::vector<float> floats_;
  std::vector<std::int64_t> ints_;
  std::vector<std::string_view> bytes_;
};

class ExampleReader : public FeatureSet {
 public:
  /// Reads one record. Views stay valid while `record` does, and until the next call. Throws: DataLoss("byte
  /// <n> of the record: ...") for what is not such a message, lists of two kinds in one list of features too.
  void parse(std::string_view record);

  /// Changes when the names, or their order, are not those of the record before: places found by name hold as
  /// long as it stays.
  std::uint64_t layout() const { return layout_; }

 private:
  void add_map_entry(std::string_view entry, bool is_list);
  void add_values(Feature& feature, std::string_view message);
  void add_list(FeatureKind kind, Feature& feature, std::string_view list);
  void settle_names();

  std::string_view record_;
  std::vector<std::string> names_;  // of the record before
  std::uint64_t layout_ = 0;
};

/// Encodes one Example. Features come in the order of the calls, so equal calls give equal bytes. Thread
/// rule: one thread.
class ExampleWriter {
 public:
  void add(std::string_view name, std::span<const std::string_view> values);
  void add(std::string_view name, std::span<const float> values);
  void add(std::string_view name, std::span<const std::int64_t> values);
  /// The record; the writer is empty afterwards.
  std::string_view finish();

 private:
  void add_feature(std::string_view name, int kind);

  std::string features_, list_, feature_, entry_, record_;
};

}  // namespace braid
