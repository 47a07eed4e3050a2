#include "engine/input/generators/criteo_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/init.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/record_sink.h"
#include "engine/input/generators/auc_ceiling.h"

namespace braid {
namespace {

constexpr int kIntegers = kCriteoIntegers, kCategories = kCriteoCategories;
constexpr std::array<std::int64_t, kCategories> kCardinality{
    8,    12,   20,   30,   50,   80,   100,  150,  200,   300,   400,   500,   800,
    1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 15000, 18000, 20000};

struct HiddenModel {
  std::array<std::vector<float>, kCategories> weight;  // by value
  std::array<std::vector<double>, kCategories> cumulative;
  std::array<float, kIntegers> slope{};
};

HiddenModel make_model(std::uint64_t seed) {
  HiddenModel model;
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto n = static_cast<std::size_t>(kCardinality[c]);
    model.weight[c].resize(n);
    fill_normal01(make_rng_key(seed, "criteo/weight/" + std::to_string(c)), 0, model.weight[c]);
    // Columns with few values matter more each: their weights are learnt from many rows.
    const float spread = 0.45F / (1.0F + 0.15F * static_cast<float>(std::log2(static_cast<double>(n) / 8.0)));
    double total = 0;
    for (std::size_t v = 0; v < n; ++v) {
      model.weight[c][v] *= spread;
      total += 1.0 / static_cast<double>(v + 2);
      model.cumulative[c].push_back(total);
    }
  }
  fill_normal01(make_rng_key(seed, "criteo/slope"), 0, model.slope);
  return model;
}

using Uniforms = std::array<float, kCategories + kIntegers + 1>;

bool is_missing(const Uniforms& uniform, std::size_t integer) {
  return uniform[kCategories + integer] < 0.1F;
}

std::size_t draw(const std::vector<double>& cumulative, float uniform) {
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * cumulative.back());
  return static_cast<std::size_t>(std::min(at - cumulative.begin(), std::ssize(cumulative) - 1));
}

}  // namespace

CriteoGeneratorResult generate_criteo(const std::filesystem::path& file,
                                      const CriteoGeneratorOptions& options) {
  const auto out = RecordSink::create(file, {.format = options.format, .compression = options.compression});
  const HiddenModel model = make_model(options.seed);
  const RngKey uniform_key = make_rng_key(options.seed, "criteo/uniform");
  const RngKey normal_key = make_rng_key(options.seed, "criteo/normal");
  const std::vector<std::string> names = criteo_names();
  CriteoGeneratorResult result;
  AucCeiling ceiling;
  Uniforms uniform{};
  std::array<float, kIntegers> normal{};
  std::array<std::int64_t, kIntegers> integer{};
  std::array<std::array<char, 9>, kCategories> hash{};
  FeatureSet record;
  for (std::int64_t r = 0; r < options.rows; ++r) {
    const auto row = static_cast<std::uint64_t>(options.first_row + r);
    fill_uniform01(uniform_key, row * uniform.size(), uniform);
    fill_normal01(normal_key, row * normal.size(), normal);
    double logit = -1.3;
    for (std::size_t i = 0; i < kIntegers; ++i) {
      if (is_missing(uniform, i)) continue;
      integer[i] = static_cast<std::int64_t>(std::exp(1.0F + normal[i]));
      logit += 0.15 * model.slope[i] * (std::log1p(static_cast<double>(integer[i])) - 1.3);
    }
    for (std::size_t c = 0; c < kCategories; ++c) {
      const std::size_t v = draw(model.cumulative[c], uniform[c]);
      logit += model.weight[c][v];
      const std::uint64_t value = stable_hash(std::to_string(c) + ":" + std::to_string(v));
      fmt::format_to_n(hash[c].data(), hash[c].size(), "{:08x}", static_cast<std::uint32_t>(value));
    }
    const double probability = 1.0 / (1.0 + std::exp(-logit));
    const bool positive = uniform.back() < probability;
    ceiling.add(probability, positive);
    record.clear();
    record.add(names[0], std::int64_t{positive});
    for (std::size_t i = 0; i < kIntegers; ++i)
      if (!is_missing(uniform, i)) record.add(names[1 + i], integer[i]);
    for (std::size_t c = 0; c < kCategories; ++c)
      record.add(names[1 + kIntegers + c], std::string_view(hash[c].data(), 8));
    out->write(record);
  }
  out->finish();
  result.rows = options.rows;
  result.positives = ceiling.positives();
  result.auc_ceiling = ceiling.auc();
  return result;
}

}  // namespace braid
