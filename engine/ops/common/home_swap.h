// Puts the rows of a step to their places in the variables that are their home, takes out those that made
// room, and says of each id which row it has (base/home_block.h). Inputs and outputs of the kernels:
//
//   inputs   one of no interest; places of each list [...] i32, which key an id has, -1 where there is no id;
//            variables of the group's tables, of each its values [rows, dim] and slots, all f32
//   outputs  of each list [...] i32, its ids' rows in the table, or -1; one number, which means nothing
//
// Thread rule: as kernels of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/home_block.h"
#include "engine/ir/op.h"

namespace braid {

struct HomeSwapSpec {
  HomeLayout layout;
  std::byte* memory = nullptr;       // of the layout; page-locked for a device
  std::vector<std::int64_t> ids;     // by list
  std::vector<std::int64_t> widths;  // numbers of a row's values, of each slot
  int tables = 0;
  bool joined = false;  // the places of all lists are one input, one list behind the other

  int first_variable() const { return joined ? 2 : 1 + static_cast<int>(ids.size()); }
  const std::int32_t* places(const KernelArgs& a, std::size_t list) const {
    if (!joined) return a.in<std::int32_t>(1 + static_cast<int>(list));
    const auto* at = a.in<std::int32_t>(1);
    for (std::size_t before = 0; before < list; ++before) at += ids[before];
    return at;
  }
  int variable(int table, int piece) const {
    return first_variable() + table * static_cast<int>(widths.size()) + piece;
  }
};

PreparedKernel host_home_swap(const PrepareContext& c, HomeSwapSpec spec);
/// Fails in a build without CUDA.
PreparedKernel device_home_swap(const PrepareContext& c, HomeSwapSpec spec);

}  // namespace braid
