#include "worker/data.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "engine/input/readers.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

std::vector<Path> paths(const google::protobuf::RepeatedPtrField<std::string>& files, const Path& root) {
  std::vector<Path> result;
  for (const auto& file : files) result.push_back(root / file);
  return result;
}

CsvOptions csv_options(const proto::Input& input) {
  const proto::Csv& csv = input.csv();
  if (csv.columns().empty()) throw InvalidArgument("input.csv.columns is missing: a CSV needs its schema");
  if (csv.separator().size() > 1)
    throw InvalidArgument("input.csv.separator must be one character, got '" + csv.separator() + "'");
  CsvOptions options;
  if (!csv.separator().empty()) options.separator = csv.separator()[0];
  options.header = csv.header();
  options.comment = csv.comment();
  options.read.max_bad_records = input.max_bad_records();
  for (const auto& column : csv.columns()) {
    ColumnSpec to;
    to.name = column.name();
    switch (column.kind()) {
      case proto::Column::NUMERIC:
        to.kind = ColumnKind::Numeric;
        break;
      case proto::Column::CATEGORICAL:
        to.kind = ColumnKind::Categorical;
        break;
      case proto::Column::LABEL:
        to.kind = ColumnKind::Label;
        break;
      default:
        to.kind = ColumnKind::Skip;
        break;
    }
    to.buckets = column.buckets();
    to.positive = column.positive();
    to.shift = column.shift();
    to.scale = column.scale() == 0 ? 1.0 : column.scale();
    to.log1p = column.log1p();
    to.missing = column.missing();
    options.columns.push_back(std::move(to));
  }
  return options;
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

std::shared_ptr<const Table> load_files(const proto::Job& job, const std::vector<Path>& files,
                                        const char* field) {
  const proto::Input& input = job.input();
  if (files.empty()) throw InvalidArgument("job '" + job.name() + "': input." + field + " is missing");
  switch (input.format()) {
    case proto::Input::IDX:
      if (files.size() != 2)
        throw InvalidArgument("job '" + job.name() + "': input." + field +
                              " takes two IDX files, images and labels; got " + std::to_string(files.size()));
      return read_idx(files[0], files[1]);
    case proto::Input::CSV:
      return read_csv(files, csv_options(input));
    case proto::Input::CRITEO: {
      CriteoOptions options;
      if (job.model().hash_buckets() > 0) options.buckets = job.model().hash_buckets();
      options.read.max_bad_records = input.max_bad_records();
      return read_criteo(files, options);
    }
    default:
      return regression_points();
  }
}

}  // namespace

JobData load_data(const proto::Job& job, const Path& data_dir, bool with_test) {
  const proto::Input& input = job.input();
  JobData data;
  if (input.format() == proto::Input::SYNTHETIC) {
    data.train = data.test = regression_points();
    return data;
  }
  data.train = load_files(job, paths(input.train_files(), data_dir), "train_files");
  if (with_test && !input.test_files().empty())
    data.test = load_files(job, paths(input.test_files(), data_dir), "test_files");
  return data;
}

ModelConfig model_config(const proto::Job& job, const Table& table) {
  ModelConfig config;
  config.hidden.assign(job.model().hidden().begin(), job.model().hidden().end());
  config.embedding_dim = job.model().embedding_dim();
  config.hash_buckets = job.model().hash_buckets();
  config.classes = job.model().classes();
  config.sparse_tables = job.model().sparse_tables();
  for (const auto& column : table.columns) {
    const auto dims = column.data.shape().dims().subspan(1);
    config.columns[column.name] = Shape(std::vector<std::int64_t>(dims.begin(), dims.end()));
  }
  return config;
}

std::uint64_t total_steps(const proto::Job& job, const Table& table) {
  if (job.steps() > 0) return job.steps();
  const double per_epoch = static_cast<double>(table.rows / job.input().global_batch_size());
  return static_cast<std::uint64_t>(std::llround(std::max(1.0, job.epochs() * per_epoch)));
}

}  // namespace braid::worker
