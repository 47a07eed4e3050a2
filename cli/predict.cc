// `braid predict` and `braid evaluate`: a checkpoint on rows of files, as training reads them.
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/ckpt_values.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "proto/job.pb.h"
#include "worker/evaluation/evaluate_command.h"
#include "worker/evaluation/predict_command.h"
#include "worker/job/job.h"

namespace braid::cli {
namespace {

struct Options {
  std::string job, data_dir, device, config, checkpoint, out, key;
  std::vector<std::string> set, inputs;
  std::int64_t max_bad_records = 0;
  std::int64_t batch = 0;
  bool bad_records_given = false;
};

proto::Job job_of(const Options& options) {
  std::vector<std::string> overrides = options.set;
  if (!options.device.empty()) overrides.push_back("runtime.device=" + options.device);
  if (options.batch > 0) overrides.push_back("evaluation.batch_size=" + std::to_string(options.batch));
  return worker::load_job(
      options.job, overrides,
      job_settings(read_process_settings(options.config, worker::SettingsFor::Inference)));
}

/// That of --checkpoint, else of the job.
CheckpointInfo checkpoint_of(const Options& options, const proto::Job& job) {
  const std::string& directory =
      options.checkpoint.empty() ? job.checkpoint().directory() : options.checkpoint;
  if (directory.empty()) throw InvalidArgument("the job has no checkpoint.directory: give --checkpoint DIR");
  return checkpoint_at(directory);
}

int run_predict(const Options& options) {
  if (options.out != "-") check_output_file("--out", options.out);
  const proto::Job job = job_of(options);
  worker::PredictCommand command;
  command.data_dir = data_directory(options.data_dir);
  command.checkpoint = checkpoint_of(options, job);
  command.inputs.assign(options.inputs.begin(), options.inputs.end());
  command.output = options.out;
  command.key = options.key;
  command.max_bad_records = options.max_bad_records;
  return worker::run_predict(job, command);
}

int run_evaluate(const Options& options) {
  const proto::Job job = job_of(options);
  worker::EvaluateCommand command;
  command.data_dir = data_directory(options.data_dir);
  command.checkpoint = checkpoint_of(options, job);
  command.inputs.assign(options.inputs.begin(), options.inputs.end());
  if (options.bad_records_given) command.max_bad_records = options.max_bad_records;
  return worker::run_evaluate(job, command);
}

void add_common(CLI::App& command, Options& options) {
  CLI::Option* job = command.add_option("--job", options.job, "The job that trained the model")->required();
  add_options_of_job(command, *job, options.set, options.data_dir);
  command.add_option("--checkpoint", options.checkpoint,
                     "A checkpoint directory (its newest counts) or a step-... directory; default: the job's "
                     "checkpoint.directory");
  command
      .add_option("--batch", options.batch, "Rows computed at once; default: the job's evaluation.batch_size")
      ->check(CLI::PositiveNumber);
  add_op_library_option(command);
  add_device_option(command, options.device);
  add_config_option(command, options.config);
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* predict = app.add_subcommand(
      "predict",
      "Predict raw rows: files in the format of the job's input, with or without labels.\n"
      "Writes a line for each row, in their order: its number or key, then probability; class and\n"
      "probabilities; or value. The last line on standard output is 'result: {JSON}'.");
  add_common(*predict, *options);
  predict
      ->add_option(
          "--in", options->inputs,
          "Input file; may be repeated. Labels may be missing. For IDX: images, or images and labels")
      ->required()
      ->allow_extra_args(false);
  predict
      ->add_option("--out", options->out,
                   "Output: .csv or .tsv, with a header; .npy, float32 [rows] or [rows, columns]; .npz, an "
                   "array a column; - is CSV on standard output.\nThe file appears when it is complete")
      ->required();
  predict->add_option("--key", options->key, "Input column to write in place of the row's number");
  predict
      ->add_option(
          "--max-bad-records", options->max_bad_records,
          "How many unreadable records to accept; each gets a line without a prediction (arrays: NaN)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  predict->callback([options, &action] { action = [options] { return run_predict(*options); }; });
}

void add_evaluate(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* evaluate = app.add_subcommand(
      "evaluate",
      "Measure a checkpoint on test data by the metrics of the job (evaluation.metrics). Prints a table;\n"
      "the last line is 'result: {JSON}'.");
  add_common(*evaluate, *options);
  evaluate
      ->add_option("--in", options->inputs,
                   "Test file; may be repeated; default: the job's input.test_files. For IDX: images, then "
                   "labels")
      ->allow_extra_args(false);
  CLI::Option* bad = evaluate
                         ->add_option("--max-bad-records", options->max_bad_records,
                                      "How many unreadable records to skip; default: the job's "
                                      "input.max_bad_records")
                         ->check(CLI::NonNegativeNumber);
  evaluate->callback([options, bad, &action] {
    options->bad_records_given = bad->count() > 0;
    action = [options] { return run_evaluate(*options); };
  });
}

}  // namespace braid::cli
