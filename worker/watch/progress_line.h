// The text of a progress line: what it says, from the most important to the least, in so many columns.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace braid::worker {

struct ProgressState {
  std::uint64_t done = 0, total = 0;  // steps
  double loss = 0;
  std::string metric;  // "auc 0.6123", of the last evaluation; empty: there was none
  double examples_per_second = 0;
  double elapsed_seconds = 0, left_seconds = 0;
};

/// At most `columns` wide, never empty from 8 on. Narrow ones lack the steps, then the elapsed time, the
/// rate, the metric, the bar, the loss, and the time left; the percentage is always there.
///    45% [#########...........]  450/1000  loss 0.4321  auc 0.6123  128,981 examples/s  1:16 left
/// `colour` adds escape codes, which take no columns.
std::string progress_line(const ProgressState& state, int columns, bool colour);
/// The same without a bar, as wide as it is: "step 450/1000 (45%)  loss 0.4321 ...".
std::string progress_text(const ProgressState& state);

/// "0:07", "12:34", "1:02:03".
std::string duration_text(double seconds);
/// With commas between thousands.
std::string count_text(double count);
/// "127.3 MiB".
std::string bytes_text(double bytes);

}  // namespace braid::worker
