// A DataFile as Arrow's libraries read files, and their errors as ours. Private to the sources that are built
// with Arrow. Thread rule: as the file's.
#pragma once

#include <arrow/io/interfaces.h>

#include <memory>
#include <string>

#include "engine/input/files/data_file.h"

namespace braid {

std::shared_ptr<arrow::io::RandomAccessFile> as_arrow_file(std::shared_ptr<DataFile> file);

}  // namespace braid
