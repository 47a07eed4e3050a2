// Blocks of Snappy, which LevelDB tables may be packed with. Only unpacking. Format: google/snappy,
// format_description.txt. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace braid {

/// Throws: DataLoss (what is wrong, at which byte).
std::string snappy_unpack(std::string_view packed);

}  // namespace braid
