// `braid data convert`: records of files of any format into one file of another. Two files of IDX, images and
// labels, become records that have both.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/data_tools.h"
#include "cli/record_inputs.h"

namespace braid::cli {
namespace {

struct ConvertOptions {
  InputOptions inputs;
  OutputOptions output;
};

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
  sub->callback([options, &action] { action = [options] { return convert(*options); }; });
}

}  // namespace braid::cli
