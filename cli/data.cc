// `braid data`: makes data; the tools for files of any format have files of their own.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/data_tools.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/generators/criteo_generator.h"
#include "engine/input/generators/hstu_generator.h"

namespace braid::cli {
namespace {

struct CriteoOptions {
  std::int64_t rows = 100000;
  std::int64_t test_rows = 0;
  std::uint64_t seed = 1;
  std::string out = ".";
  std::string format = "tsv";
  bool gzip = false;
};

int make_criteo(const CriteoOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) throw InvalidArgument("cannot make directory '" + options.out + "': " + error.message());
  const std::int64_t test_rows =
      options.test_rows > 0 ? options.test_rows : std::max<std::int64_t>(options.rows / 10, 1000);
  CriteoGeneratorOptions generator{.seed = options.seed};
  if (options.format == "tfrecord") generator.format = FileFormat::TfRecord;
  if (options.gzip) generator.compression = Compression::Gzip;
  for (const auto& [name, rows, first] :
       {std::tuple{"train.", options.rows, std::int64_t{0}}, std::tuple{"test.", test_rows, options.rows}}) {
    const auto file =
        std::filesystem::path(options.out) / (name + options.format + (options.gzip ? ".gz" : ""));
    generator.rows = rows;
    generator.first_row = first;
    const CriteoGeneratorResult made = generate_criteo(file, generator);
    fmt::print("{}: {} rows, {:.1f} % positive, AUC of the true probabilities {:.4f}\n", file.string(),
               made.rows, 100.0 * static_cast<double>(made.positives) / static_cast<double>(made.rows),
               made.auc_ceiling);
  }
  return kExitSuccess;
}

struct MlperfOptions {
  std::int64_t rows = 100000;
  std::int64_t test_rows = 0;
  std::uint64_t seed = 1;
  std::string out = ".";
  std::string format = "bin";
};

int make_mlperf(const MlperfOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) throw InvalidArgument("cannot make directory '" + options.out + "': " + error.message());
  const std::int64_t test_rows =
      options.test_rows > 0 ? options.test_rows : std::max<std::int64_t>(options.rows / 10, 1000);
  const bool arrays = options.format == "npy";
  for (const auto& [name, rows, first] :
       {std::tuple{"train", options.rows, std::int64_t{0}}, std::tuple{"val", test_rows, options.rows}}) {
    const MlperfGeneratorOptions generator{.rows = rows, .first_row = first, .seed = options.seed};
    const auto file = std::filesystem::path(options.out) / (arrays ? name : std::string(name) + "_data.bin");
    const MlperfGeneratorResult made =
        arrays ? generate_mlperf_dlrm_arrays(file, generator) : generate_mlperf_dlrm(file, generator);
    fmt::print("{}: {} rows, {:.1f} % positive, AUC of the true probabilities {:.4f}\n",
               file.string() + (arrays ? "_*.np[yz]" : ""), made.rows,
               100.0 * static_cast<double>(made.positives) / static_cast<double>(made.rows),
               made.auc_ceiling);
  }
  return kExitSuccess;
}

void add_mlperf(CLI::App& data, Action& action) {
  auto options = std::make_shared<MlperfOptions>();
  CLI::App* mlperf = data.add_subcommand(
      "mlperf-dlrm",
      "Rows in the binary layout of MLPerf's DLRM-v2, with its skew, from a hidden model: train_data.bin and "
      "val_data.bin. Synthetic: no MLPerf result comes of them");
  mlperf->add_option("--rows", options->rows, "Training rows, 912 bytes each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  mlperf->add_option("--test-rows", options->test_rows,
                     "Test rows; default a tenth of --rows, at least 1000");
  mlperf->add_option("--seed", options->seed, "Of the hidden model and the rows")->capture_default_str();
  mlperf->add_option("--out", options->out, "Directory for the files")->capture_default_str();
  mlperf->add_option("--format", options->format, "bin, or npy: arrays as the reference reads them")
      ->check(CLI::IsMember({"bin", "npy"}))
      ->capture_default_str();
  mlperf->callback([options, &action] { action = [options] { return make_mlperf(*options); }; });
}

