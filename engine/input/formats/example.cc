#include "engine/input/formats/example.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/formats/proto_wire.h"

namespace braid {
namespace {

// Field numbers of example.proto.
constexpr int kFeatures = 1, kFeatureLists = 2;      // Example, SequenceExample
constexpr int kMapEntry = 1, kKey = 1, kValue = 2;   // Features, FeatureLists
constexpr int kFeatureOfList = 1;                    // FeatureList
constexpr int kBytes = 1, kFloats = 2, kInt64s = 3;  // Feature
constexpr int kListValue = 1;                        // BytesList, FloatList, Int64List

FeatureKind kind_of(int field) {
  switch (field) {
    case kBytes:
      return FeatureKind::Bytes;
    case kFloats:
      return FeatureKind::Float;
    case kInt64s:
      return FeatureKind::Int64;
    default:
      return FeatureKind::None;
  }
}

}  // namespace

std::string_view feature_kind_name(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::Bytes:
      return "bytes";
    case FeatureKind::Float:
      return "float";
    case FeatureKind::Int64:
      return "int64";
    case FeatureKind::None:
      break;
  }
  return "none";
}

void FeatureSet::clear() {
  features_.clear();
  floats_.clear();
  ints_.clear();
  bytes_.clear();
}

void FeatureSet::add(std::string_view name, float value) { add(name, std::span<const float>(&value, 1)); }

void FeatureSet::add(std::string_view name, std::int64_t value) {
  add(name, std::span<const std::int64_t>(&value, 1));
}

void FeatureSet::add(std::string_view name, std::span<const float> values) {
  features_.push_back({name, FeatureKind::Float, floats_.size(), values.size(), {}});
  floats_.insert(floats_.end(), values.begin(), values.end());
}

void FeatureSet::add(std::string_view name, std::span<const std::int64_t> values) {
  features_.push_back({name, FeatureKind::Int64, ints_.size(), values.size(), {}});
  ints_.insert(ints_.end(), values.begin(), values.end());
}

void FeatureSet::add(std::string_view name, std::string_view value) {
  add(name, std::span<const std::string_view>(&value, 1));
}

void FeatureSet::add(std::string_view name, std::span<const std::string_view> values) {
  features_.push_back({name, FeatureKind::Bytes, bytes_.size(), values.size(), {}});
  bytes_.insert(bytes_.end(), values.begin(), values.end());
}

void ExampleReader::parse(std::string_view record) {
  record_ = record;
  clear();
  try {
    for (WireReader message(record); message.next();) {
      if (message.type() != WireType::Bytes) continue;
      if (message.field() != kFeatures && message.field() != kFeatureLists) continue;
      for (WireReader map = message.message(); map.next();)
        if (map.is(kMapEntry, WireType::Bytes)) add_map_entry(map.bytes(), message.field() == kFeatureLists);
    }
  } catch (const DataLoss& e) {
    throw DataLoss("not a tf.train.Example: " + e.message());
  }
  settle_names();
}

void ExampleReader::add_map_entry(std::string_view entry, bool is_list) {
  Feature feature;
  std::string_view value;
  const auto place = [&](std::string_view part) {
    return static_cast<std::size_t>(part.data() - record_.data());
  };
  for (WireReader fields(entry, place(entry)); fields.next();) {
    if (fields.is(kKey, WireType::Bytes)) feature.name = fields.bytes();
    if (fields.is(kValue, WireType::Bytes)) value = fields.bytes();
  }
  if (!is_list) {
    add_values(feature, value);
  } else {
    feature.steps = 0;
    for (WireReader list(value, value.empty() ? 0 : place(value)); list.next();) {
      if (!list.is(kFeatureOfList, WireType::Bytes)) continue;
      ++*feature.steps;
      add_values(feature, list.bytes());
    }
  }
  features_.push_back(feature);
}

void ExampleReader::add_values(Feature& feature, std::string_view message) {
  if (message.empty()) return;
  const auto offset = static_cast<std::size_t>(message.data() - record_.data());
  for (WireReader fields(message, offset); fields.next();) {
    const FeatureKind kind = kind_of(fields.field());
    if (kind == FeatureKind::None || fields.type() != WireType::Bytes) continue;
    if (feature.kind != kind) {  // of two lists of one feature the later kind counts
      if (feature.steps && feature.count > 0)
        throw DataLoss("byte " + std::to_string(offset) + ": the list '" + std::string(feature.name) +
                       "' has features of " + std::string(feature_kind_name(feature.kind)) + " and " +
                       std::string(feature_kind_name(kind)));
      feature.kind = kind;
      feature.count = 0;
      feature.begin = kind == FeatureKind::Bytes   ? bytes_.size()
                      : kind == FeatureKind::Float ? floats_.size()
                                                   : ints_.size();
    }
    add_list(kind, feature, fields.bytes());
  }
}

