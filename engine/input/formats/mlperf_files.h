// Files with rows of MLPerf's DLRM-v2, read at any place: binary rows (mlperf_dlrm.h), or the arrays that the
// benchmark's reference reads, three files of one stem:
//   <stem>_labels.npy             int32 [rows] or [rows, 1]
//   <stem>_dense.npy              float32 [rows, 13]
//   <stem>_sparse_multi_hot.npz   "0.npy" to "25.npy", int32 [rows, ids of the column], stored
// Thread rule: any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "engine/input/formats/mlperf_dlrm.h"

namespace braid {

class MlperfFile {
 public:
  virtual ~MlperfFile() = default;
  virtual std::int64_t rows() const = 0;
  /// Rows from `first` on. Throws: DataLoss (the file ends before), Unavailable.
  virtual void read(std::int64_t first, std::span<MlperfRow> rows) const = 0;
  virtual void advise_sequential() const {}
};

/// Throws: InvalidArgument (missing, an array of another type or shape), DataLoss (damaged; not a whole
/// number of rows).
std::shared_ptr<MlperfFile> open_mlperf_file(const std::filesystem::path& file);

/// Whether its name is that of arrays.
bool is_mlperf_array(const std::filesystem::path& file);
/// Of the files of one stem the first, in its place.
std::vector<std::filesystem::path> one_of_each_stem(const std::vector<std::filesystem::path>& files);

}  // namespace braid
