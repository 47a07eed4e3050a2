#include "worker/input/data_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "engine/input/formats/block_index.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/sniff.h"
#include "engine/input/stream/kafka_records.h"
#include "engine/input/stream/row_blocks.h"
#include "proto/job.pb.h"
#include "worker/input/columns.h"
#include "worker/input/open_rows.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using FilePaths = std::vector<std::filesystem::path>;

constexpr std::int64_t kStreamFromBytes = std::int64_t{1} << 30;
/// Of a unit of input.shard DYNAMIC.
constexpr std::int64_t kWindowsOfUnit = 4;
/// Of what this process may use, for rows that are read ahead: a container has room for a model, too.
constexpr std::uint64_t kAheadShareOfMemory = 4;
/// Of a packed file's bytes, about what its rows take.
constexpr std::int64_t kPackedRatio = 4;

/// Bytes of the files as they lie; packed ones, and Parquet, as they are inside.
std::int64_t data_bytes(const proto::Job& job, const FilePaths& files, std::int64_t enough) {
  if (job.input().format() == proto::Input::MLPERF_DLRM) return mlperf_dlrm_bytes(files);
  std::int64_t bytes = 0;
  for (const std::filesystem::path& file : files) {
    const auto size = static_cast<std::int64_t>(stamp_of(file).size);
    const bool packed = job.input().format() == proto::Input::PARQUET ||
                        (job.input().format() != proto::Input::TFRECORD &&
                         open_bytes(file)->compression() != Compression::None) ||
                        file.extension() == ".gz";
    bytes += size * (packed ? kPackedRatio : 1);
    if (bytes > enough) break;
  }
  return bytes;
}

/// Row groups are best read whole, and may be as large as fits: a window of each shard that is used, and one
/// that is read.
std::uint64_t parquet_block_bytes(const proto::Job& job) {
  const StreamedRowsOptions options = streamed_rows_options(job);
  const auto asked = static_cast<std::uint64_t>(job.input().stream().block_bytes());
  return std::max<std::uint64_t>({asked, std::uint64_t{1} << 18,
                                  static_cast<std::uint64_t>(options.memory_bytes / (4 * options.shards))});
}

BlockIndexOptions index_options(const proto::Job& job, const std::filesystem::path& file) {
  const proto::Input& input = job.input();
  BlockIndexOptions options;
  if (input.stream().block_bytes() > 0)
    options.block_bytes = static_cast<std::uint64_t>(input.stream().block_bytes());
  options.max_bad_records = input.max_bad_records();
  options.directory = input.stream().index_directory();
  switch (input.format()) {
    case proto::Input::CSV:
      options.layout = RecordLayout::Fields;
      options.separator = input.csv().separator().empty() ? ',' : input.csv().separator()[0];
      options.comment = input.csv().comment();
      if (input.csv().header()) options.is_header = [](std::string_view) { return true; };
      break;
    case proto::Input::TFRECORD:
      options.layout = RecordLayout::TfRecord;
      break;
    case proto::Input::CRITEO:
      options.layout = holds_tfrecords(file) ? RecordLayout::TfRecord : RecordLayout::Fields;
      options.is_header = [](std::string_view line) { return line.starts_with("label"); };
      break;
    default:
      break;
  }
  return options;
}

std::vector<IndexedFile> indexes_of(const proto::Job& job, const std::filesystem::path& data_dir,
                                    const FilePaths& files) {
  switch (job.input().format()) {
    case proto::Input::PARQUET:
      return parquet_indexes(files, {.columns = job_schema(job, data_dir)}, parquet_block_bytes(job));
    case proto::Input::MLPERF_DLRM:
      return mlperf_dlrm_indexes(files, index_options(job, files[0]).block_bytes);
    default:
      return block_indexes(files,
                           [&](const std::filesystem::path& file) { return index_options(job, file); });
  }
}

std::shared_ptr<BlockSource> blocks_of(const proto::Job& job, const std::filesystem::path& data_dir,
                                       const FilePaths& files, std::shared_ptr<FileReads> reads) {
  const MakeRowStream make = [job, data_dir](const ReadOptions& read) {
    return open_rows(job, data_dir, "input.train_files", {}, read);
  };
  return make_row_blocks(indexes_of(job, data_dir, files), make, job.input().max_bad_records(),
                         std::move(reads));
}

/// More than all of the page cache can hold, so that nothing of it is there when it is read again.
bool exceed_memory(const FilePaths& files) {
  std::uint64_t bytes = 0;
  for (const std::filesystem::path& file : files) bytes += stamp_of(file).size;
  return bytes > usable_memory();
}

}  // namespace

