#include "base/checkpoint_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <string_view>

#include "base/error.h"

namespace braid {
namespace {

/// "3,4" -> {3, 4}.
std::vector<std::int64_t> parse_dims(const std::string& text) {
  std::vector<std::int64_t> dims;
  for (const char* at = text.data(); at < text.data() + text.size(); ++at) {
    std::int64_t dim = 0;
    at = std::from_chars(at, text.data() + text.size(), dim).ptr;
    dims.push_back(dim);
  }
  return dims;
}

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

CheckpointValues::CheckpointValues(CheckpointInfo info) : info_(std::move(info)) {
  for (const ShardInfo& shard : info_.shards)
    readers_.push_back(std::make_unique<ShardReader>(info_.directory / shard.file));
  for (std::size_t s = 0; s < readers_.size(); ++s)
    for (const CheckpointEntry& entry : readers_[s]->entries()) add(s, entry);
  for (auto& [name, pieces] : pieces_) settle(name, pieces);
  join_rows();
}

std::vector<std::byte> CheckpointValues::read(const std::string& name) const {
  if (const auto joined = joined_.find(name); joined != joined_.end()) return read(joined->second);
  const auto at = pieces_.find(name);
  if (at == pieces_.end()) throw InvalidArgument("'" + info_.directory.string() + "' has no '" + name + "'");
  std::vector<std::byte> all;
  for (const Piece& piece : at->second) {
    const std::vector<std::byte> bytes = readers_[piece.shard]->read(piece.entry.name);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return name.find('@') == std::string::npos ? all : sorted_rows(name, all);
}

/// Entries "<variable>@<offset>" are runs of a dense table, "<table>@rows" and the like rows of a sparse
/// one.
void CheckpointValues::add(std::size_t shard, const CheckpointEntry& entry) {
  const std::size_t at = entry.name.find('@');
  if (at == 0) return;  // what a server knows about itself
  Piece piece{shard, entry, 0};
  std::string name = entry.name;
  if (at != std::string::npos) {
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + at + 1, end, piece.offset);
    if (read.ec == std::errc() && read.ptr == end) name.resize(at);
  }
  pieces_[name].push_back(std::move(piece));
}

void CheckpointValues::settle(const std::string& name, std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  CheckpointValue info{pieces[0].entry.dtype, pieces[0].entry.shape};
  const bool rows = name.find('@') != std::string::npos;
  const bool runs = pieces[0].entry.name != name;
  if (rows || runs) {
    info.shape[0] = 0;
    for (const Piece& piece : pieces) {
      if (runs && piece.offset != info.shape[0])
        throw DataLoss(fmt::format("'{}': elements {} to {} of '{}' are in no shard",
                                   info_.directory.string(), info.shape[0], piece.offset, name));
      info.shape[0] += piece.entry.shape[0];
    }
  } else if (pieces.size() > 1) {
    throw DataLoss("'" + info_.directory.string() + "': two shards have an entry '" + name + "'");
  }
  if (runs) take_shape(name, info);
  values_[name] = std::move(info);
}

/// Tables of which every row is there, in parts that workers hold.
void CheckpointValues::join_rows() {
  constexpr std::string_view kKeys = "@keys", kRows = "@rows", kShape = "shape/";
  for (const auto& [attribute, text] : info_.meta.attributes) {
    if (!attribute.starts_with(kShape)) continue;
    const std::string name = attribute.substr(kShape.size()), rows = name + std::string(kRows);
    std::string table = name;
    if (!pieces_.contains(table + std::string(kKeys))) table = table.substr(0, table.rfind('/'));
    const auto keys = pieces_.find(table + std::string(kKeys));
    const auto stored = values_.find(rows);
    const std::vector<std::int64_t> shape = parse_dims(text);
    if (keys == pieces_.end() || stored == values_.end() || stored->second.shape != shape) continue;
    values_[name] = {stored->second.dtype, shape};
    values_.erase(stored);
    joined_[name] = rows;
  }
  for (const auto& [name, rows] : joined_) values_.erase(name + std::string(kKeys));
}

/// Servers know elements only; the manifest knows the shapes of variables.
void CheckpointValues::take_shape(const std::string& name, CheckpointValue& info) const {
  for (const std::string& variable : {name, name.substr(0, name.rfind('/'))}) {
    const auto at = info_.meta.attributes.find("shape/" + variable);
    if (at == info_.meta.attributes.end()) continue;
    const std::vector<std::int64_t> shape = parse_dims(at->second);
    if (elements(shape) == info.shape[0]) info.shape = shape;
    return;
  }
}

/// Rows in the order of their keys, so that they do not depend on the number of servers.
std::vector<std::byte> CheckpointValues::sorted_rows(const std::string& name,
                                                     const std::vector<std::byte>& rows) const {
  std::string table = name.substr(0, name.find('@'));
  if (!pieces_.contains(table + "@keys")) table = table.substr(0, table.rfind('/'));
  const auto pieces = pieces_.find(table + "@keys");
  if (pieces == pieces_.end()) return rows;
  std::vector<std::int64_t> keys;
  for (const Piece& piece : pieces->second) {
    const std::vector<std::byte> bytes = readers_[piece.shard]->read(piece.entry.name);
    const std::size_t have = keys.size();
    keys.resize(have + bytes.size() / sizeof(std::int64_t));
    if (!bytes.empty()) std::memcpy(keys.data() + have, bytes.data(), bytes.size());
  }
  if (keys.empty()) return rows;
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  const std::size_t row = rows.size() / keys.size();
  std::vector<std::byte> sorted(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::memcpy(sorted.data() + i * row, rows.data() + order[i] * row, row);
  return sorted;
}

}  // namespace braid
