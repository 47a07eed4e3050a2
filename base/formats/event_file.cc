#include "base/formats/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "base/formats/proto_wire.h"

namespace braid {
namespace {

// Event
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5;
// Summary.Value
constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
constexpr int kDtFloat = 1, kDtString = 7;
constexpr double kLeastBound = 1e-12, kMostBound = 1e20, kGrowth = 1.1;

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void put_raw_double(std::string& out, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(bits >> shift & 0xff);
}

void put_double_field(std::string& out, int field, double value) {
  put_tag(out, field, WireType::Fixed64);
  put_raw_double(out, value);
}

void put_packed_doubles(std::string& out, int field, const std::vector<double>& values) {
  std::string packed;
  for (const double value : values) put_raw_double(packed, value);
  put_bytes_field(out, field, packed);
}

/// SummaryMetadata that names the plugin that draws the value.
std::string metadata_of(std::string_view plugin, std::string_view content = {}) {
  std::string data, metadata;
  put_bytes_field(data, 1, plugin);
  if (!content.empty()) put_bytes_field(data, 2, content);
  put_bytes_field(metadata, 1, data);
  return metadata;
}

std::filesystem::path new_event_file(const std::filesystem::path& directory) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  make_directories(directory);
  return directory / fmt::format("events.out.tfevents.{:010}.{}.{}",
                                 static_cast<std::int64_t>(unix_seconds()), host.data(), ::getpid());
}

const std::vector<double>& bucket_bounds() {
  static const std::vector<double> kBounds = [] {
    std::vector<double> positive, all;
    for (double bound = kLeastBound; bound < kMostBound; bound *= kGrowth) positive.push_back(bound);
    for (auto at = positive.rbegin(); at != positive.rend(); ++at) all.push_back(-*at);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return kBounds;
}

/// A HistogramProto; buckets at both ends that are empty are left out.
std::string histogram_of(std::span<const float> values) {
  const std::vector<double>& bounds = bucket_bounds();
  std::vector<double> counts(bounds.size(), 0.0);
  double least = 0, most = 0, sum = 0, squares = 0, count = 0;
  for (const float each : values) {
    if (!std::isfinite(each)) continue;
    const double value = each;
    least = count == 0 ? value : std::min(least, value);
    most = count == 0 ? value : std::max(most, value);
    sum += value;
    squares += value * value;
    ++count;
    ++counts[static_cast<std::size_t>(std::upper_bound(bounds.begin(), bounds.end(), value) -
                                      bounds.begin())];
  }
  std::size_t first = 0, last = counts.size();
  while (first + 1 < last && counts[first + 1] == 0 && counts[first] == 0) ++first;
  while (last > first + 1 && counts[last - 1] == 0) --last;
  const auto part = [&](const std::vector<double>& all) {
    return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(first),
                               all.begin() + static_cast<std::ptrdiff_t>(last));
  };
  std::string out;
  put_double_field(out, 1, least);
  put_double_field(out, 2, most);
  put_double_field(out, 3, count);
  put_double_field(out, 4, sum);
  put_double_field(out, 5, squares);
  put_packed_doubles(out, 6, part(bounds));
  put_packed_doubles(out, 7, part(counts));
  return out;
}

/// google.protobuf.Value under its name in a map.
std::string map_entry(std::string_view name, std::string_view value) {
  std::string entry;
  put_bytes_field(entry, 1, name);
  put_bytes_field(entry, 2, value);
  return entry;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory)
    : file_(File::create(new_event_file(directory))) {
  std::string event;
  put_double_field(event, kWallTime, unix_seconds());
  put_bytes_field(event, kFileVersion, "brain.Event:2");
  record(event);
}

void EventFile::record(std::string_view data) {
  const auto crc = [](std::string_view bytes) {
    return crc32c_mask(crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  };
  const auto put = [](std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
  };
  std::string frame;
  put(frame, data.size(), 8);
  put(frame, crc(frame), 4);
  frame += data;
  put(frame, crc(data), 4);
  file_.write(std::as_bytes(std::span(frame)));
}

void EventFile::add(std::uint64_t step, int field, std::string_view content) {
  std::string event;
  put_double_field(event, kWallTime, unix_seconds());
  put_varint_field(event, kStep, step);
  put_bytes_field(event, field, content);
  record(event);
}

void EventFile::summary(std::uint64_t step, std::string_view value) {
  std::string all;
  put_bytes_field(all, 1, value);
  add(step, kSummary, all);
}

void EventFile::scalar(std::string_view tag, std::uint64_t step, double value) {
  std::string one;
  put_bytes_field(one, kTag, tag);
  put_fixed32_field(one, kSimpleValue, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  summary(step, one);
}

void EventFile::histogram(std::string_view tag, std::uint64_t step, std::span<const float> values) {
  std::string one;
  put_bytes_field(one, kTag, tag);
  put_bytes_field(one, kHistogram, histogram_of(values));
  summary(step, one);
}

void EventFile::text(std::string_view tag, std::string_view markdown) {
  std::string tensor, shape, dimension, one;
  put_varint_field(dimension, 1, 1);
  put_bytes_field(shape, 2, dimension);
  put_varint_field(tensor, 1, kDtString);
  put_bytes_field(tensor, 2, shape);
  put_bytes_field(tensor, 8, markdown);
  put_bytes_field(one, kTag, tag);
  put_bytes_field(one, kTensor, tensor);
  put_bytes_field(one, kMetadata, metadata_of("text"));
  summary(0, one);
}

void EventFile::graph(const std::vector<EventGraphNode>& nodes) {
  std::string graph;
  for (const EventGraphNode& node : nodes) {
    std::string one;
    put_bytes_field(one, 1, node.name);
    put_bytes_field(one, 2, node.op);
    for (const std::string& input : node.inputs) put_bytes_field(one, 3, input);
    if (!node.device.empty()) put_bytes_field(one, 4, node.device);
    put_bytes_field(graph, 1, one);
  }
  add(0, kGraphDef, graph);
}

void EventFile::hyper_parameters(const std::map<std::string, double>& numbers,
                                 const std::map<std::string, std::string>& texts) {
  std::string session, data, tensor, one;
  for (const auto& [name, number] : numbers) {
    std::string value;
    put_double_field(value, 2, number);
    put_bytes_field(session, 1, map_entry(name, value));
  }
  for (const auto& [name, text] : texts) {
    std::string value;
    put_bytes_field(value, 3, text);
    put_bytes_field(session, 1, map_entry(name, value));
  }
  put_double_field(session, 5, unix_seconds());
  put_bytes_field(data, 3, session);
  put_varint_field(tensor, 1, kDtFloat);
  put_bytes_field(tensor, 2, "");
  put_bytes_field(one, kTag, "_hparams_/session_start_info");
  put_bytes_field(one, kTensor, tensor);
  put_bytes_field(one, kMetadata, metadata_of("hparams", data));
  summary(0, one);
}

}  // namespace braid
