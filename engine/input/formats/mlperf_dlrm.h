// The data of MLPerf Training's DLRM-v2 (mlcommons/training, recommendation_v2). Binary rows, little endian,
// 912 bytes each, one behind the other:
//   label int32 (0 or 1), 13 float32, 214 int32: the ids of column 0, of column 1, ... of column 25
// Columns have different numbers of ids, kMlperfHots, and of rows of their tables, kMlperfRows.
//
// The table: "dense" float [rows, 13], "sparse" int32 [rows, 214], whose fields "c0" ... "c25" are lists of
// which all are ids, "label" float [rows]. Tables of more rows than `max_rows` are cut: ids modulo that.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/input/formats/block_index.h"
#include "engine/input/formats/readers.h"

namespace braid {

inline constexpr int kMlperfDense = 13, kMlperfColumns = 26, kMlperfIds = 214;
inline constexpr std::int64_t kMlperfRowBytes = 912;

/// A row as it lies in a file.
struct MlperfRow {
  std::int32_t label;
  float dense[kMlperfDense];
  std::int32_t ids[kMlperfIds];
};
static_assert(sizeof(MlperfRow) == kMlperfRowBytes);

inline constexpr std::array<std::int64_t, kMlperfColumns> kMlperfRows{
    40000000, 39060, 17295, 7424, 20265, 3,  7122,     1543,     63,       40000000, 3067956, 405282, 10,
    2209,     11938, 155,   4,    976,   14, 40000000, 40000000, 40000000, 590152,   12973,   108,    36};
inline constexpr std::array<std::int64_t, kMlperfColumns> kMlperfHots{
    3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};

/// Of a column's table, at most `max_rows`; 0: all.
constexpr std::int64_t mlperf_rows(int column, std::int64_t max_rows) {
  const std::int64_t rows = kMlperfRows[static_cast<std::size_t>(column)];
  return max_rows > 0 && max_rows < rows ? max_rows : rows;
}

struct MlperfOptions {
  std::int64_t max_rows = 0;
  ReadOptions read = {};
};

/// Rows of binary files, or of the reference's arrays (mlperf_files.h), of whose three files one is enough.
/// Throws: as the readers of readers.h; a bad record is one whose label is neither 0 nor 1, with a number
/// that is not finite, or an id that its column does not have.
std::unique_ptr<RowStream> stream_mlperf_dlrm(const std::vector<std::filesystem::path>& files,
                                              const MlperfOptions& options);

/// Blocks of about so many bytes, for streams of rows; nothing is read for them. Throws: DataLoss (a file
/// that is no whole number of rows), as stamp_of().
std::vector<IndexedFile> mlperf_dlrm_indexes(const std::vector<std::filesystem::path>& files,
                                             std::uint64_t block_bytes);

/// Of the rows, as binary ones. Throws: as open_mlperf_file().
std::int64_t mlperf_dlrm_bytes(const std::vector<std::filesystem::path>& files);

struct MlperfGeneratorOptions {
  std::int64_t rows = 0;
  std::int64_t first_row = 0;  // rows are numbered: other numbers are other rows of the same hidden model
  std::uint64_t seed = 1;
};

struct MlperfGeneratorResult {
  std::int64_t rows = 0, positives = 0;
  double auc_ceiling = 0;  // AUC of the true probabilities on these rows
};

/// Rows with the skew that was measured on the benchmark's data, and labels of a hidden model:
///   first id of a column   a power law whose exponent is the column's; small ids are popular
///   further ids            of a fixed random table by the first one, so that equal first ids have equal bags
///   floats                 Normal(1.5, 1)
///   label                  Bernoulli(sigmoid(weights of first ids + slopes of floats - shift))
/// Throws: InvalidArgument, Unavailable (files).
MlperfGeneratorResult generate_mlperf_dlrm(const std::filesystem::path& file,
                                           const MlperfGeneratorOptions& options);
/// The same rows as arrays: "<stem>_labels.npy" int32 [rows, 1], "<stem>_dense.npy" float32 [rows, 13],
/// "<stem>_sparse_multi_hot.npz" with int32 [rows, ids of the column] "0" to "25".
MlperfGeneratorResult generate_mlperf_dlrm_arrays(const std::filesystem::path& stem,
                                                  const MlperfGeneratorOptions& options);

}  // namespace braid
