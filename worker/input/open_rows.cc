#include "worker/input/open_rows.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/formats/parquet_files.h"
#include "proto/job.pb.h"
#include "worker/input/columns.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

CsvOptions csv_options(const proto::Job& job, const Path& root, const ReadOptions& read) {
  const proto::Csv& csv = job.input().csv();
  CsvOptions options;
  options.columns = job_schema(job, root);
  options.separator = one_character(csv.separator(), "input.csv.separator", ',');
  options.header = csv.header();
  options.comment = csv.comment();
  options.read = read;
  return options;
}

DenseTransform dense_transform(const proto::Input& input) {
  switch (input.criteo().dense()) {
    case proto::Criteo::RAW:
      return DenseTransform::Raw;
    case proto::Criteo::SQUARED_LOG:
      return DenseTransform::SquaredLog;
    default:
      return DenseTransform::Log1p;
  }
}

std::unique_ptr<RowStream> stream_images(const proto::Job& job, const std::string& option,
                                         const std::vector<Path>& files, const ReadOptions& read) {
  const auto& ignored = read.ignored;
  const bool without_labels = std::find(ignored.begin(), ignored.end(), "label") != ignored.end();
  if (!read.key_column.empty() || !read.group_column.empty())
    throw InvalidArgument("job '" + job.name() + "': IDX files have no columns for keys or groups");
  if (files.size() == 2) return stream_idx(files[0], files[1]);
  if (files.size() == 1 && without_labels) return stream_idx(files[0], std::nullopt);
  throw InvalidArgument("job '" + job.name() + "': " + option + " takes two IDX files, images and labels" +
                        (without_labels ? ", or the images" : "") + "; got " + std::to_string(files.size()));
}

}  // namespace

std::unique_ptr<RowStream> open_rows(const proto::Job& job, const Path& data_dir, const std::string& option,
                                     const std::vector<Path>& files, const ReadOptions& read) {
  const proto::Input& input = job.input();
  switch (input.format()) {
    case proto::Input::IDX:
      return stream_images(job, option, files, read);
    case proto::Input::CSV:
      return stream_csv(files, csv_options(job, data_dir, read));
    case proto::Input::TFRECORD:
      return stream_tfrecord(files, {.columns = job_schema(job, data_dir), .read = read});
    case proto::Input::PARQUET:
      return stream_parquet(files, {.columns = job_schema(job, data_dir), .read = read});
    case proto::Input::MLPERF_DLRM:
      return stream_mlperf_dlrm(files, {.max_rows = job.model().max_rows(), .read = read});
    case proto::Input::NPY:
      return stream_npy(files, read);
    case proto::Input::TEXT:
      return stream_text_lines(files, {.columns = job_schema(job, data_dir), .read = read});
    default: {
      CriteoOptions options;
      if (job.model().hash_buckets() > 0) options.buckets = job.model().hash_buckets();
      options.dense = dense_transform(input);
      options.read = read;
      return stream_criteo(files, options);
    }
  }
}

std::shared_ptr<const Table> empty_rows(const proto::Job& job, const Path& data_dir,
                                        const std::vector<Path>& files) {
  const bool images = job.input().format() == proto::Input::IDX;
  const bool arrays = job.input().format() == proto::Input::NPY;
  ReadOptions read;
  if (images) read.ignored = {"label"};
  return open_rows(job, data_dir, "--in", images || arrays ? files : std::vector<Path>{}, read)->next(0);
}

std::int64_t rows_at_once(std::int64_t batch_rows) {
  constexpr std::int64_t kRows = 16384;
  return batch_rows * std::max<std::int64_t>(1, kRows / batch_rows);
}

}  // namespace braid::worker
