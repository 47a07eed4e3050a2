#include "worker/input/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/generators/generator.h"
#include "engine/input/stream/streamed_rows.h"
#include "proto/job.pb.h"
#include "worker/input/columns.h"
#include "worker/input/data_stream.h"
#include "worker/input/input_files.h"
#include "worker/input/open_rows.h"
#include "worker/input/taken_batches.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

/// The 17 points of the two-branch linear regression: both inputs are the same series.
std::shared_ptr<const Table> regression_points() {
  constexpr std::array<float, 17> inputs{3.3F,   4.4F,   5.5F,   6.71F,  6.93F,  4.168F,
                                         9.779F, 6.182F, 7.59F,  2.167F, 7.042F, 10.791F,
                                         5.313F, 7.997F, 5.654F, 9.27F,  3.1F};
  constexpr std::array<float, 17> truths{1.7F,   2.76F,  2.09F,  3.19F, 1.694F, 1.573F, 3.336F, 2.596F, 2.53F,
                                         1.221F, 2.827F, 3.465F, 1.65F, 2.904F, 2.42F,  2.94F,  1.3F};
  auto table = std::make_shared<Table>();
  table->rows = inputs.size();
  const Shape shape{table->rows, 1};
  table->columns.push_back({"x", Tensor::from<float>(shape, inputs)});
  table->columns.push_back({"y", Tensor::from<float>(shape, inputs)});
  table->columns.push_back({"z", Tensor::from<float>(shape, truths)});
  return table;
}

/// Of several workers' files, those of `rank`.
std::vector<Path> own_files(const std::vector<Path>& files, const DataShard& shard) {
  std::vector<Path> own;
  for (std::size_t i = static_cast<std::size_t>(shard.rank); i < files.size();
       i += static_cast<std::size_t>(shard.world))
    own.push_back(files[i]);
  if (own.empty())
    throw InvalidArgument("input.shard FILES: " + std::to_string(files.size()) + " files are fewer than " +
                          std::to_string(shard.world) + " workers");
  return own;
}

/// "train_files: 3 files, 127.3 MiB".
std::string describe(const char* field, const std::vector<Path>& files) {
  double bytes = 0;
  for (const Path& file : files) {
    if (!scheme_of(file.native()).empty()) continue;
    std::error_code unknown;
    const std::uintmax_t size = std::filesystem::file_size(file, unknown);
    if (!unknown) bytes += static_cast<double>(size);
  }
  return fmt::format("{}: {} file{}, {}", field, files.size(), files.size() == 1 ? "" : "s",
                     bytes_text(bytes));
}

std::shared_ptr<const Table> load_files(const proto::Job& job, const Path& root, const char* field,
                                        const std::vector<Path>& files, ReadOptions read, ProgressMode mode) {
  if (files.empty()) throw InvalidArgument("job '" + job.name() + "': input." + field + " is missing");
  const std::string what = describe(field, files);
  std::optional<LoadingProgress> progress(std::in_place, mode, what);
  read.progress = [&](std::int64_t rows) { progress->update(rows); };
  const std::shared_ptr<const Table> table =
      open_rows(job, root, "input." + std::string(field), files, read)->next(INT64_MAX);
  const double seconds = progress->elapsed_seconds();
  progress.reset();
  if (mode != ProgressMode::Off)
    log_info("{}, {} rows in {:.1f} s", what, count_text(static_cast<double>(table->rows)), seconds);
  if (table->rows > 0) return table;
  throw InvalidArgument(
      "input." + std::string(field) + ": '" + files[0].string() + "'" +
      (files.size() > 1 ? " and " + std::to_string(files.size() - 1) + " more files have" : " has") +
      " no records" + (read.world > 1 ? " for worker " + std::to_string(read.rank) : ""));
}

/// The table with the ids of a column of the schema as groups.
std::shared_ptr<const Table> with_groups(const Table& table, const std::vector<ColumnSpec>& columns,
                                         const std::string& name) {
  std::int64_t place = 0;
  const ColumnSpec* group = nullptr;
  for (const ColumnSpec& column : columns)
    if (column.name == name && column.kind != ColumnKind::Skip) group = &column;
  if (!group) throw InvalidArgument("evaluation.group_column '" + name + "' is no column of the schema");
  if (group->ragged)
    throw InvalidArgument("evaluation.group_column '" + name + "' is ragged, groups need one id a row");
  for (const ColumnSpec* column = columns.data(); column != group; ++column)
    if (column->kind != ColumnKind::Skip && output_name(*column) == output_name(*group))
      place += column->length;
  const TableColumn& from = *table.find(output_name(*group));
  if (from.data.dtype() != DType::Int64)
    throw InvalidArgument("evaluation.group_column '" + name + "' has numbers, groups need ids");
  const std::int64_t width = table.rows == 0 ? 1 : from.data.elements() / table.rows;
  Tensor groups(DType::Int64, Shape{table.rows});
  for (std::int64_t row = 0; row < table.rows; ++row)
    groups.data<std::int64_t>()[static_cast<std::size_t>(row)] =
        from.data.data<std::int64_t>()[static_cast<std::size_t>(row * width + place)];
  auto grouped = std::make_shared<Table>(table);
  grouped->columns.push_back({kGroupColumn, std::move(groups)});
  return grouped;
}

JobData generate(const proto::Job& job, const Path& root, bool with_test) {
  const proto::Generator& generator = job.input().generator();
  GeneratorOptions options{.columns = job_schema(job, root), .rows = generator.rows(), .seed = job.seed()};
  JobData data;
  data.train = generate_rows(options);
  options.first_row = std::exchange(options.rows, generator.test_rows());
  if (!with_test || options.rows == 0) return data;
  data.test = generate_rows(options);
  if (const std::string& group = job.evaluation().group_column(); !group.empty())
    data.test = with_groups(*data.test, options.columns, group);
  return data;
}

}  // namespace

