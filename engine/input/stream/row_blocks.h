// A block source over the readers of rows (readers.h): text and TFRecord files in the blocks of their index.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/input/formats/block_index.h"
#include "engine/input/formats/readers.h"
#include "engine/input/stream/block_source.h"

namespace braid {

/// Makes a reader of no files, which takes pieces. Called from any thread.
using MakeRowStream = std::function<std::unique_ptr<RowStream>(const ReadOptions& read)>;

/// `max_bad_records` over the whole of the source's life, each record once. `reads`: of the files' blocks;
/// null: through the page cache.
std::unique_ptr<BlockSource> make_row_blocks(std::vector<IndexedFile> files, MakeRowStream make,
                                             std::int64_t max_bad_records,
                                             std::shared_ptr<FileReads> reads = nullptr);

}  // namespace braid
