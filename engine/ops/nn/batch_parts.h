// A batch that a library does not take at once, in parts that it takes one after the other. The parts depend
// on the sizes alone and their sums are added in their order, so the bits are the same in every run. Thread
// rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace braid {

struct BatchPart {
  std::int64_t first, images;
};

/// Parts of `images` images, of which the last may have fewer. REQUIRES: batch > 0, images > 0.
inline std::vector<BatchPart> batch_parts(std::int64_t batch, std::int64_t images) {
  std::vector<BatchPart> parts;
  for (std::int64_t first = 0; first < batch; first += images)
    parts.push_back({first, std::min(images, batch - first)});
  return parts;
}

/// How many images a part has: of the batch's halves, quarters and so on (rounded up), none of more than
/// `most` images, the largest for which `works(images)` is true of all parts' sizes; 0 when it is not true
/// even of one image. REQUIRES: batch > 0.
template <class Works>
std::int64_t images_a_part(std::int64_t batch, std::int64_t most, const Works& works) {
  if (most < 1) return 0;
  for (std::int64_t images = batch;; images = (images + 1) / 2) {
    if (images <= most) {
      const std::int64_t last = batch_parts(batch, images).back().images;
      if (works(images) && (last == images || works(last))) return images;
    }
    if (images == 1) return 0;
  }
}

}  // namespace braid
