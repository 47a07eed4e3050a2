// The program of a fused region: what one generated kernel computes, as data. braid.Fused carries it as text
// in its attribute `program`; the CPU runs it over blocks (engine/ops/fused/fused_region.cc), a GPU as CUDA
// C++ that is made from it (cuda_source.h).
//
// A region is a grid of rows x columns elements. A value has one of five extents: Full, an element a place,
// in the order of rows; Row, an element a row; One, a single element; Column, an element a column, of sums;
// Piece, an element a column of each piece of rows.
// Values are numbered, inputs first, then steps. An operand of a smaller extent than its step's is repeated.
//
//   region 64 128                            rows, columns
//   in float32 full 8192:1                   an input: type, extent, axes size:stride, outermost first
//   in float32 full 64:0,128:1               a row of 128 that all rows share
//   in float32 row 64:1
//   in float32 full 64:384,128:1 +128        from element 128 on: columns of a wider tensor
//   in int64 row 64:1
//   in bfloat16 full 8192:1 by 4 900         row r is row number v4[r] of a tensor of 900 rows; one that is
//   out
//                                            of range is zeros, and reported
//   const float32 3f800000                   extent One; the bits of the value
//   apply float32 full Mul 0 3               an op with a formula: type, extent, name, operands
//   apply float32 full LeakyRelu 4 alpha=3fc999999999999a    parameters are bits of float64
//   cast float32 full 4                      as Cast does it
//   reduce float32 sum 5                     along a row: Full to Row; sum, prod, max, min
//   columns float32 5                        the sum of each column: of a Full step, and an output only
//   scan float32 sum 5 48                    down each column, in pieces of 48 rows: of the rows of the piece
//                                            so far; sum or prod; Full
//   scan float32 sum 5 48 reverse exclusive  from the piece's last row up, and without the row itself
//   scan float32 max 5 48 last               of all rows of the piece: Piece, an output only; sum, prod, max
//                                            or min
//   uniform float32 full 9e3779b9 0          a random number in [0, 1) for each place: hash of the stream's
//                                            name, salt (RandomKey); another one each step of training
//   out 6 64,1                               value and shape, for each output; a scalar has the shape -
//   out 7 64,384 128:384                     a Full value as columns 128, ... of rows of 384
//   also 8 256                               another part of the output before it
//
// Columns of an output that nothing writes have any values. Scans of a region have one length and, but for
// the last rows', one direction, and rows are not reduced nor columns summed beside them.
//
// Thread rule: values; functions are pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"

namespace braid::fusion {

enum class Extent { One, Row, Full, Column, Piece };
enum class RowReduction { Sum, Prod, Max, Min };
std::string_view reduction_name(RowReduction reduction);  // "sum", ...

struct Axis {
  std::int64_t size = 1, stride = 0;
  friend bool operator==(const Axis&, const Axis&) = default;
};
/// How an input's elements meet those of its extent: the sizes' product is the extent's, outermost first.
using Axes = std::vector<Axis>;

/// Axes of size 1 go, neighbours that a single axis can stand for become one. Nothing left: one element.
Axes joined(const Axes& axes);
/// How a tensor of shape `from` is repeated to `to`. REQUIRES: static shapes that broadcast.
Axes broadcast_axes(const Shape& from, const Shape& to);
/// The axes of `count` elements one after the other.
Axes contiguous_axes(std::int64_t count);

/// Values of float attributes by name.
using Parameters = std::map<std::string, double, std::less<>>;

struct Region {
  struct Input {
    DType dtype = DType::Float32;
    Extent extent = Extent::Full;
    Axes axes;                // joined
    std::int64_t offset = 0;  // of the first element
    int by = -1;          // the input, a Row of integers, whose numbers say which rows these are; -1: none
    std::int64_t of = 0;  // with `by`: so many rows are there
  };
  enum class Kind { Constant, Apply, Cast, Reduce, Columns, Uniform, Scan };
  struct Step {
    Kind kind = Kind::Apply;
    DType dtype = DType::Float32;
    Extent extent = Extent::Full;
    std::vector<int> operands = {};
    std::string op = {};                         // of Apply
    Parameters parameters = {};                  // of Apply
    RowReduction reduction = RowReduction::Sum;  // of Reduce and Scan
    std::uint64_t bits = 0;                      // of Constant; of Uniform the hash
    std::uint64_t salt = 0;                      // of Uniform
    std::int64_t length = 0;                     // of Scan: rows of a piece
    bool reverse = false, exclusive = false;     // of Scan
    bool last = false;                           // of Scan: what all rows of the piece make
    friend bool operator==(const Step&, const Step&) = default;
  };
  struct Output {
    int value = 0;
    Shape shape;                  // of the tensor
    bool is_part = false;         // columns of a tensor of longer rows
    std::int64_t offset = 0;      // of a part: its first column
    std::int64_t width = 0;       // of a part: a row of the tensor
    bool is_of_previous = false;  // a part of the same tensor as the output before
  };

  std::int64_t rows = 1, columns = 1;
  std::vector<Input> inputs;
  std::vector<Step> steps;
  std::vector<Output> outputs;

  int values() const { return static_cast<int>(inputs.size() + steps.size()); }
  bool is_input(int value) const { return value < static_cast<int>(inputs.size()); }
  const Step& step(int value) const { return steps[static_cast<std::size_t>(value) - inputs.size()]; }
  DType dtype_of(int value) const;
  Extent extent_of(int value) const;
  std::int64_t elements(Extent extent) const {
    if (extent == Extent::Column) return columns;
    if (extent == Extent::Piece) return rows / scan()->length * columns;
    return extent == Extent::Full ? rows * columns : extent == Extent::Row ? rows : 1;
  }
  bool reduces() const;  // rows
  bool sums_columns() const;
  const Step* scan() const;           // one that has a direction, or any, or null
  bool gathers() const;               // has an input whose rows are picked
  bool touches_halves() const;        // reads or writes 16-bit floats
  std::vector<int> uniforms() const;  // the values that are drawn
  std::vector<int> tensors() const;   // by output, the tensor it is in: an output of the node

  std::string to_text() const;
  /// Throws: InvalidArgument with the line that is wrong, and why: what is not in the grammar, operands that
  /// do not come before, axes and shapes that do not fit the extent. Whether ops exist and take the types is
  /// for whoever runs it.
  static Region parse(std::string_view text);
};

/// A number as the bits of an element of the type. REQUIRES: a float, int32, int64 or bool.
std::uint64_t bits_of(double number, DType dtype);
std::uint64_t bits_of(const void* element, DType dtype);

}  // namespace braid::fusion