void ExampleReader::add_list(FeatureKind kind, Feature& feature, std::string_view list) {
  const std::size_t before = bytes_.size() + floats_.size() + ints_.size();
  const auto add_float = [&](std::string_view four) {
    float value = 0;
    std::memcpy(&value, four.data(), sizeof(value));
    floats_.push_back(value);
  };
  const auto offset = static_cast<std::size_t>(list.data() - record_.data());
  for (WireReader values(list, offset); values.next();) {
    if (values.field() != kListValue) continue;
    const WireType type = values.type();
    if (kind == FeatureKind::Bytes && type == WireType::Bytes) {
      bytes_.push_back(values.bytes());
    } else if (kind == FeatureKind::Float && type == WireType::Bytes) {  // packed
      const std::string_view packed = values.bytes();
      if (packed.size() % sizeof(float) != 0)
        throw DataLoss("byte " + std::to_string(offset) + ": floats of " + std::to_string(packed.size()) +
                       " bytes");
      const std::size_t have = floats_.size();
      floats_.resize(have + packed.size() / sizeof(float));
      if (!packed.empty()) std::memcpy(floats_.data() + have, packed.data(), packed.size());
    } else if (kind == FeatureKind::Float && type == WireType::Fixed32) {
      add_float(values.bytes());
    } else if (kind == FeatureKind::Int64 && type == WireType::Bytes) {
      for (WireReader packed = values.message(); !packed.at_end();)
        ints_.push_back(static_cast<std::int64_t>(packed.read_varint()));
    } else if (kind == FeatureKind::Int64 && type == WireType::Varint) {
      ints_.push_back(static_cast<std::int64_t>(values.varint()));
    } else {
      throw DataLoss("byte " + std::to_string(offset) + ": a value of feature '" + std::string(feature.name) +
                     "' is not of its list's type");
    }
  }
  feature.count += bytes_.size() + floats_.size() + ints_.size() - before;
}

/// A map has each name once: of equal names the last counts; a context and its lists are two maps. Looked for
/// only when the names are new.
void ExampleReader::settle_names() {
  const bool same = names_.size() == features_.size() &&
                    std::equal(names_.begin(), names_.end(), features_.begin(),
                               [](const std::string& name, const Feature& f) { return name == f.name; });
  if (same) return;
  std::array<std::unordered_map<std::string_view, std::size_t>, 2> last;
  const auto map_of = [&](const Feature& f) -> auto& { return last[f.steps ? 1 : 0]; };
  for (std::size_t i = 0; i < features_.size(); ++i) map_of(features_[i])[features_[i].name] = i;
  if (last[0].size() + last[1].size() < features_.size()) {
    std::vector<Feature> kept;
    for (std::size_t i = 0; i < features_.size(); ++i)
      if (map_of(features_[i])[features_[i].name] == i) kept.push_back(features_[i]);
    features_ = std::move(kept);
  }
  names_.clear();
  for (const Feature& f : features_) names_.emplace_back(f.name);
  ++layout_;
}

const Feature* FeatureSet::find(std::string_view name) const {
  for (const Feature& f : features_)
    if (f.name == name) return &f;
  return nullptr;
}

void ExampleWriter::add_feature(std::string_view name, int kind) {
  feature_.clear();
  put_bytes_field(feature_, kind, list_);
  entry_.clear();
  put_bytes_field(entry_, kKey, name);
  put_bytes_field(entry_, kValue, feature_);
  put_bytes_field(features_, kMapEntry, entry_);
}

void ExampleWriter::add(std::string_view name, std::span<const std::string_view> values) {
  list_.clear();
  for (std::string_view value : values) put_bytes_field(list_, kListValue, value);
  add_feature(name, kBytes);
}

void ExampleWriter::add(std::string_view name, std::span<const float> values) {
  list_.clear();
  if (!values.empty())
    put_bytes_field(list_, kListValue, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  add_feature(name, kFloats);
}

void ExampleWriter::add(std::string_view name, std::span<const std::int64_t> values) {
  std::string packed;
  for (std::int64_t value : values) put_varint(packed, static_cast<std::uint64_t>(value));
  list_.clear();
  if (!packed.empty()) put_bytes_field(list_, kListValue, packed);
  add_feature(name, kInt64s);
}

std::string_view ExampleWriter::finish() {
  record_.clear();
  put_bytes_field(record_, kFeatures, features_);
  features_.clear();
  return record_;
}

}  // namespace braid
