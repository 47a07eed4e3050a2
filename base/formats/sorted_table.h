// LevelDB's table files: sorted keys with values, in blocks with prefix compression, each with its masked
// CRC-32C. Here for the index of TensorFlow's checkpoints, which is one: small, read whole. Format:
// google/leveldb, doc/table_format.md. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace braid {

using SortedPairs = std::vector<std::pair<std::string, std::string>>;

/// All keys and values, in order. Blocks may be packed with Snappy. Throws: InvalidArgument (cannot open),
/// DataLoss (damage: file, block, byte).
SortedPairs read_sorted_table(const std::filesystem::path& file);

/// The bytes of a table of `pairs`, whose blocks are not packed. REQUIRES: keys ascend. Throws:
/// InvalidArgument when they do not.
std::string format_sorted_table(const SortedPairs& pairs);

}  // namespace braid
