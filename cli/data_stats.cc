// `braid data stats`: what the columns of data files hold, over all files in one pass and bounded memory.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/data_show.h"
#include "cli/data_tools.h"
#include "cli/data_vocabulary.h"
#include "cli/record_inputs.h"
#include "engine/input/formats/record_summary.h"

namespace braid::cli {
namespace {

constexpr std::array<double, 7> kShares{0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

struct DataStatsOptions {
  InputOptions inputs;
  bool json = false;
  std::string vocabularies;  // directory; empty: none
  std::int64_t min_count = 1;
  std::size_t most_words = 10'000'000;
  std::vector<std::string> lists;
};

/// Of "tags" or "tags=;": tags, and what stands between its items.
std::map<std::string, char, std::less<>> separators_of(const std::vector<std::string>& lists) {
  std::map<std::string, char, std::less<>> separators;
  for (const std::string& list : lists) {
    const std::size_t sign = list.size() < 2 ? std::string::npos : list.rfind('=', list.size() - 2);
    const bool has_sign = sign != std::string::npos && sign + 2 == list.size();
    separators[has_sign ? list.substr(0, sign) : list] = has_sign ? list.back() : kListSeparators[0];
  }
  return separators;
}

/// Records that lack the feature, or have nothing in it.
std::int64_t missing_of(const FeatureSummary& feature, std::int64_t records) {
  return records - feature.present + feature.blanks;
}

bool has_numbers(const FeatureSummary& feature) { return feature.moments.count() > 0; }

nlohmann::ordered_json json_of(const FeatureSummary& feature, std::int64_t records) {
  nlohmann::ordered_json out;
  out["type"] = feature.mixed ? "mixed" : std::string(feature_kind_name(feature.kind));
  out["present"] = feature.present;
  out["missing"] = missing_of(feature, records);
  out["values"] = feature.values;
  out["fewest_per_record"] = feature.fewest;
  out["most_per_record"] = feature.most;
  out["distinct"] = feature.distinct.count();
  out["distinct_is_exact"] = feature.distinct.exact();
  if (has_numbers(feature)) {
    out["min"] = feature.number_min;
    out["max"] = feature.quantiles.at(1);
    if (feature.kind == FeatureKind::Int64) out["max"] = feature.int_max;
    if (feature.kind == FeatureKind::Float) out["max"] = feature.max;
    out["mean"] = feature.moments.mean();
    out["std"] = feature.moments.deviation();
    for (const double share : kShares)
      out["quantiles"][fmt::format("{}", share)] = feature.quantiles.at(share);
    out["log1p_mean"] = feature.log1p_moments.mean();
    out["log1p_std"] = feature.log1p_moments.deviation();
    for (int percent = 0; percent <= 100; ++percent)
      out["percentiles"].push_back(feature.quantiles.at(percent / 100.0));
  }
  if (!feature.words.too_many() && !feature.words.counts().empty())
    for (const auto& [word, count] : feature.words.counts()) out["counts"][shown_name(word)] = count;
  return out;
}

int data_stats(const DataStatsOptions& options) {
  RecordInputs inputs(options.inputs);
  RecordSummary summary;
  const auto lists = separators_of(options.lists);
  VocabularyCounter vocabularies(options.most_words, lists);
  while (inputs.next()) {
    summary.add(inputs.record());
    if (!options.vocabularies.empty()) vocabularies.add(inputs.record());
  }
  for (const auto& [name, separator] : lists)
    if (!summary.features().contains(name))
      throw InvalidArgument("--list: no record has a feature '" + name + "'");
  const std::string told =
      options.vocabularies.empty() ? "" : vocabularies.write(options.vocabularies, options.min_count);
  if (options.json) {
    nlohmann::ordered_json out;
    out["files"] = options.inputs.files;
    out["records"] = summary.records();
    out["bad_records"] = inputs.bad_records();
    out["features"] = nlohmann::ordered_json::object();
    for (const auto& [name, feature] : summary.features())
      out["features"][shown_name(name)] = json_of(feature, summary.records());
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    if (!told.empty()) fmt::print(stderr, "{}", told);
    return kExitSuccess;
  }
  fmt::print("{:<24} {:<6} {:>9} {:>8} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "feature",
             "type", "missing", "share", "distinct", "mean", "std", "min", "5 %", "median", "95 %", "max");
  for (const auto& [name, feature] : summary.features()) {
    const std::int64_t missing = missing_of(feature, summary.records());
    fmt::print("{:<24} {:<6} {:>9} {:>7.2f}% {:>9}", shown_name(name),
               feature.mixed ? "mixed" : std::string(feature_kind_name(feature.kind)), missing,
               100.0 * static_cast<double>(missing) /
                   static_cast<double>(std::max<std::int64_t>(summary.records(), 1)),
               (feature.distinct.exact() ? "" : "~") + std::to_string(feature.distinct.count()));
    if (has_numbers(feature))
      fmt::print(" {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}",
                 feature.moments.mean(), feature.moments.deviation(), feature.number_min,
                 feature.quantiles.at(0.05), feature.quantiles.at(0.5), feature.quantiles.at(0.95),
                 feature.kind == FeatureKind::Int64   ? static_cast<double>(feature.int_max)
                 : feature.kind == FeatureKind::Float ? feature.max
                                                      : feature.quantiles.at(1));
    fmt::print("\n");
  }
  fmt::print("\n{} records in {} file{}{}\n", summary.records(), options.inputs.files.size(),
             options.inputs.files.size() == 1 ? "" : "s",
             inputs.bad_records() > 0 ? fmt::format("; {} bad ones skipped", inputs.bad_records()) : "");
  if (!told.empty()) fmt::print("\n{}", told);
  return kExitSuccess;
}

}  // namespace

void add_data_stats(CLI::App& data, Action& action) {
  auto options = std::make_shared<DataStatsOptions>();
  CLI::App* sub = data.add_subcommand(
      "stats",
      "Missing values, different values, moments and quantiles of every feature of data files, in one pass");
  add_input_options(*sub, options->inputs);
  sub->add_flag("--json", options->json, "One JSON object, which a job's input.statistics_file reads");
  sub->add_option("--vocabularies", options->vocabularies,
                  "Write DIR/<feature>.txt, its words by frequency, for vocabulary_file")
      ->type_name("DIR");
  sub->add_option(
         "--list", options->lists,
         "Texts of this feature are lists, whose items are the words; NAME=; says what stands between "
         "them, default |")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->needs("--vocabularies");
  sub->add_option("--min-count", options->min_count, "Words of a vocabulary come so often, or more")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--most-words", options->most_words, "A feature of more different words gets no vocabulary")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->callback([options, &action] { action = [options] { return data_stats(*options); }; });
}

}  // namespace braid::cli
