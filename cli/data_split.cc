// `braid data split` deals records to several files; `braid data shuffle` writes them in a random order, with
// files in between, so that memory is bounded. Both are functions of the seed and the records' numbers.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/init.h"
#include "cli/data_tools.h"
#include "cli/record_inputs.h"
#include "engine/input/files/data_file.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/tfrecord.h"

namespace braid::cli {
namespace {

/// 64 random bits of record `number`.
std::uint64_t bits_of(RngKey key, std::uint64_t number) {
  std::array<std::uint32_t, 2> bits{};
  fill_bits(key, 2 * number, bits);
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

void write_record(RecordSink& sink, const FeatureSet& record, std::int64_t number) {
  try {
    sink.write(record);
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(fmt::format("record {}: {}", number, e.message()));
  }
}

struct SplitOptions {
  InputOptions inputs;
  OutputOptions output;
  std::vector<std::string> into;  // FILE=SHARE
  std::uint64_t seed = 1;
};

struct Part {
  std::string file;
  double share = 0;
  std::unique_ptr<RecordSink> sink;
  std::int64_t records = 0;
};

std::vector<Part> parts_of(const SplitOptions& options) {
  std::vector<Part> parts;
  double sum = 0;
  for (const std::string& text : options.into) {
    const std::size_t equals = text.rfind('=');
    const auto share = equals == std::string::npos ? std::nullopt : parse_double(text.substr(equals + 1));
    if (!share || *share <= 0)
      throw InvalidArgument("--into '" + text +
                            "': expected FILE=SHARE with a share above 0, such as train.csv=0.9");
    parts.push_back({text.substr(0, equals), *share, nullptr, 0});
    check_not_an_input(options.inputs, parts.back().file);
    sum += *share;
  }
  if (parts.size() < 2) throw InvalidArgument("--into FILE=SHARE is needed twice at least");
  for (Part& part : parts) part.share /= sum;
  return parts;
}

int split(const SplitOptions& options) {
  std::vector<Part> parts = parts_of(options);
  const auto output_of = [&](const Part& part) {
    OutputOptions output = options.output;
    output.out = part.file;
    return output;
  };
  RecordInputs inputs(options.inputs, std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
                        return writes_texts(output_of(part));
                      }));
  for (Part& part : parts) part.sink = RecordSink::create(part.file, sink_options(output_of(part), inputs));
  const RngKey key = make_rng_key(options.seed, "split");
  std::int64_t records = 0;
  for (; inputs.next(); ++records) {
    double at = static_cast<double>(bits_of(key, static_cast<std::uint64_t>(records)) >> 11) * 0x1p-53;
    std::size_t p = 0;
    while (p + 1 < parts.size() && at >= parts[p].share) at -= parts[p++].share;
    write_record(*parts[p].sink, inputs.record(), records + 1);
    ++parts[p].records;
  }
  for (Part& part : parts) {
    part.sink->finish();
    fmt::print("{}: {} records\n", part.file, part.records);
  }
  return kExitSuccess;
}

struct ShuffleOptions {
  InputOptions inputs;
  OutputOptions output;
  std::uint64_t seed = 1;
  std::int64_t memory_mib = 256;
  std::string directory;
};

/// Files between two passes, which go away with it.
class Buckets {
 public:
  Buckets(std::filesystem::path directory, std::size_t count) : directory_(std::move(directory)) {
    make_directories(directory_);
    for (std::size_t b = 0; b < count; ++b) writers_.push_back(std::make_unique<TfRecordWriter>(file(b)));
  }
  ~Buckets() {
    writers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  std::filesystem::path file(std::size_t bucket) const {
    return directory_ / ("bucket-" + std::to_string(bucket) + ".tfrecord");
  }
  TfRecordWriter& writer(std::size_t bucket) { return *writers_[bucket]; }
  void finish() {
    for (auto& writer : writers_) writer->finish();
    writers_.clear();
  }

 private:
  const std::filesystem::path directory_;
  std::vector<std::unique_ptr<TfRecordWriter>> writers_;
};

std::string_view as_example(const FeatureSet& record, ExampleWriter& writer, std::int64_t number) {
  for (const Feature& f : record.features()) {
    if (f.steps)
      throw InvalidArgument(fmt::format(
          "record {}: feature '{}' is a list of features, which is not shuffled", number, f.name));
    if (f.kind == FeatureKind::Float)
      writer.add(f.name, record.floats(f));
    else if (f.kind == FeatureKind::Int64)
      writer.add(f.name, record.ints(f));
    else
      writer.add(f.name, record.bytes(f));
  }
  return writer.finish();
}

int shuffle(const ShuffleOptions& options) {
  check_not_an_input(options.inputs, options.output.out);
  RecordInputs inputs(options.inputs, writes_texts(options.output));
  const RecordSinkOptions sink = sink_options(options.output, inputs);
  // Text becomes up to about three times as large as an Example; packed files are larger still inside.
  constexpr double kGrowth = 4;
  double bytes = 0;
  for (const std::string& file : options.inputs.files)
    bytes += file == "-" ? 0x1p30 : kGrowth * static_cast<double>(stamp_of(file).size);
  const double memory = 0x1p20 * static_cast<double>(options.memory_mib);
  constexpr double kMostBuckets = 512;  // files that are open
  const auto count = static_cast<std::size_t>(std::clamp(bytes / memory + 1, 1.0, kMostBuckets));
  std::filesystem::path directory = options.directory.empty()
                                        ? std::filesystem::path(options.output.out).parent_path()
                                        : std::filesystem::path(options.directory);
  directory /= ".braid-shuffle-" + std::filesystem::path(options.output.out).filename().string();
  Buckets buckets(directory, count);
  const RngKey key = make_rng_key(options.seed, "shuffle");
  ExampleWriter writer;
  std::int64_t records = 0;
  for (; inputs.next(); ++records) {
    const std::uint64_t bits = bits_of(key, static_cast<std::uint64_t>(records));
    const auto bucket = static_cast<std::size_t>((bits >> 32) * count >> 32);
    buckets.writer(bucket).write(as_example(inputs.record(), writer, records + 1));
  }
  buckets.finish();
  const auto out = RecordSink::create(options.output.out, sink);
  ExampleReader example;
  for (std::size_t b = 0; b < count; ++b) {
    std::vector<std::string> held;
    TfRecordReader reader(buckets.file(b));
    while (const auto record = reader.next()) held.emplace_back(*record);
    // Fisher-Yates: which records a bucket has is random, and so is their order in it.
    const RngKey order = make_rng_key(options.seed, "shuffle/bucket", b);
    for (std::size_t i = held.size(); i > 1; --i) std::swap(held[i - 1], held[bits_of(order, i) % i]);
    for (const std::string& record : held) {
      example.parse(record);
      write_record(*out, example, 0);
    }
  }
  out->finish();
  fmt::print("{}: {} records, {}, by {} file{} in between\n", options.output.out, records,
             file_format_name(sink.format), count, count == 1 ? "" : "s");
  return kExitSuccess;
}

}  // namespace

void add_data_split(CLI::App& data, Action& action) {
  auto options = std::make_shared<SplitOptions>();
  CLI::App* sub = data.add_subcommand("split", "Deal the records of data files to several, by chance");
  add_input_options(*sub, options->inputs);
  sub->add_option("--into", options->into, "FILE=SHARE, for each output; shares are of their sum")
      ->required();
  add_output_options(*sub, options->output);
  sub->add_option("--seed", options->seed, "Decides which record goes where")->capture_default_str();
  sub->callback([options, &action] { action = [options] { return split(*options); }; });
}

void add_data_shuffle(CLI::App& data, Action& action) {
  auto options = std::make_shared<ShuffleOptions>();
  CLI::App* sub =
      data.add_subcommand("shuffle", "Write the records of data files in a random order, in bounded memory");
  add_input_options(*sub, options->inputs);
  sub->add_option("--out", options->output.out, "Output, as of convert")->required();
  add_output_options(*sub, options->output);
  sub->add_option("--seed", options->seed, "Decides the order")->capture_default_str();
  sub->add_option("--memory", options->memory_mib, "MiB of records held at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--temporary", options->directory,
                  "Directory of the files in between; default: that of --out");
  sub->callback([options, &action] { action = [options] { return shuffle(*options); }; });
}

}  // namespace braid::cli
