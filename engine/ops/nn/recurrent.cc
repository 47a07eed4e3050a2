// Recurrent layers over T steps, as one node each (formulas: recurrent_cells.h). Time comes first; with the
// attribute `reverse` the last step is the first.
//   braid.Gru(x [T, B, 3H], u [3H, H], h0 [B, H], b [3H]) -> h [T, B, H], before [T, B, H], saved [T, B, 4H]
//   braid.Lstm(x [T, B, 4H], u [4H, H], h0 [B, H], c0 [B, H])
//     -> h [T, B, H], before [T, B, H], saved [T, B, 5H], c [B, H]
// x are products of the inputs with their biases, for all steps at once, made by other nodes. `before` is h
// one step earlier, `c` the last cell; `before` and `saved` are for the gradient and have none.
//   braid.GruGrad(dh, u, saved, before) -> dx, da, dh0;  da: of the products h' u^T + b
//   braid.LstmGrad(dh, u, saved, c0, dc) -> dx, dh0, dc0
// The gradient of u is the product of da (dx) with `before`, another node. On the CPU a piece of work is some
// rows for all steps: rows do not know each other.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/recurrent_cells.h"
#include "engine/ops/ragged/attention_tiles.h"

namespace braid {
namespace {

using recurrent::Gru;
using recurrent::Lstm;
using recurrent::Sizes;

constexpr std::int64_t kMostRows = 24;    // of a piece of work
constexpr std::int64_t kMostAtOnce = 64;  // pieces that have scratch of their own
static_assert(kMostRows % attention::kRowBlock == 0);

std::int64_t padded(std::int64_t n) { return attention::round_up(n, attention::kLanes); }

/// One step of one row: all units.
template <class Cell, class T>
BRAID_VECTOR_CLONES void forward_row(std::int64_t units, const T* x, const T* a, const T* bias,
                                     const T* before, T* cell, T* saved, T* h) {
#pragma GCC ivdep  // nothing that is written is read again
  for (std::int64_t j = 0; j < units; ++j) {
    T xs[Cell::kGates], as[Cell::kGates], keep[Cell::kSaved];
    for (int g = 0; g < Cell::kGates; ++g) {
      xs[g] = x[g * units + j];
      as[g] = Cell::kHasCell ? a[g * units + j] : a[g * units + j] + bias[g * units + j];
    }
    h[j] = Cell::forward(xs, as, before[j], cell[j], keep);
    for (int s = 0; s < Cell::kSaved; ++s) saved[s * units + j] = keep[s];
  }
}

/// `direct` gets the gradient of h' but for that through a.
template <class Cell, class T>
BRAID_VECTOR_CLONES void backward_row(std::int64_t units, const T* saved, const T* before, const T* dh,
                                      const T* carry, T* d_cell, T* dx, T* da, T* direct) {
#pragma GCC ivdep
  for (std::int64_t j = 0; j < units; ++j) {
    T keep[Cell::kSaved], dxs[Cell::kGates], das[Cell::kGates];
    for (int s = 0; s < Cell::kSaved; ++s) keep[s] = saved[s * units + j];
    direct[j] = Cell::backward(keep, before[j], dh[j] + carry[j], d_cell[j], dxs, das);
    for (int g = 0; g < Cell::kGates; ++g) {
      dx[g * units + j] = dxs[g];
      da[g * units + j] = das[g];
    }
  }
}

template <class Cell, class T>
class Kernel {
 public:
  Kernel(Sizes sizes, bool backward)
      : s_(sizes),
        gates_(Cell::kGates * sizes.units),
        columns_(padded(backward ? s_.units : gates_)),
        depth_(backward ? gates_ : s_.units),
        piece_rows_(rows_of_piece(sizes.rows)),
        is_backward_(backward) {}

  std::int64_t pieces() const { return (s_.rows + piece_rows_ - 1) / piece_rows_; }
  std::int64_t lanes() const { return std::min(pieces(), kMostAtOnce); }
  std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(depth_ * columns_ + lanes() * each()) * sizeof(T);
  }

  /// The factors as products read them: [depth, columns], zeros behind what there is.
  void lay_out(const T* u, T* to) const {
    for (std::int64_t from = 0; from < columns_; from += attention::kLanes)
      for (std::int64_t p = 0; p < depth_; ++p)
        for (std::int64_t j = from; j < from + attention::kLanes; ++j) {
          const std::int64_t last = is_backward_ ? s_.units : gates_;
          to[p * columns_ + j] = j >= last ? T(0) : is_backward_ ? u[p * s_.units + j] : u[j * s_.units + p];
        }
  }

