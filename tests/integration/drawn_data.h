// Tables drawn at random, as files of CSV and the job that reads them: words that are hard to quote, numbers
// that are missing, lists, crosses, buckets and parts of times. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braid::integration {

struct DrawnData {
  std::string model;
  std::string columns;             // of the job's input
  std::vector<std::string> files;  // texts of CSV, each with a header
  int rows = 0;
  int batch = 1;
  bool carry = false, shuffle = true;

  std::string text() const;
  /// A job file whose data are `names` in `format`; `more` is part of its input.
  std::string job(const std::string& format, const std::vector<std::string>& names,
                  const std::string& more = {}) const;
};

/// The same for the same seed.
DrawnData draw_data(std::uint64_t seed);

}  // namespace braid::integration
