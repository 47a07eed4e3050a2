#include "worker/input/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/readers.h"
#include "engine/input/generators/generator.h"
#include "engine/input/stream/streamed_rows.h"
#include "proto/job.pb.h"
#include "worker/input/columns.h"
#include "worker/input/data_stream.h"
#include "worker/input/taken_batches.h"
#include "worker/job/job.h"
#include "worker/model/graph_model.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

/// What lies in a directory of data, without marks such as _SUCCESS and what belongs to files.
std::vector<Path> files_in(const Path& directory) {
  std::vector<Path> files;
  for (const Path& each : list_directory(directory)) {
    const std::string name = each.string();
    if (name.starts_with('.') || name.starts_with('_') || name.ends_with(".braid_index")) continue;
    if (std::filesystem::is_regular_file(directory / each)) files.push_back(directory / each);
  }
  return files;
}

/// Names relative to `root`, or of stores, or "-". A name may be a directory, and one that is no file a
/// pattern for several.
/// `field` names who asks, and `relative` what names are relative to.
std::vector<Path> paths(const std::string& field, const std::vector<std::string>& files, const Path& root,
                        const std::string& relative) {
  std::vector<Path> result;
  for (const auto& file : files) {
    if (file == "-") {
      result.emplace_back(file);
      continue;
    }
    if (!scheme_of(file).empty()) {
      const std::vector<std::string> found = list_remote(file);
      if (found.empty()) throw InvalidArgument(field + ": no file matches '" + file + "'");
      result.insert(result.end(), found.begin(), found.end());
      continue;
    }
    const Path path = root / file;
    std::error_code unreadable;  // is for the reader to tell
    if (std::filesystem::is_directory(path, unreadable)) {
      const std::vector<Path> found = files_in(path);
      if (found.empty()) throw InvalidArgument(field + ": directory '" + path.string() + "' has no files");
      result.insert(result.end(), found.begin(), found.end());
      continue;
    }
    if (std::filesystem::exists(path, unreadable) || unreadable) {
      result.push_back(path);
      continue;
    }
    const bool pattern = file.find_first_of("*?[") != std::string::npos;
    std::vector<Path> found = pattern ? glob(path.string()) : std::vector<Path>{};
    std::erase_if(found, [](const Path& each) { return each.extension() == ".braid_index"; });
    if (found.empty())
      throw InvalidArgument(field + ": " +
                            (pattern ? "no file matches '" + path.string() + "'"
                                     : "'" + path.string() + "': No such file or directory") +
                            relative);
    result.insert(result.end(), found.begin(), found.end());
  }
  return result;
}

std::vector<Path> paths_of_job(const std::string& field,
                               const google::protobuf::RepeatedPtrField<std::string>& files,
                               const Path& root) {
  return paths("input." + field, {files.begin(), files.end()}, root,
               "; names are relative to --data-dir, which is '" + root.string() + "'");
}

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

bool reads_files(const proto::Job& job) {
  return job.input().format() != proto::Input::SYNTHETIC && job.input().format() != proto::Input::GENERATOR;
}

std::vector<Path> test_files(const proto::Job& job, const Path& data_dir) {
  if (job.input().test_files().empty())
    throw InvalidArgument("job '" + job.name() + "': input.test_files is missing; set it, or give --in FILE");
  return paths_of_job("test_files", job.input().test_files(), data_dir);
}

std::vector<Path> files_of_option(const std::string& option, const std::vector<Path>& names) {
  std::vector<std::string> texts;
  for (const Path& name : names) texts.push_back(name.string());
  return paths(option, texts, {}, {});
}

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
  std::vector<Path> files = paths_of_job("train_files", input.train_files(), data_dir);
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