std::vector<std::string> class_words(const proto::Job& job, const Path& data_dir, const std::string& label) {
  if (job.input().columns().empty() && job.input().csv().columns().empty()) return {};
  for (const ColumnSpec& column : job_schema(job, data_dir))
    if (column.kind == ColumnKind::Class && output_name(column) == label) return column.vocabulary;
  return {};
}

namespace {

void load_test(const proto::Job& job, const Path& data_dir, bool with_test, ProgressMode progress,
               JobData& data) {
  if (!with_test || job.input().test_files().empty()) return;
  const std::vector<Path> files = test_files(job, data_dir);
  const ReadOptions read{.max_bad_records = job.input().max_bad_records(),
                         .group_column = job.evaluation().group_column()};
  if (!is_streamed(job, "test_files", files)) {
    data.test = load_files(job, data_dir, "test_files", files, read, progress);
    return;
  }
  data.open_test = [job, data_dir, files, read] {
    return open_rows(job, data_dir, "input.test_files", files, read);
  };
  data.test = data.open_test()->next(0);
}

}  // namespace

JobData load_data(const proto::Job& job, const Path& data_dir, bool with_test, const DataShard& shard,
                  ProgressMode progress, const FollowRun* follow) {
  const proto::Input& input = job.input();
  JobData data;
  if (input.format() == proto::Input::SYNTHETIC) {
    data.train = regression_points();
    if (with_test) data.test = data.train;
    return data;
  }
  if (input.format() == proto::Input::GENERATOR) return generate(job, data_dir, with_test);
  if (input.has_follow() && follow) {
    data.followed = follow_input(job, data_dir, *follow);
    data.stream = data.followed.files;
    data.train = data.stream->columns();
    load_test(job, data_dir, with_test, progress, data);
    return data;
  }
  std::vector<Path> files = train_files(job, data_dir);
  ReadOptions read{.max_bad_records = input.max_bad_records()};
  if (input.shard() == proto::Input::FILES) files = own_files(files, shard);
  if (is_streamed(job, "train_files", files)) {
    data.stream = open_blocks(job, data_dir, files, progress);
    auto columns = std::make_shared<Table>(*data.stream->columns());
    columns->rows_of_all = rows_of(*data.stream);
    data.train = std::move(columns);
    load_test(job, data_dir, with_test, progress, data);
    return data;
  }
  if (input.shard() == proto::Input::ROWS) {
    read.rank = shard.rank;
    read.world = shard.world;
  }
  data.train = load_files(job, data_dir, "train_files", files, read, progress);
  if (data.train->skipped > 0) log_warning("input: {} bad records were skipped", data.train->skipped);
  load_test(job, data_dir, with_test, progress, data);
  return data;
}

std::function<std::shared_ptr<const Table>()> next_test_rows(const JobData& data, std::int64_t batch_rows) {
  if (!data.open_test) return [left = data.test]() mutable { return std::exchange(left, nullptr); };
  return [stream = std::shared_ptr<RowStream>(data.open_test()),
          part = rows_at_once(batch_rows)]() -> std::shared_ptr<const Table> {
    std::shared_ptr<Table> table = stream->next(part);
    return table->rows > 0 ? table : nullptr;
  };
}

std::function<TestShare()> next_test_share(const JobData& data, std::int64_t batch_rows, int rank,
                                           int world) {
  if (!data.open_test)
    return [left = data.test]() mutable { return TestShare{std::exchange(left, nullptr)}; };
  return [stream = std::shared_ptr<RowStream>(data.open_test()), part = rows_at_once(batch_rows), batch_rows,
          rank, world, number = std::int64_t{0}]() mutable -> TestShare {
    for (;; ++number) {
      const bool is_own = number % world == rank;
      if (!is_own && stream->skip(part) == 0) return {};
      if (!is_own) continue;
      std::shared_ptr<Table> table = stream->next(part);
      if (table->rows == 0) return {};
      return {std::move(table), number++ * (part / batch_rows), true};
    }
  };
}

std::unique_ptr<Batcher> make_batcher(const proto::Job& job, const JobData& data,
                                      const std::vector<std::string>& columns, const BatchOptions& options,
                                      const TakenBatches* taken) {
  if (!data.stream) return std::make_unique<Batcher>(data.train, columns, options);
  std::unique_ptr<WindowPlan> plan;
  if (data.followed.files)
    plan = std::make_unique<FollowPlan>(data.followed.files, followed_options(job, options));
  StreamedRowsOptions stream = streamed_rows_options(job);
  if (taken) stream.next_asked = [taken](std::uint64_t batch) { return taken->next_taken(batch); };
  BatchOptions read = options;
  if (options.equal_work) {  // the work of other workers' rows decides, too
    read.rank = 0;
    read.world = 1;
  }
  auto rows = std::make_shared<StreamedRows>(data.stream, std::move(plan), stream, read);
  log_info("input: {}", rows->describe());
  return std::make_unique<Batcher>(std::move(rows), columns, options);
}

std::uint64_t total_steps(const proto::Job& job, const Table& table) {
  if (job.steps() > 0) return job.steps();
  const bool elsewhere = job.input().shard() == proto::Input::ROWS || table.rows == 0;
  const std::int64_t rows = elsewhere ? table.rows_of_all : table.rows;
  const std::int64_t batch = job.input().global_batch_size();
  const double per_epoch = job.input().carry_remainder()
                               ? static_cast<double>(rows) / static_cast<double>(batch)
                               : static_cast<double>(rows / batch);
  return static_cast<std::uint64_t>(std::llround(std::max(1.0, job.epochs() * per_epoch)));
}

}  // namespace braid::worker