  template <class Piece>
  void run(ThreadPool& pool, const KernelArgs& args, const Piece& piece) const {
    T* const factors = static_cast<T*>(args.scratch);
    lay_out(args.in<T>(1), factors);
    pool.parallel_range(lanes(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t lane = begin; lane < end; ++lane)
        for (std::int64_t p = lane; p < pieces(); p += lanes())
          piece(p * piece_rows_, std::min(piece_rows_, s_.rows - p * piece_rows_), factors,
                factors + depth_ * columns_ + lane * each());
    });
  }

  void forward(const KernelArgs& args, std::int64_t first, std::int64_t rows, const T* factors,
               T* scratch) const {
    T* const state = scratch;                           // [piece_rows_, units]
    T* const cell = state + piece_rows_ * s_.units;     // [piece_rows_, units]
    T* const products = cell + piece_rows_ * s_.units;  // [piece_rows_, columns]
    std::fill(scratch, products, T(0));
    std::copy_n(args.in<T>(2) + first * s_.units, rows * s_.units, state);
    if (Cell::kHasCell) std::copy_n(args.in<T>(3) + first * s_.units, rows * s_.units, cell);
    for (std::int64_t s = 0; s < s_.steps; ++s) {
      const std::int64_t row = s_.place(s) * s_.rows + first;
      std::copy_n(state, rows * s_.units, args.out<T>(1) + row * s_.units);
      attention::multiply<false>(piece_rows_, columns_, depth_, state, s_.units, std::int64_t{1}, factors,
                                 columns_, products, columns_);
      for (std::int64_t r = 0; r < rows; ++r)
        forward_row<Cell>(s_.units, args.in<T>(0) + (row + r) * gates_, products + r * columns_,
                          args.in<T>(3), args.out<T>(1) + (row + r) * s_.units, cell + r * s_.units,
                          args.out<T>(2) + (row + r) * Cell::kSaved * s_.units, state + r * s_.units);
      std::copy_n(state, rows * s_.units, args.out<T>(0) + row * s_.units);
    }
    if (Cell::kHasCell) std::copy_n(cell, rows * s_.units, args.out<T>(3) + first * s_.units);
  }

  void backward(const KernelArgs& args, std::int64_t first, std::int64_t rows, const T* factors,
                T* scratch) const {
    T* const carry = scratch;                           // [piece_rows_, columns]
    T* const d_cell = carry + piece_rows_ * columns_;   // [piece_rows_, units]
    T* const direct = d_cell + piece_rows_ * s_.units;  // [units]
    T* const da = direct + s_.units;                    // [piece_rows_, gates]
    std::fill(scratch, da + piece_rows_ * gates_, T(0));
    constexpr int kFirstState = Cell::kHasCell ? 1 : 2;
    if (Cell::kHasCell) std::copy_n(args.in<T>(4) + first * s_.units, rows * s_.units, d_cell);
    for (std::int64_t s = s_.steps - 1; s >= 0; --s) {
      const std::int64_t row = s_.place(s) * s_.rows + first;
      for (std::int64_t r = 0; r < rows; ++r) {
        T* const carried = carry + r * columns_;
        backward_row<Cell>(s_.units, args.in<T>(2) + (row + r) * Cell::kSaved * s_.units,
                           before(args, s, first + r), args.in<T>(0) + (row + r) * s_.units, carried,
                           d_cell + r * s_.units, args.out<T>(0) + (row + r) * gates_, da + r * gates_,
                           direct);
        std::copy_n(direct, s_.units, carried);
      }
      if (!Cell::kHasCell) std::copy_n(da, rows * gates_, args.out<T>(1) + row * gates_);
      attention::multiply<true>(piece_rows_, columns_, depth_, da, gates_, std::int64_t{1}, factors, columns_,
                                carry, columns_);
    }
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(carry + r * columns_, s_.units, args.out<T>(kFirstState) + (first + r) * s_.units);
    if (Cell::kHasCell) std::copy_n(d_cell, rows * s_.units, args.out<T>(2) + first * s_.units);
  }