struct HstuOptions {
  HstuGeneratorOptions generator{.users = 1000};
  std::string out = ".";
  std::string format = "parquet";
};

int make_hstu(HstuOptions options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) throw InvalidArgument("cannot make directory '" + options.out + "': " + error.message());
  options.generator.format = file_format_from_name(options.format);
  for (const bool evaluation : {false, true}) {
    const auto file =
        std::filesystem::path(options.out) / ((evaluation ? "test." : "train.") + options.format);
    const HstuGeneratorResult made = generate_hstu(file, options.generator, evaluation);
    fmt::print(
        "{}: {} samples, {:.0f} tokens each, {:.1f} % positive, AUC of the true probabilities {:.4f}\n",
        file.string(), made.samples, static_cast<double>(made.tokens) / static_cast<double>(made.samples),
        100.0 * static_cast<double>(made.positives) / static_cast<double>(made.samples), made.auc_ceiling);
  }
  return kExitSuccess;
}

void add_hstu(CLI::App& data, Action& action) {
  auto options = std::make_shared<HstuOptions>();
  CLI::App* hstu = data.add_subcommand(
      "hstu",
      "Users' histories with the statistics of MLPerf's HSTU, from a hidden model: train.parquet, and "
      "test.parquet with the last day. Synthetic: no MLPerf result comes of them");
  HstuGeneratorOptions& made = options->generator;
  hstu->add_option("--users", made.users, "Users; those of few events have no samples")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  hstu->add_option("--samples", made.samples_of_user, "Most samples of a user in each file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  hstu->add_option("--history", made.history,
                   "Most events of a history; fewer than the benchmark's scale users down")
      ->capture_default_str();
  hstu->add_option("--items", made.items, "Items")->check(CLI::PositiveNumber)->capture_default_str();
  hstu->add_option("--artists", made.artists, "Artists")->check(CLI::PositiveNumber)->capture_default_str();
  hstu->add_option("--albums", made.albums, "Albums")->check(CLI::PositiveNumber)->capture_default_str();
  hstu->add_option("--seed", made.seed, "Of the hidden model and the users")->capture_default_str();
  hstu->add_option("--out", options->out, "Directory for the files")->capture_default_str();
  hstu->add_option("--format", options->format, "parquet, or tfrecord: tf.train.Example")
      ->check(CLI::IsMember({"parquet", "tfrecord"}))
      ->capture_default_str();
  hstu->callback([options, &action] { action = [options] { return make_hstu(*options); }; });
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* data =
      app.add_subcommand("data", "Make, show, measure, convert, split and shuffle training data");
  add_data_show(*data, action);
  add_data_stats(*data, action);
  add_data_convert(*data, action);
  add_data_split(*data, action);
  add_data_shuffle(*data, action);
  add_mlperf(*data, action);
  add_hstu(*data, action);
  auto options = std::make_shared<CriteoOptions>();
  CLI::App* criteo =
      data->add_subcommand("criteo",
                           "Rows in the Criteo layout from a hidden model: train.tsv and "
                           "test.tsv (or .tfrecord), with the best AUC that is possible on each");
  criteo->add_option("--rows", options->rows, "Training rows")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  criteo->add_option("--test-rows", options->test_rows,
                     "Test rows; default a tenth of --rows, at least 1000");
  criteo->add_option("--seed", options->seed, "Of the hidden model and the rows")->capture_default_str();
  criteo->add_option("--out", options->out, "Directory for the two files")->capture_default_str();
  criteo->add_option("--format", options->format, "tsv, or tfrecord: tf.train.Example")
      ->check(CLI::IsMember({"tsv", "tfrecord"}))
      ->capture_default_str();
  criteo->add_flag("--gzip", options->gzip, "Write .gz files");
  criteo->callback([options, &action] { action = [options] { return make_criteo(*options); }; });
}

}  // namespace braid::cli
