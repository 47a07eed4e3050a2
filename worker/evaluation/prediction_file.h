// Where predictions are written, row by row, in the order in which they come: lines of text, separated by
// commas or, in a .tsv, tabs, under a header; a .npy array of float32; or a .npz with an array a column. A
// file has its name when it is whole; "-" is standard output. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::worker {

/// What a row has behind its key, in this order.
struct PredictedColumn {
  std::string name;
  bool is_class = false;                // an integer, or a word of `words`
  std::vector<std::string> words = {};  // of a class, by its number; empty: the number
};

class PredictionFile {
 public:
  /// `key`: the name of the first column, which .npy leaves out. Throws: InvalidArgument (a name that ends in
  /// none of .csv, .tsv, .npy and .npz; cannot be written there).
  static std::unique_ptr<PredictionFile> create(const std::filesystem::path& file, std::string key,
                                                std::vector<PredictedColumn> columns);
  virtual ~PredictionFile() = default;  // what was not finished is removed

  /// One value for each column; of a row that could not be read `values` is empty, and it has none, in arrays
  /// NaN, and -1 or no text as its class. Throws: Unavailable (disk).
  virtual void add(std::string_view key, std::span<const double> values) = 0;
  /// Gives the file its name.
  virtual void finish() = 0;
};

}  // namespace braid::worker
