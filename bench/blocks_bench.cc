// Question: how fast does one core turn files into the blocks of rows that a stream hands out?
//
//   blocks_bench --format criteo|csv|tfrecord|parquet|parquet-criteo [--rounds N] FILE...
//
// Reads every block once, a few neighbours at a time, as windows do. rows_per_s and mb_per_s are by the
// thread's own CPU time; mb are bytes of the files, table_mb those of the rows as a model reads them. Of text
// and TFRecord "index" is the pass over the files that is made once. criteo and parquet-criteo: label, 13
// numbers, 26 categories hashed into 100,000; parquet: columns f0.. of floats and i0.. of integers, all
// numbers; csv: those too. bench/blocks.py makes the files and reads them by pyarrow in the same rounds. A
// JSON line each.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/stream/row_blocks.h"

namespace braid {
namespace {

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<ColumnSpec> numbers() {
  std::vector<ColumnSpec> columns;
  for (const char* kind : {"f", "i"})
    for (int c = 0; c < 8; ++c)
      columns.push_back({.name = kind + std::to_string(c), .kind = ColumnKind::Numeric});
  return columns;
}

std::vector<ColumnSpec> clicks() {
  std::vector<ColumnSpec> columns{{.name = "label", .kind = ColumnKind::Label}};
  for (int c = 1; c <= 13; ++c)
    columns.push_back({.name = "I" + std::to_string(c), .kind = ColumnKind::Numeric, .log1p = true});
  for (int c = 1; c <= 26; ++c)
    columns.push_back({.name = "C" + std::to_string(c), .kind = ColumnKind::Categorical, .buckets = 100000});
  return columns;
}

struct Read {
  std::vector<IndexedFile> files;
  MakeRowStream make;
};

Read open(const std::string& format, const std::vector<std::filesystem::path>& files) {
  Read read;
  if (format.starts_with("parquet")) {
    const std::vector<ColumnSpec> columns = format == "parquet" ? numbers() : clicks();
    read.files = parquet_indexes(files, {.columns = columns}, std::uint64_t{4} << 20);
    read.make = [columns](const ReadOptions& options) {
      return stream_parquet({}, {.columns = columns, .read = options});
    };
    return read;
  }
  BlockIndexOptions index;
  index.directory = std::filesystem::temp_directory_path() / "braid-blocks-bench";
  std::filesystem::remove_all(index.directory);
  index.layout = format == "tfrecord" ? RecordLayout::TfRecord : RecordLayout::Fields;
  if (format == "csv") index.is_header = [](std::string_view) { return true; };
  read.files = block_indexes(files, [&](const std::filesystem::path&) { return index; });
  std::filesystem::remove_all(index.directory);
  if (format == "csv")
    read.make = [](const ReadOptions& options) {
      return stream_csv({}, {.header = true, .columns = numbers(), .read = options});
    };
  else
    read.make = [](const ReadOptions& options) {
      return stream_criteo({}, {.buckets = 100000, .read = options});
    };
  return read;
}

int run(int argc, char** argv) {
  std::string format;
  int rounds = 3;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--format") == 0 && i + 1 < argc)
      format = argv[++i];
    else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else
      files.emplace_back(argv[i]);
  }
  if (format.empty() || files.empty()) throw InvalidArgument("blocks_bench --format FORMAT FILE...");
  double megabytes = 0;
  for (const auto& file : files) megabytes += static_cast<double>(std::filesystem::file_size(file)) / 1e6;
  const double before = thread_seconds();
  const Read read = open(format, files);
  const double index = thread_seconds() - before;
  const auto source = make_row_blocks(read.files, read.make, 0);
  std::vector<double> seconds;
  double table_megabytes = 0;
  for (int round = 0; round < rounds; ++round) {
    constexpr std::size_t kTogether = 4;
    const double begin = thread_seconds();
    std::int64_t rows = 0;
    table_megabytes = 0;
    for (std::size_t b = 0; b < source->blocks().size(); b += kTogether) {
      std::vector<BlockPart> parts;
      for (std::size_t p = b; p < std::min(b + kTogether, source->blocks().size()); ++p)
        parts.push_back({p, 0, source->blocks()[p].rows});
      const auto table = source->read(parts);
      rows += table->rows;
      for (const TableColumn& column : table->columns)
        table_megabytes += static_cast<double>(column.data.bytes()) / 1e6;
    }
    if (rows != rows_of(*source)) throw Internal("blocks_bench: rows are missing");
    seconds.push_back(thread_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  fmt::print(
      "{{\"bench\":\"blocks\",\"format\":\"{}\",\"rows\":{},\"blocks\":{},\"index_s\":{:.3f},\"index_mb_per_"
      "s\":{:.0f},"
      "\"rows_per_s\":{:.0f},\"mb_per_s\":{:.0f},\"table_mb_per_s\":{:.0f},\"cpu\":\"{}\"}}\n",
      format, rows_of(*source), source->blocks().size(), index, megabytes / std::max(index, 1e-9),
      static_cast<double>(rows_of(*source)) / median, megabytes / median, table_megabytes / median,
      cpu_name());
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  try {
    return braid::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