 private:
  /// h' of a GRU, c' of an LSTM.
  const T* before(const KernelArgs& args, std::int64_t s, std::int64_t row) const {
    if (!Cell::kHasCell) return args.in<T>(3) + (s_.place(s) * s_.rows + row) * s_.units;
    if (s == 0) return args.in<T>(3) + row * s_.units;
    return args.in<T>(2) + ((s_.place(s - 1) * s_.rows + row) * Cell::kSaved + Cell::kSaved - 1) * s_.units;
  }
  std::int64_t each() const {
    return is_backward_ ? piece_rows_ * (columns_ + s_.units + gates_) + s_.units
                        : piece_rows_ * (2 * s_.units + columns_);
  }

  Sizes s_;
  /// As even as whole blocks of rows allow.
  static std::int64_t rows_of_piece(std::int64_t rows) {
    const std::int64_t pieces = std::max<std::int64_t>((rows + kMostRows - 1) / kMostRows, 1);
    return attention::round_up(std::max<std::int64_t>((rows + pieces - 1) / pieces, 1), attention::kRowBlock);
  }

  std::int64_t gates_, columns_, depth_, piece_rows_;
  bool is_backward_;
};

Sizes sizes_of(const PrepareContext& c) {
  const Shape& h = c.node.op->name.ends_with("Grad") ? c.inputs[0].shape : c.outputs[0].shape;
  return {h[0], h[1], h[2], c.attr("reverse", false)};
}

template <class Cell>
PreparedKernel prepare_forward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Kernel<Cell, T> work(sizes_of(c), false);
    PreparedKernel kernel;
    kernel.scratch_bytes = work.scratch_bytes();
    kernel.run = [work, pool = &c.pool](const KernelArgs& args) {
      work.run(*pool, args, [&](auto... piece) { work.forward(args, piece...); });
    };
    return kernel;
  });
}

template <class Cell>
PreparedKernel prepare_backward(const PrepareContext& c) {
  return with_float(c.node.op->name, c.inputs[0].dtype, [&]<class T>() {
    const Kernel<Cell, T> work(sizes_of(c), true);
    PreparedKernel kernel;
    kernel.scratch_bytes = work.scratch_bytes();
    kernel.run = [work, pool = &c.pool](const KernelArgs& args) {
      work.run(*pool, args, [&](auto... piece) { work.backward(args, piece...); });
    };
    return kernel;
  });
}

// ---------------------------------------------------------------------------------------------------
// shapes

/// What is known of T, B and H from all inputs.
struct Known {
  std::int64_t steps = Shape::kUnknown, rows = Shape::kUnknown, units = Shape::kUnknown;

  Shape series(std::int64_t parts) const { return {steps, rows, units < 0 ? units : parts * units}; }
  Shape state() const { return {rows, units}; }
};

class Reader {
 public:
  Reader(const InferContext& c) : c_(c) {
    require_floating(c, 0);
    for (int i = 1; i < c.inputs(); ++i) c.require_same_dtype(0, i);
  }
  /// Input i is [T, B, parts * H].
  void series(int i, int parts) {
    c_.require_rank(i, 3);
    if (!c_.shape(i).has_rank()) return;
    meet(known.steps, c_.shape(i)[0], i, "steps");
    meet(known.rows, c_.shape(i)[1], i, "rows");
    meet_parts(c_.shape(i)[2], parts, i);
  }
  void state(int i) {
    c_.require_rank(i, 2);
    if (!c_.shape(i).has_rank()) return;
    meet(known.rows, c_.shape(i)[0], i, "rows");
    meet(known.units, c_.shape(i)[1], i, "units");
  }
  void factors(int i, int gates) {
    c_.require_rank(i, 2);
    if (!c_.shape(i).has_rank()) return;
    meet_parts(c_.shape(i)[0], gates, i);
    meet(known.units, c_.shape(i)[1], i, "units");
  }
  void bias(int i, int gates) {
    c_.require_rank(i, 1);
    if (c_.shape(i).has_rank()) meet_parts(c_.shape(i)[0], gates, i);
  }

  Known known;

 private:
  void meet_parts(std::int64_t size, int parts, int i) {
    if (size < 0) return;
    if (size % parts != 0)
      c_.fail("input " + std::to_string(i) + " has " + std::to_string(size) + " columns, which are not " +
              std::to_string(parts) + " for each unit");
    meet(known.units, size / parts, i, "units");
  }
  void meet(std::int64_t& known_size, std::int64_t size, int i, const char* what) {
    if (size >= 0 && known_size >= 0 && size != known_size)
      c_.fail("input " + std::to_string(i) + " has " + std::to_string(size) + " " + what + ", others have " +
              std::to_string(known_size));
    known_size = std::max(known_size, size);
  }

