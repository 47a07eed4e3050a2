// How a region's grid is spread over a device's threads. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "engine/fusion/region.h"

namespace braid::fusion {

/// The longest row that a kernel reduces.
inline constexpr std::int64_t kLongestRow = 8192;

struct CudaLayout {
  bool by_rows = false;  // a row's threads belong together
  bool loops = false;    // blocks take several parts of the rows
  bool walks = false;    // a thread goes down a column of a piece of rows, some places at a time
  int threads = 1;       // of a block
  /// Of a row, where by_rows: 2 to 32 of a warp, or a block, or, where no row is added up, warps of one.
  int row_threads = 1;
  int vector = 1;  // places of a thread that lie next to each other: they are loaded and stored at once
  std::int64_t places = 1;  // of a thread, a multiple of `vector`
  std::int64_t blocks = 1;
  int resident = 0;  // blocks that a processor is to hold at once, by their registers; 0: nothing is said

  /// Throws: InvalidArgument for rows that are longer than kLongestRow.
  explicit CudaLayout(const Region& region);

 private:
  void spread_pieces(const Region& region);
  void spread_places(const Region& region);
  void spread_rows(const Region& region);
  void choose_resident(std::int64_t values);  // of a place
};

/// How a Full input is met by a vector of places that begins at a multiple of `vector`.
enum class VectorAccess {
  Together,  // its elements lie next to each other, at a multiple of `vector`
  Same,      // they are one element
  Apart,
};
VectorAccess vector_access(const Axes& axes, int vector, std::int64_t offset = 0);

}  // namespace braid::fusion
