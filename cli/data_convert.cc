// `braid data convert`: records of files of any format into one file of another. Two files of IDX, images and
// labels, become records that have both. Criteo's raw days become the rows of MLPerf's DLRM-v2.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "cli/data_tools.h"
#include "cli/record_inputs.h"
#include "engine/input/convert/criteo_days.h"

namespace braid::cli {
namespace {

struct ConvertOptions {
  InputOptions inputs;
  OutputOptions output;
  bool mlperf = false;
  CriteoDaysOptions days;
};

/// Numbers in names count as numbers: day_2 is before day_10.
bool is_before(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto key = [](const std::string& text) {
    std::string padded, digits;
    for (const char c : text + '\0') {
      if (c >= '0' && c <= '9') {
        digits += c;
        continue;
      }
      constexpr std::size_t kWidth = 20;
      if (!digits.empty()) padded += std::string(kWidth - std::min(kWidth, digits.size()), '0') + digits;
      digits.clear();
      padded += c;
    }
    return padded;
  };
  return key(a.string()) < key(b.string());
}

int convert_days(ConvertOptions options) {
  CriteoDaysOptions& days = options.days;
  days.days.assign(options.inputs.files.begin(), options.inputs.files.end());
  std::ranges::stable_sort(days.days, is_before);
  days.out = options.output.out;
  if (days.work.empty()) days.work = days.out / "work";
  days.max_bad_records = options.inputs.max_bad_records;
  days.progress = [](const std::string& line) { log_info("{}", line); };
  const CriteoDaysResult made = convert_criteo_days(days);
  fmt::print("{}: {} training rows in {} files, {} of validation, {} of test; {} bad records\n",
             options.output.out, made.train_rows, made.train.size(), made.validation_rows, made.test_rows,
             made.bad_records);
  return kExitSuccess;
}

int convert(const ConvertOptions& options) {
  check_not_an_input(options.inputs, options.output.out);
  RecordInputs inputs(options.inputs, writes_texts(options.output));
  const RecordSinkOptions sink = sink_options(options.output, inputs);
  const auto out = RecordSink::create(options.output.out, sink);
  std::int64_t records = 0;
  while (inputs.next()) {
    ++records;
    try {
      out->write(inputs.record());
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(fmt::format("record {}: {}", records, e.message()));
    }
  }
  out->finish();
  fmt::print("{}: {} records, {}\n", options.output.out, records, file_format_name(sink.format));
  return kExitSuccess;
}

}  // namespace

void add_data_convert(CLI::App& data, Action& action) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub = data.add_subcommand("convert",
                                      "Write the records of data files of any format into one file of "
                                      "another; IMAGES LABELS of IDX are joined");
  add_input_options(*sub, options->inputs);
  sub->add_option("--out", options->output.out,
                  "Output: .tfrecord, .csv, .tsv or .txt, each with .gz, or .parquet")
      ->required();
  add_output_options(*sub, options->output);
  sub->add_flag("--mlperf-dlrm", options->mlperf,
                "Criteo's raw days become the rows of MLPerf's DLRM-v2 in the directory --out: ids by first "
                "appearance, bags of ids, the last day as val_data.bin and test_data.bin");
  sub->add_option(
      "--work", options->days.work,
      "Directory of what --mlperf-dlrm makes in between; default work below --out. An interrupted "
      "call goes on with it");
  sub->add_option("--memory", options->days.memory_bytes, "Of --mlperf-dlrm, for the values of one column")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  sub->add_option("--max-rows", options->days.max_rows,
                  "Of --mlperf-dlrm: larger tables are cut; 0: none is, as in the benchmark")
      ->check(CLI::NonNegativeNumber);
  sub->callback([options, &action] {
    action = [options] { return options->mlperf ? convert_days(*options) : convert(*options); };
  });
}

}  // namespace braid::cli