  const InferContext& c_;
};

template <class Cell>
void infer_forward(InferContext& c) {
  Reader r(c);
  r.series(0, Cell::kGates);
  r.factors(1, Cell::kGates);
  r.state(2);
  if (Cell::kHasCell)
    r.state(3);
  else
    r.bias(3, Cell::kGates);
  c.output(c.dtype(0), r.known.series(1));
  c.output(c.dtype(0), r.known.series(1));
  c.output(c.dtype(0), r.known.series(Cell::kSaved));
  if (Cell::kHasCell) c.output(c.dtype(0), r.known.state());
}

template <class Cell>
void infer_backward(InferContext& c) {
  Reader r(c);
  r.series(0, 1);
  r.factors(1, Cell::kGates);
  r.series(2, Cell::kSaved);
  if (Cell::kHasCell) {
    r.state(3);
    r.state(4);
  } else {
    r.series(3, 1);
  }
  c.output(c.dtype(0), r.known.series(Cell::kGates));
  c.output(c.dtype(0), Cell::kHasCell ? r.known.state() : r.known.series(Cell::kGates));
  c.output(c.dtype(0), r.known.state());
}

// ---------------------------------------------------------------------------------------------------
// gradients

ValueRef factors_gradient(GradContext& c, ValueRef da) {
  return c.op("Einsum", {da, c.output(1)}, {{"equation", std::string("tbg,tbh->gh")}});
}

void gru_gradient(GradContext& c) {
  if (!c.grad(0).valid()) return;
  const ValueRef dx =
      c.op("braid.GruGrad", {c.grad(0), c.input(1), c.output(2), c.output(1)}, c.node().attrs);
  const ValueRef da{dx.node, 1};
  c.set_grad(0, dx);
  c.set_grad(1, factors_gradient(c, da));
  c.set_grad(2, ValueRef{dx.node, 2});
  const std::vector<std::int32_t> axes{0, 1};
  c.set_grad(3, c.op("Sum", {da, c.constant(Tensor::from<std::int32_t>(Shape{2}, axes))}));
}

void lstm_gradient(GradContext& c) {
  if (!c.grad(0).valid() && !c.grad(3).valid()) return;
  const auto of = [&](int o) { return c.grad(o).valid() ? c.grad(o) : c.op("ZerosLike", {c.output(o)}); };
  const ValueRef dx =
      c.op("braid.LstmGrad", {of(0), c.input(1), c.output(2), c.input(3), of(3)}, c.node().attrs);
  c.set_grad(0, dx);
  c.set_grad(1, factors_gradient(c, dx));
  c.set_grad(2, ValueRef{dx.node, 1});
  c.set_grad(3, ValueRef{dx.node, 2});
}

/// 2 products of [B, H] with the factors, for each step.
Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const double units =
      c.shape(1).has_rank() ? static_cast<double>(std::max<std::int64_t>(c.shape(1)[1], 1)) : 1;
  const double gates = std::max(known_elements(c.shape(1)) / units, 1.0);
  return {2 * gates * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
}

}  // namespace

void register_recurrent(OpRegistry& registry) {
  const auto add = [&](OpDef def) {
    def.cost = cost;
    registry.add(std::move(def));
  };
  add({.name = "braid.Gru",
       .traits = computes().names({"h", "before", "saved"}),
       .min_inputs = 4,
       .max_inputs = 4,
       .infer = infer_forward<Gru>,
       .gradient = gru_gradient,
       .cpu = prepare_forward<Gru>,
       .in_files = true});
  add({.name = "braid.Lstm",
       .traits = computes().names({"h", "before", "saved", "c"}),
       .min_inputs = 4,
       .max_inputs = 4,
       .infer = infer_forward<Lstm>,
       .gradient = lstm_gradient,
       .cpu = prepare_forward<Lstm>,
       .in_files = true});
  constexpr const char* kReason = "it is part of a gradient; second derivatives are not made";
  add({.name = "braid.GruGrad",
       .traits = computes().names({"dx", "da", "dh0"}),
       .min_inputs = 4,
       .max_inputs = 4,
       .infer = infer_backward<Gru>,
       .no_gradient_reason = kReason,
       .cpu = prepare_backward<Gru>});
  add({.name = "braid.LstmGrad",
       .traits = computes().names({"dx", "dh0", "dc0"}),
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = infer_backward<Lstm>,
       .no_gradient_reason = kReason,
       .cpu = prepare_backward<Lstm>});
}

}  // namespace braid