bool is_streamed(const proto::Job& job, const char* field, const FilePaths& files) {
  const proto::Input& input = job.input();
  if (std::find(files.begin(), files.end(), "-") != files.end()) {
    if (input.read() == proto::Input::STREAM && std::string_view(field) == "train_files")
      throw InvalidArgument(
          "input.train_files: '-' is read once, so its rows are held: input.read cannot be STREAM");
    return false;
  }
  if (!can_stream(input)) return false;
  if (input.read() != proto::Input::AUTO) return input.read() == proto::Input::STREAM;
  if (input.shard() == proto::Input::ROWS || input.shuffle_buffer() > 0) return false;
  const std::int64_t from = input.stream().from_bytes() > 0 ? input.stream().from_bytes() : kStreamFromBytes;
  const std::int64_t bytes = data_bytes(job, files, from);
  if (bytes <= from) return false;
  log_info("input.{}: more than {}, so rows are streamed (input.read: MEMORY holds them all)", field,
           bytes_text(static_cast<double>(from)));
  return true;
}

std::shared_ptr<BlockSource> open_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                                         const FilePaths& files, ProgressMode progress) {
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<BlockSource> source = blocks_of(job, data_dir, files, file_reads(job, files));
  if (rows_of(*source) == 0)
    throw InvalidArgument(
        fmt::format("input.train_files: '{}'{} no records", files[0].string(),
                    files.size() > 1 ? fmt::format(" and {} more files have", files.size() - 1) : " has"));
  if (progress != ProgressMode::Off)
    log_info("input: streams {} file{}, {} rows in {} blocks, known after {:.1f} s", files.size(),
             files.size() == 1 ? "" : "s", count_text(static_cast<double>(rows_of(*source))),
             source->blocks().size(),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return source;
}

std::shared_ptr<BlockSource> open_file_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                                              const std::filesystem::path& file,
                                              std::shared_ptr<FileReads> reads) {
  return blocks_of(job, data_dir, {file}, std::move(reads));
}

OpenBlocks kafka_blocks(const proto::Job& job, const std::filesystem::path& data_dir,
                        std::shared_ptr<KafkaLog> log) {
  const proto::Input& input = job.input();
  KafkaRecordsOptions options;
  options.max_bad_records = input.max_bad_records();
  options.empty_is_bad = input.format() != proto::Input::TEXT;
  if (input.stream().block_bytes() > 0)
    options.block_bytes = static_cast<std::uint64_t>(input.stream().block_bytes());
  if (input.format() == proto::Input::TFRECORD) options.layout = RecordLayout::TfRecord;
  if (input.format() == proto::Input::CSV) {
    options.layout = RecordLayout::Fields;
    if (!input.csv().separator().empty()) options.separator = input.csv().separator()[0];
    options.comment = input.csv().comment();
  }
  const MakeRowStream make = [job, data_dir](const ReadOptions& read) {
    return open_rows(job, data_dir, "input.train_files", {}, read);
  };
  return [records = std::make_shared<KafkaRecords>(std::move(log), options), make,
          bad = input.max_bad_records()](const std::string& span) -> std::shared_ptr<BlockSource> {
    return make_row_blocks({records->file(span)}, make, bad);
  };
}

std::shared_ptr<FileReads> file_reads(const proto::Job& job, const FilePaths& files) {
  FileReadOptions options;
  const proto::Stream& stream = job.input().stream();
  options.direct = stream.direct_reads() == proto::Stream::ON ||
                   (stream.direct_reads() == proto::Stream::AUTO && exceed_memory(files));
  options.timeout = streamed_rows_options(job).timeout;
  return std::make_shared<FileReads>(options);
}

std::int64_t rows_of_unit(const proto::Job& job) {
  return streamed_rows_options(job).window_rows * kWindowsOfUnit;
}

StreamedRowsOptions streamed_rows_options(const proto::Job& job) {
  const proto::Stream& from = job.input().stream();
  StreamedRowsOptions options;
  if (from.window_rows() > 0) options.window_rows = from.window_rows();
  if (from.virtual_shards() > 0) options.shards = static_cast<int>(from.virtual_shards());
  // A worker's batches come one behind the other from windows of its own, of which a unit has several, so
  // that hardly any block is read by two.
  if (takes_batches(job)) {
    options.shards = 1;
    options.window_rows = std::max<std::int64_t>(1, options.window_rows / kWindowsOfUnit);
  }
  if (from.memory_bytes() > 0) options.memory_bytes = from.memory_bytes();
  options.ahead_bytes = static_cast<std::int64_t>(usable_memory() / kAheadShareOfMemory);
  if (from.threads() > 0) options.threads = static_cast<int>(from.threads());
  if (job.staging().timeout_millis() > 0)
    options.timeout = std::chrono::milliseconds(job.staging().timeout_millis());
  return options;
}

}  // namespace braid::worker
