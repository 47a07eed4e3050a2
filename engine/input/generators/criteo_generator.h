// Rows in the Criteo layout from a hidden model, so that the best AUC that any model can reach is known.
//   categories  column c has 8 to 20,000 values; v has popularity ~ 1 / (v + 2), a weight ~ Normal(0, s_c)
//   integers    floor(exp(Normal(1, 1))) where not missing (10 %); their log enters linearly
//   label       Bernoulli(sigmoid(sum of the above - shift)), about a quarter positive
// The same seed gives the same hidden model and rows.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/input/formats/record_file.h"

namespace braid {

struct CriteoGeneratorOptions {
  std::int64_t rows = 0;
  std::int64_t first_row = 0;  // rows are numbered: other numbers are other rows of the same hidden model
  std::uint64_t seed = 1;
  FileFormat format = FileFormat::Criteo;  // or TfRecord
  Compression compression = Compression::None;
};

struct CriteoGeneratorResult {
  std::int64_t rows = 0;
  std::int64_t positives = 0;
  double auc_ceiling = 0;  // AUC of the true probabilities on these rows
};

/// Writes the rows to `file`: tab separated, or as TFRecord of tf.train.Example with label and I1..I13 as
/// int64, C1..C26 as bytes, and no feature for a missing field. Throws: InvalidArgument when it cannot be
/// written there, Unavailable (disk).
CriteoGeneratorResult generate_criteo(const std::filesystem::path& file,
                                      const CriteoGeneratorOptions& options);

}  // namespace braid
