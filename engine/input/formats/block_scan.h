// The pass over a text or TFRecord file that finds where its records begin, for block_index.h: blocks of
// about a size, with their rows, lines and checksums. Keeps nothing. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

#include "engine/input/formats/block_index.h"

namespace braid {

/// The blocks of a file, without its stamp. `head`: its first line, of text. Of a packed one that is small
/// there is one block; several say that it is to be unpacked first. Throws: as block_index().
IndexedFile scan_blocks(const std::filesystem::path& file, const BlockIndexOptions& options,
                        const std::string& head);

}  // namespace braid
