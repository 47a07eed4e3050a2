// The formulas of one step of recurrent layers, for one unit of one row; the CPU and CUDA share them. Gates
// lie side by side as in ONNX: of a GRU z, r, n, of an LSTM i, o, f, g.
//   GRU (reset after the product):  n = tanh(x_n + r a_n);  h = (1 - z) n + z h'
//   LSTM:  c = f c' + i g;  h = o tanh(c)
// x are the gates' inputs with their biases, a the products of the state with its bias. What is saved for the
// gradient: of a GRU z, r, n, a_n, of an LSTM the gates and c.
#pragma once

#include "engine/ops/common/vector_math.h"

namespace braid::recurrent {

struct Gru {
  static constexpr int kGates = 3, kSaved = 4;
  static constexpr bool kHasCell = false;  // and then the state's products have another gradient than x

  /// The new h. `cell` is not used.
  template <class T>
  BRAID_INLINE static T forward(const T* x, const T* a, T before, T&, T* saved) {
    const T z = vec::sigmoid(x[0] + a[0]), r = vec::sigmoid(x[1] + a[1]), n = vec::tanh(x[2] + r * a[2]);
    saved[0] = z;
    saved[1] = r;
    saved[2] = n;
    saved[3] = a[2];
    return (T(1) - z) * n + z * before;
  }
  /// dx and da from the gradient of h, and what of it goes to h' other than through a. `other` is h'.
  template <class T>
  BRAID_INLINE static T backward(const T* saved, T before, T dh, T&, T* dx, T* da) {
    const T z = saved[0], r = saved[1], n = saved[2];
    const T dn = dh * (T(1) - z) * (T(1) - n * n);
    dx[0] = da[0] = dh * (before - n) * z * (T(1) - z);
    dx[1] = da[1] = dn * saved[3] * r * (T(1) - r);
    dx[2] = dn;
    da[2] = dn * r;
    return dh * z;
  }
};

struct Lstm {
  static constexpr int kGates = 4, kSaved = 5;
  static constexpr bool kHasCell = true;

  /// The new h; `cell` goes from c' to c.
  template <class T>
  BRAID_INLINE static T forward(const T* x, const T* a, T, T& cell, T* saved) {
    const T i = vec::sigmoid(x[0] + a[0]), o = vec::sigmoid(x[1] + a[1]), f = vec::sigmoid(x[2] + a[2]);
    const T g = vec::tanh(x[3] + a[3]);
    cell = f * cell + i * g;
    saved[0] = i;
    saved[1] = o;
    saved[2] = f;
    saved[3] = g;
    saved[4] = cell;
    return o * vec::tanh(cell);
  }
  /// As a GRU's; `before` is c', and d_cell goes from c's gradient to that of c'.
  template <class T>
  BRAID_INLINE static T backward(const T* saved, T before, T dh, T& d_cell, T* dx, T* da) {
    const T i = saved[0], o = saved[1], f = saved[2], g = saved[3], t = vec::tanh(saved[4]);
    const T dc = d_cell + dh * o * (T(1) - t * t);
    dx[0] = da[0] = dc * g * i * (T(1) - i);
    dx[1] = da[1] = dh * t * o * (T(1) - o);
    dx[2] = da[2] = dc * before * f * (T(1) - f);
    dx[3] = da[3] = dc * i * (T(1) - g * g);
    d_cell = dc * f;
    return T(0);
  }
};

/// Sizes of a node: steps, rows, units.
struct Sizes {
  std::int64_t steps = 0, rows = 0, units = 0;
  bool reverse = false;

  BRAID_INLINE std::int64_t states() const { return rows * units; }
  /// The place of step s; -1 and `steps` are in front of the first and behind the last one.
  BRAID_INLINE std::int64_t place(std::int64_t s) const { return reverse ? steps - 1 - s : s; }
};

}  // namespace braid::recurrent
