// `braid init`: a first job file for a table that somebody has.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <limits>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/column_guess.h"
#include "cli/commands.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::cli {
namespace {

using Path = std::filesystem::path;

/// Models that read "dense", "sparse" and a label of two values, with what sets each apart.
constexpr std::array<const char*, 4> kModels{"wide_deep", "deepfm", "dcn_v2", "dlrm"};

struct InitOptions {
  std::string file, test, model = "wide_deep", label, out, separator;
  RecordFileOptions open;
  bool header = false, no_header = false, force = false;
  bool model_given = false;
};

/// A line of the terminal; `fallback` for an empty one. Throws: InvalidArgument at its end.
std::string ask(const std::string& question, const std::string& fallback) {
  fmt::print(stderr, "{}{}: ", question, fallback.empty() ? "" : " [" + fallback + "]");
  std::string answer;
  if (!std::getline(std::cin, answer)) throw InvalidArgument("no answer to '" + question + "'");
  while (!answer.empty() && (answer.back() == ' ' || answer.back() == '\r')) answer.pop_back();
  return answer.empty() ? fallback : answer;
}

/// "part-0.csv.gz" is part-0.
std::string name_of(const Path& file) {
  std::string name = file.filename().string();
  if (const auto dot = name.find('.'); dot != std::string::npos && dot > 0) name.resize(dot);
  return name;
}

/// A word of a shell.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._-/+,:=@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

LabelWish label_wish(const std::string& label) {
  const auto at = label.find('=');
  if (at == std::string::npos) return {label, ""};
  return {label.substr(0, at), label.substr(at + 1)};
}

std::int64_t count_of(const std::vector<GuessedColumn>& columns, ColumnKind kind) {
  return std::count_if(columns.begin(), columns.end(),
                       [&](const GuessedColumn& column) { return column.spec.kind == kind; });
}

/// The models read categories, and numbers if there are some. A table of numbers only gets its coarsest one
/// as a category too.
void require_category(std::vector<GuessedColumn>& columns, const RecordSummary& summary, const Path& file) {
  if (count_of(columns, ColumnKind::Categorical) > 0) return;
  if (count_of(columns, ColumnKind::Numeric) < 2)
    throw InvalidArgument("'" + file.string() +
                          "' has one column to learn from; the models for tables read at least two");
  const auto distinct = [&](const GuessedColumn& column) {
    if (column.spec.kind != ColumnKind::Numeric || column.spec.length > 1)
      return std::numeric_limits<std::int64_t>::max();
    return summary.features().find(column.spec.name)->second.distinct.count();
  };
  const auto coarsest = std::min_element(
      columns.begin(), columns.end(),
      [&](const GuessedColumn& a, const GuessedColumn& b) { return distinct(a) < distinct(b); });
  const std::int64_t values = distinct(*coarsest);
  ColumnSpec category;
  category.name = coarsest->spec.name;
  category.kind = ColumnKind::Categorical;
  category.buckets = std::max<std::int64_t>(10, 2 * std::min<std::int64_t>(values, 50'000));
  *coarsest = {category, fmt::format("{} different numbers: the model needs one category", values)};
}

/// About ten batches at least, and at most 256 rows each.
std::int64_t batch_size(std::int64_t rows) {
  std::int64_t batch = 256;
  while (batch > 1 && batch * 10 > rows) batch /= 2;
  return batch;
}

const char* format_of(const RecordFile& file) {
  switch (file.format()) {
    case FileFormat::TfRecord:
      return "TFRECORD";
    case FileFormat::Criteo:
      return "CRITEO";
    case FileFormat::Csv:
      return "CSV";
    default:
      return nullptr;
  }
}

/// The name below --data-dir, or all of it where the file is elsewhere.
std::string below(const Path& directory, const Path& file) {
  const Path relative = std::filesystem::absolute(file).lexically_normal().lexically_relative(
      std::filesystem::absolute(directory).lexically_normal());
  return relative.empty() || *relative.begin() == ".."
             ? std::filesystem::absolute(file).lexically_normal().string()
             : relative.string();
}

struct Plan {
  std::string name, model, format, columns, csv;
  std::string train_file, test_file;
  std::int64_t rows = 0;
  std::int64_t hash_buckets = 0;  // 0: each column has its own
};

std::string job_text(const Plan& plan, const InitOptions& options) {
  std::string text = fmt::format(
      "# Made by `braid init` from {} rows of {}.{}\n"
      "# `braid train --help` says how to run it; proto/job.proto lists all fields.\n",
      plan.rows, Path(options.file).filename().string(),
      plan.columns.empty() ? "" : " The columns are guesses: correct them.");
  text += fmt::format("name: {}\nseed: 1\nepochs: 5\n", text_literal(plan.name));
  text += fmt::format("model {{ name: {} hidden: 64 hidden: 32 embedding_dim: 8 {}sparse_tables: true }}\n",
                      text_literal(plan.model),
                      plan.hash_buckets > 0 ? fmt::format("hash_buckets: {} ", plan.hash_buckets) : "");
  text +=
      fmt::format("input {{\n  format: {}\n  train_files: {}\n", plan.format, text_literal(plan.train_file));
  if (!plan.test_file.empty()) text += fmt::format("  test_files: {}\n", text_literal(plan.test_file));
  text += fmt::format("  global_batch_size: {}\n", batch_size(plan.rows));
  text += plan.csv + plan.columns + "}\n";
  text += "optimizer { kind: ADAGRAD learning_rate: 0.05 }\n";
  if (!plan.test_file.empty()) text += "evaluation { metric: AUC }\n";
  return text + fmt::format("checkpoint {{ directory: {} }}\n", text_literal(plan.name + "-checkpoints"));
}

/// What this program writes it must be able to read. Throws: InvalidArgument.
void check(const std::string& text, const Path& out) {
  proto::Job job = worker::parse_job(text, out.string());
  worker::fill_job_defaults(job);
  worker::check_job(job);
}

Plan plan_of(const InitOptions& options) {
  RecordFileOptions open = options.open;
  if (const LabelWish wish = label_wish(options.label); !wish.name.empty()) open.expected = {wish.name};
  const auto file = RecordFile::open(options.file, open);
  Plan plan;
  const char* format = format_of(*file);
  if (!format)
    throw InvalidArgument(
        fmt::format("'{}' is {}, not a table; start from a job in examples/jobs", options.file,
                    file->format() == FileFormat::Idx ? "an IDX file of images or labels" : "plain text"));
  plan.format = format;
  RecordSummary summary;
  while (file->next()) summary.add(file->record());
  plan.rows = summary.records();
  if (plan.rows == 0) throw InvalidArgument("'" + options.file + "' has no records");
  if (file->format() == FileFormat::Criteo) {
    plan.model = options.model_given ? options.model : "dlrm";
    plan.hash_buckets = 20000;
    return plan;
  }
  plan.model = options.model;
  std::vector<GuessedColumn> columns = guess_columns(*file, summary, label_wish(options.label));
  if (count_of(columns, ColumnKind::Label) == 0)
    throw InvalidArgument(
        "'" + options.file +
        "': no column has two values, as a label has: --label NAME or --label NAME=VALUE, where "
        "VALUE counts as yes");
  require_category(columns, summary, options.file);
  plan.columns = columns_text(columns, "  ");
  if (file->format() == FileFormat::Csv) {
    const std::string comment = options.open.comment;
    plan.csv =
        fmt::format("  csv {{ separator: {}{}{} }}\n",
                    file->separator() == '\t' ? "\"\\t\"" : text_literal(std::string(1, file->separator())),
                    file->has_header() ? " header: true" : "",
                    comment.empty() ? "" : " comment: " + text_literal(comment));
  }
  return plan;
}

int init(InitOptions& options) {
  const bool questions = options.file.empty();
  if (questions) {
    if (::isatty(STDIN_FILENO) == 0) throw InvalidArgument("name a data file: braid init FILE");
    options.file = ask("Data file", "");
    if (options.file.empty()) throw InvalidArgument("name a data file: braid init FILE");
    if (options.label.empty()) options.label = ask("Label column (empty: guess)", "");
    if (!options.model_given) options.model = ask("Model", options.model);
    if (options.test.empty()) options.test = ask("File to evaluate on (empty: none)", "");
  }
  const Path data = options.file;
  if (std::find(kModels.begin(), kModels.end(), options.model) == kModels.end())
    throw InvalidArgument(
        fmt::format("--model '{}': for tables there are {}", options.model, fmt::join(kModels, ", ")));
  if (options.out.empty()) options.out = name_of(data) + ".pbtxt";
  if (questions) options.out = ask("Job file to write", options.out);
  std::error_code ignored;
  if (std::filesystem::exists(options.out, ignored) && !options.force)
    throw InvalidArgument("'" + options.out + "' exists; --force replaces it, --out names another file");
  if (!options.test.empty() && !std::filesystem::exists(options.test, ignored))
    throw InvalidArgument("--test '" + options.test + "': No such file or directory");

  Plan plan = plan_of(options);
  plan.name = name_of(Path(options.out));
  const Path directory = data.has_parent_path() ? data.parent_path() : Path(".");
  plan.train_file = data.filename().string();
  if (!options.test.empty()) plan.test_file = below(directory, options.test);
  const std::string text = job_text(plan, options);
  check(text, options.out);
  write_file_atomically(options.out, text);

  fmt::print("{}", plan.columns);
  fmt::print("Wrote {}. Look at its columns, then train:\n\n    braid train --job {} --data-dir {}\n",
             options.out, shell_word(options.out), shell_word(directory.string()));
  return kExitSuccess;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* sub = app.add_subcommand(
      "init",
      "Write a job file for a table: CSV, TSV, TFRecord or the Criteo layout. Guesses what each column "
      "means;\n"
      "without FILE it asks for what it needs. Example: braid init clicks.csv --label clicked");
  sub->add_option("FILE", options->file, "Training data; plain or gzip");
  sub->add_option("--label", options->label,
                  "Column to predict; NAME=VALUE: rows whose value begins with VALUE count as yes.\n"
                  "Default: the column that looks most like a label");
  CLI::Option* model =
      sub->add_option("--model", options->model,
                      "wide_deep, deepfm, dcn_v2 or dlrm; default: dlrm for the Criteo layout")
          ->capture_default_str();
  sub->add_option("--test", options->test, "Data to evaluate on, of the same layout");
  sub->add_option("--out", options->out, "Job file to write; default: the data file's name with .pbtxt");
  sub->add_flag("--force", options->force, "Replace an existing job file");
  sub->add_option("--separator", options->separator,
                  "Of CSV fields, one character; default: what the file has");
  sub->add_flag("--header", options->header, "The first line of the CSV has names");
  sub->add_flag("--no-header", options->no_header, "The first line of the CSV is a record");
  sub->add_option("--comment", options->open.comment, "Lines of the CSV that begin with this are skipped");
  sub->callback([options, model, &action] {
    options->model_given = model->count() > 0;
    action = [options] {
      if (options->separator.size() > 1)
        throw InvalidArgument("--separator must be one character, got '" + options->separator + "'");
      if (!options->separator.empty()) options->open.separator = options->separator[0];
      if (options->header && options->no_header)
        throw InvalidArgument("--header and --no-header contradict each other");
      if (options->header || options->no_header) options->open.header = options->header;
      return init(*options);
    };
  });
}

}  // namespace braid::cli