ModelConfig model_config(const proto::Job& job, const Table& table) {
  ModelConfig config;
  config.hidden.assign(job.model().hidden().begin(), job.model().hidden().end());
  config.embedding_dim = job.model().embedding_dim();
  config.hash_buckets = job.model().hash_buckets();
  config.classes = job.model().classes();
  config.embedding_init = job.model().embedding_init();
  config.experts = job.model().experts();
  config.bottom.assign(job.model().bottom().begin(), job.model().bottom().end());
  config.cross_layers = job.model().cross_layers();
  config.cross_rank = job.model().cross_rank();
  config.layers = job.model().layers();
  config.heads = job.model().heads();
  config.max_rows = job.model().max_rows();
  config.dropout = job.model().dropout();
  config.tasks.assign(job.model().tasks().begin(), job.model().tasks().end());
  config.class_weights.assign(job.model().class_weights().begin(), job.model().class_weights().end());
  config.sparse_tables = job.model().sparse_tables();
  for (const auto& column : table.columns) {
    if (column.ragged()) {
      const TableField& field = column.fields.front();
      config.fields[column.name.substr(0, column.name.rfind('/'))].push_back(
          {field.name, field.length, field.ids, false, field.table, column.name, column.weights.defined()});
      continue;
    }
    const auto dims = column.data.shape().dims().subspan(1);
    config.columns[column.name] = Shape(std::vector<std::int64_t>(dims.begin(), dims.end()));
    for (const TableField& field : column.fields)
      config.fields[column.name].push_back({field.name, field.length, field.ids, field.filled, field.table});
    if (column.data.dtype() == DType::Int32) config.types[column.name] = DType::Int32;
  }
  return config;
}

namespace {

/// A column that is read from the data and then by nobody is a mistake in the schema.
void refuse_unread_columns(const proto::Job& job, const ModelGraph& model, const Table& table) {
  const auto is_read = [&](const std::string& output) {
    return output == model.label ||
           std::find(model.columns.begin(), model.columns.end(), output) != model.columns.end();
  };
  std::string unread, reads;
  for (const TableColumn& column : table.columns)
    for (const TableField& field : column.fields)
      if (!is_read(column.name) && field.name != job.evaluation().group_column())
        unread += (unread.empty() ? "'" : ", '") + field.name + "' (output '" + column.name + "')";
  if (unread.empty()) return;
  for (const std::string& column : model.columns) reads += (reads.empty() ? "'" : ", '") + column + "'";
  throw InvalidArgument("job '" + job.name() + "': input.columns: nothing reads " + unread + ": model '" +
                        model_text(job.model()) + "' reads " + reads +
                        "; give a column one of these as its output, or kind SKIP");
}

}  // namespace

ModelGraph job_model(const proto::Job& job, const Table& table, int workers) {
  ModelGraph model;
  if (job.model().has_graph()) {
    for (const TableColumn& column : table.columns)
      if (column.ragged())
        throw InvalidArgument(
            "job '" + job.name() + "': column '" + column.fields.front().name +
            "' is ragged, and model.graph reads columns of a fixed length: give it a length");
    GraphModelReport report;
    model = build_graph_model(job, columns_of_table(table), &report);
    log_info("model.graph: {}", report.summary());
  } else {
    ModelConfig config = model_config(job, table);
    config.several_workers = workers > 1;
    model = build_model(job.model().name(), config);
  }
  if (job.input().format() != proto::Input::CRITEO) refuse_unread_columns(job, model, table);
  return model;
}

void check_labels(const proto::Job& job, const ModelGraph& model, const Table& table) {
  if (model.predicts != Prediction::Probability) return;
  std::vector<std::string> labels{model.label};
  for (const ModelTask& task : model.tasks) labels.push_back(task.label);
  for (const std::string& label : labels) {
    const TableColumn* const column = table.find(label);
    if (!column || column->ragged()) continue;
    const auto check = [&](const auto values) {
      for (const auto value : values)
        if (!(value >= 0 && value <= 1))
          throw InvalidArgument(fmt::format(
              "column '{}' has the label {}, but model '{}' predicts a probability, whose labels are from 0 "
              "to 1; {}",
              column->fields.empty() ? label : column->fields.front().name, value, model_text(job.model()),
              job.model().has_graph() ? "of a model of values say evaluation.metric RMSE"
                                      : "`positive` of a column of kind LABEL makes 0 and 1 of texts"));
    };
    if (column->data.dtype() == DType::Float32) check(column->data.data<float>());
    if (column->data.dtype() == DType::Int64) check(column->data.data<std::int64_t>());
  }
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
