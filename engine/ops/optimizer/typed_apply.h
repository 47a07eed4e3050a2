// Walks of an optimizer's update over variables that are not float32: float64 ones in their own type, float16
// and bfloat16 ones in float32, with one rounding at the end. `Formula` is as in base/optim_formulas.h.
// Thread rule: updates are element by element, so neither blocks nor threads change a bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/thread_pool.h"
#include "engine/ops/common/half.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/apply_rows.h"

namespace braid {

/// A variable and its slots, stored as S, computed with in T.
template <class S, class T>
struct TypedVariable {
  S* weights;
  std::array<S*, VariableRun::kMaxSlots> slots{};

  TypedVariable(const KernelArgs& a, int count) : weights(a.var<S>(0)) {
    for (int s = 0; s < count; ++s) slots[static_cast<std::size_t>(s)] = a.var<S>(s + 1);
  }

  /// Elements [first, first + n), with the n elements of `gradient`.
  template <class Formula, class Rates>
  void update(const Rates& rates, std::int64_t first, std::int64_t n, const T* gradient) const {
    constexpr auto kSlots = static_cast<std::size_t>(Formula::kSlots);
    for (std::int64_t i = 0; i < n; ++i) {
      T state[std::max<std::size_t>(kSlots, 1)] = {};
      for (std::size_t s = 0; s < kSlots; ++s) state[s] = static_cast<T>(slots[s][first + i]);
      weights[first + i] =
          static_cast<S>(Formula::apply(rates, static_cast<T>(weights[first + i]), gradient[i], state));
      for (std::size_t s = 0; s < kSlots; ++s) slots[s][first + i] = static_cast<S>(state[s]);
    }
  }
};

/// Where a sparse form's rows are; a dense one has no index input.
struct RowsOf {
  int gradient;
  int indices = -1;
  std::int64_t rows = 0, width = 0;  // of the variable
  std::int64_t elements = 0;
};

/// with(a, body) reads the hyper-parameters and calls body.operator()<Formula>(rates). Rows are updated once
/// for each occurrence of their index, in order.
template <class S, class T, class With>
PreparedKernel typed_apply_kernel(const PrepareContext& c, int slots, RowsOf where, With with) {
  PreparedKernel kernel;
  if (where.indices < 0) {
    kernel.run = [=, pool = &c.pool](const KernelArgs& a) {
      const TypedVariable<S, T> variable(a, slots);
      with(a, [&]<class Formula>(const auto& rates) {
        pool->parallel_range(where.elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
          variable.template update<Formula>(rates, begin, end - begin, a.in<T>(where.gradient) + begin);
        });
      });
    };
    return kernel;
  }
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(where.indices)];
  const std::int64_t n = index_info.shape[0];
  kernel.scratch_bytes = IndexGroups::scratch_bytes(n);
  kernel.run = [=, pool = &c.pool, dtype = index_info.dtype, place = place_of(c.node)](const KernelArgs& a) {
    const auto groups = IndexGroups::checked(place, dtype, a.inputs[where.indices], n, where.rows, a.scratch);
    const TypedVariable<S, T> variable(a, slots);
    with(a, [&]<class Formula>(const auto& rates) {
      pool->parallel_range(groups.size(), row_grain(where.width), [&](std::int64_t g, std::int64_t last) {
        for (; g < last; ++g)
          for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e)
            variable.template update<Formula>(rates, groups.index(g) * where.width, where.width,
                                              a.in<T>(where.gradient) + groups.position(e) * where.width);
      });
    });
  };
  return kernel;
}

/// Calls body.operator()<S, T>() for the type of the variable. REQUIRES: not float32.
template <class Body>
PreparedKernel with_stored_type(const PrepareContext& c, Body&& body) {
  switch (c.inputs[0].dtype) {
    case DType::Float64:
      return body.template operator()<double, double>();
    case DType::Float16:
      return body.template operator()<Float16, float>();
    case DType::BFloat16:
      return body.template operator()<BFloat16, float>();
    default:
      c.fail("a variable of " + std::string(dtype_name(c.inputs[0].dtype)) + " is not trained");
  }
}

/// Slots must hold what the variable holds, and the gradient must be of the type that it is computed with.
void check_variable_types(const PrepareContext& c, int slots, int gradient);
/// The other inputs, from `first` on, are of one floating type.
void require_one_float_type(InferContext& c, int first, int indices);

}  // namespace braid
