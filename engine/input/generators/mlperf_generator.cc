// Rows of MLPerf's DLRM-v2 from a hidden model (engine/input/formats/mlperf_dlrm.h). Row r is a function of
// (seed, r), so any part of them can be made alone. The exponents of the columns' popularity are those that
// were measured on 9.8 million rows of the benchmark's first day; those between the published ones are
// interpolated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "base/init.h"
#include "base/random_formulas.h"
#include "engine/input/formats/mlperf_dlrm.h"
#include "engine/input/generators/auc_ceiling.h"

namespace braid {
namespace {

constexpr std::array<double, kMlperfColumns> kExponents{
    1.044, 1.30, 0.89, 1.35, 1.40, 3.0, 0.90, 1.25,  8.5,   1.052, 1.19, 1.17, 2.2,
    1.45,  1.20, 2.6,  1.50, 1.9,  2.4, 1.04, 1.095, 1.045, 1.138, 0.92, 3.2,  4.0};
constexpr double kShift = 1.6;

/// Id of a power law over `rows` ids, the density of x being x^-exponent from 1 on.
std::int32_t popular_id(double uniform, double exponent, std::int64_t rows) {
  const auto n = static_cast<double>(rows);
  const double power = 1 - exponent;
  const double x = std::abs(power) < 1e-6 ? std::pow(n + 1, uniform)
                                          : std::pow((std::pow(n + 1, power) - 1) * uniform + 1, 1 / power);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(x) - 1, 0, rows - 1));
}

class MlperfModel {
 public:
  explicit MlperfModel(const MlperfGeneratorOptions& options)
      : uniform_(make_rng_key(options.seed, "mlperf_dlrm/uniform")),
        normal_(make_rng_key(options.seed, "mlperf_dlrm/normal")),
        weights_(make_rng_key(options.seed, "mlperf_dlrm/weights")) {
    fill_normal01(make_rng_key(options.seed, "mlperf_dlrm/slopes"), 0, slopes_);
  }

  /// Returns the true probability of a label of 1.
  double make(std::int64_t number, MlperfRow& row) const {
    // Two uniforms a column: 24 bits alone name too few of 40 million rows.
    std::array<float, 2 * kMlperfColumns + 2> uniform{};
    fill_uniform01(uniform_, static_cast<std::uint64_t>(number) * uniform.size(), uniform);
    std::array<float, kMlperfDense> normal{};
    fill_normal01(normal_, static_cast<std::uint64_t>(number) * normal.size(), normal);
    const auto wide = [&](std::size_t i) {
      return static_cast<double>(uniform[2 * i]) + static_cast<double>(uniform[2 * i + 1]) * 0x1p-24;
    };
    double logit = -kShift;
    for (std::size_t i = 0; i < kMlperfDense; ++i) {
      row.dense[i] = 1.5F + normal[i];
      logit += 0.1 * slopes_[i] * normal[i];
    }
    std::size_t at = 0;
    for (std::size_t c = 0; c < kMlperfColumns; ++c) {
      const std::int32_t first = popular_id(wide(c), kExponents[c], kMlperfRows[c]);
      logit += 0.25 * weight(c, first);
      row.ids[at++] = first;
      for (std::int64_t k = 1; k < kMlperfHots[c]; ++k)
        row.ids[at++] =
            static_cast<std::int32_t>(further(c, k, first) % static_cast<std::uint64_t>(kMlperfRows[c]));
    }
    const double probability = 1 / (1 + std::exp(-logit));
    row.label = wide(kMlperfColumns) < probability ? 1 : 0;
    return probability;
  }

 private:
  static std::uint64_t further(std::size_t column, std::int64_t k, std::int32_t first) {
    return random::mix(random::mix(static_cast<std::uint64_t>(first) + 0x9E3779B97F4A7C15ULL * (column + 1)) +
                       static_cast<std::uint64_t>(k));
  }
  /// Normal, by (column, id).
  double weight(std::size_t column, std::int32_t id) const {
    const std::uint64_t bits = random::mix(
        weights_.value ^ random::mix(static_cast<std::uint64_t>(id) * kMlperfColumns + column + 1));
    return normal_quantile((static_cast<double>(bits >> 40) + 0.5) * 0x1p-24);
  }

  RngKey uniform_, normal_, weights_;
  std::array<float, kMlperfDense> slopes_{};
};

constexpr std::int64_t kBlockRows = 4096;

/// body(rows) for block after block.
template <class Body>
MlperfGeneratorResult make_blocks(const MlperfGeneratorOptions& options, const Body& body) {
  const MlperfModel model(options);
  AucCeiling ceiling;
  std::vector<MlperfRow> block;
  for (std::int64_t begin = 0; begin < options.rows; begin += kBlockRows) {
    block.resize(static_cast<std::size_t>(std::min(kBlockRows, options.rows - begin)));
    for (std::size_t i = 0; i < block.size(); ++i) {
      const double probability =
          model.make(options.first_row + begin + static_cast<std::int64_t>(i), block[i]);
      ceiling.add(probability, block[i].label == 1);
    }
    body(std::span<const MlperfRow>(block));
  }
  return {ceiling.rows(), ceiling.positives(), ceiling.auc()};
}

}  // namespace

MlperfGeneratorResult generate_mlperf_dlrm(const std::filesystem::path& file,
                                           const MlperfGeneratorOptions& options) {
  File out = File::create(file);
  const MlperfGeneratorResult result =
      make_blocks(options, [&](std::span<const MlperfRow> rows) { out.write(std::as_bytes(rows)); });
  out.close();
  return result;
}

MlperfGeneratorResult generate_mlperf_dlrm_arrays(const std::filesystem::path& stem,
                                                  const MlperfGeneratorOptions& options) {
  std::vector<std::int32_t> labels;
  std::vector<float> dense;
  std::array<std::vector<std::int32_t>, kMlperfColumns> ids;
  const MlperfGeneratorResult result = make_blocks(options, [&](std::span<const MlperfRow> rows) {
    for (const MlperfRow& row : rows) {
      labels.push_back(row.label);
      dense.insert(dense.end(), row.dense, row.dense + kMlperfDense);
      const std::int32_t* at = row.ids;
      for (std::size_t c = 0; c < kMlperfColumns; at += kMlperfHots[c++])
        ids[c].insert(ids[c].end(), at, at + kMlperfHots[c]);
    }
  });
  const auto save = [&](const char* what, DType dtype, std::int64_t width, std::span<const std::byte> data) {
    const std::vector<std::int64_t> shape{options.rows, width};
    File out = File::create(stem.string() + what);
    const std::string header = npy_header(dtype, shape);
    out.write(std::as_bytes(std::span(header)));
    out.write(data);
    out.close();
  };
  save("_labels.npy", DType::Int32, 1, std::as_bytes(std::span(labels)));
  save("_dense.npy", DType::Float32, kMlperfDense, std::as_bytes(std::span(dense)));
  ZipWriter zip(stem.string() + "_sparse_multi_hot.npz");
  for (std::size_t c = 0; c < kMlperfColumns; ++c) {
    const std::vector<std::int64_t> shape{options.rows, kMlperfHots[c]};
    const std::string header = npy_header(DType::Int32, shape);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)),
                                                std::as_bytes(std::span(ids[c]))};
    zip.add(std::to_string(c) + ".npy", parts);
  }
  zip.finish();
  return result;
}

}  // namespace braid
