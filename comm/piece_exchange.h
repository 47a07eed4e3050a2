// An exchange of pieces of tensors among the ranks of a communicator whose sizes never change, prepared once
// and run in every step: each rank writes its pieces where the other one takes them from, in one go and
// without packing messages first. Backends that have nothing better than all_to_all do without
// (Communicator::open_exchange).
//
// A rank takes what others send it from its window: window_bytes() of memory, whose places the layout names.
#pragma once

#include <cstdint>
#include <vector>

#include "base/stream_ref.h"

namespace braid::comm {

/// `bytes` from one place to another.
struct PieceMove {
  int tensor = 0;  // the input that it comes from, or the output that it goes to
  int peer = 0;    // of what is sent: to whom
  std::int64_t from = 0, to = 0;
  std::int64_t bytes = 0;
};

struct PieceLayout {
  std::vector<PieceMove> own;              // from input `tensor` to output `tensor`
  std::vector<PieceMove> sent;             // from input `tensor` to the window of `peer`
  std::vector<PieceMove> received;         // from this rank's window to output `tensor`
  std::vector<std::int64_t> window_bytes;  // of each rank
};

/// Rows of a tensor that int32 numbers choose, from one place to another.
struct RowMove {
  int from = -1;               // the input that they come from; -1: this rank's window
  int to = -1;                 // the output that they go to; -1: the window of `peer`
  int peer = 0;                // to or from whom, where a window is on one side
  int numbers = 0;             // the input with the numbers
  std::int64_t first = 0;      // of these numbers
  int via = -1;                // not -1: an input whose elements the numbers name, from `via_first` on
  std::int64_t via_first = 0;  //   to its end; these name the rows then
  std::int64_t count = 0;      // numbers
  std::int64_t bound = 0;      // what is not in [0, bound) names no row
  std::int64_t row_bytes = 0;  // a multiple of 4
  std::int64_t to_row = 0;     // the first row of an output
  std::int64_t window = 0;     // where the window's rows begin, in bytes: a multiple of 16
};

/// Moves that a rank can have in an exchange of rows.
inline constexpr int kMostRowMoves = 400;

/// An exchange of rows in two steps, each with one way to choose. What is named goes behind each other:
/// target row i is source row number i, and one that is none is left as it is, in an output zero. What is
/// marked keeps its place: row i where number i is not negative; the others are left as they are.
struct RowLayout {
  bool named = true;
  std::vector<RowMove> own, sent, received;
  std::vector<std::int64_t> window_bytes;  // of each rank
};

class PieceExchange {
 public:
  virtual ~PieceExchange() = default;
  /// Enqueues one exchange. `inputs` and `outputs` are read during the call. All ranks run their exchanges in
  /// one order, and one exchange on one stream. A rank that does not come in time breaks the communicator,
  /// which ends the wait; outputs are undefined then.
  virtual void run(void* const* inputs, void* const* outputs, StreamRef stream) = 0;
};

}  // namespace braid::comm
