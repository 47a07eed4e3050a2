#include "engine/input/criteo_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

constexpr int kIntegers = 13, kCategories = 26;
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

double auc(std::vector<std::pair<float, bool>>& scored) {
  std::sort(scored.begin(), scored.end());
  double positives = 0, rank_sum = 0;
  for (std::size_t i = 0; i < scored.size(); ++i) {
    if (!scored[i].second) continue;
    positives += 1;
    rank_sum += static_cast<double>(i + 1);
  }
  const double negatives = static_cast<double>(scored.size()) - positives;
  return positives == 0 || negatives == 0
             ? 0.5
             : (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace

CriteoGeneratorResult generate_criteo(const std::filesystem::path& file,
                                      const CriteoGeneratorOptions& options) {
  std::ofstream out(file, std::ios::binary);
  if (!out) throw InvalidArgument("cannot write '" + file.string() + "': " + std::strerror(errno));
  const HiddenModel model = make_model(options.seed);
  const RngKey uniform_key = make_rng_key(options.seed, "criteo/uniform");
  const RngKey normal_key = make_rng_key(options.seed, "criteo/normal");
  CriteoGeneratorResult result;
  std::vector<std::pair<float, bool>> scored;
  scored.reserve(static_cast<std::size_t>(options.rows));
  std::array<float, kCategories + kIntegers + 1> uniform{};
  std::array<float, kIntegers> normal{};
  fmt::memory_buffer categories, line;
  for (std::int64_t r = 0; r < options.rows; ++r) {
    const auto row = static_cast<std::uint64_t>(options.first_row + r);
    fill_uniform01(uniform_key, row * uniform.size(), uniform);
    fill_normal01(normal_key, row * normal.size(), normal);
    double logit = -1.3;
    categories.clear();
    line.clear();
    for (std::size_t i = 0; i < kIntegers; ++i) {
      fmt::format_to(std::back_inserter(categories), "\t");
      if (uniform[kCategories + i] < 0.1F) continue;  // missing
      const auto value = static_cast<std::int64_t>(std::exp(1.0F + normal[i]));
      logit += 0.15 * model.slope[i] * (std::log1p(static_cast<double>(value)) - 1.3);
      fmt::format_to(std::back_inserter(categories), "{}", value);
    }
    for (std::size_t c = 0; c < kCategories; ++c) {
      const auto& cumulative = model.cumulative[c];
      const double target = uniform[c] * cumulative.back();
      const auto v = static_cast<std::size_t>(std::min<std::ptrdiff_t>(
          std::upper_bound(cumulative.begin(), cumulative.end(), target) - cumulative.begin(),
          std::ssize(cumulative) - 1));
      logit += model.weight[c][v];
      const std::uint64_t hash = stable_hash(std::to_string(c) + ":" + std::to_string(v));
      fmt::format_to(std::back_inserter(categories), "\t{:08x}", static_cast<std::uint32_t>(hash));
    }
    const double probability = 1.0 / (1.0 + std::exp(-logit));
    const bool positive = uniform.back() < probability;
    result.positives += positive;
    scored.emplace_back(static_cast<float>(probability), positive);
    fmt::format_to(std::back_inserter(line), "{}", positive ? 1 : 0);
    line.append(categories);
    line.push_back('\n');
    out.write(line.data(), static_cast<std::streamsize>(line.size()));
  }
  out.flush();
  if (!out) throw InvalidArgument("cannot write '" + file.string() + "': " + std::strerror(errno));
  result.rows = options.rows;
  result.auc_ceiling = auc(scored);
  return result;
}

}  // namespace braid
