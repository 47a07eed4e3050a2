// Runs an op's case as a program of the host or of the CUDA device, for tests that compare both.
#pragma once

#include <memory>
#include <vector>

#include "engine/device/accelerator.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {

/// How float32 products are computed on the device.
enum class Products { Exact, Tf32, Measured };

/// Null: there is none.
std::shared_ptr<Accelerator> cuda_device(Products products = Products::Exact);

struct Results {
  std::vector<Tensor> outputs, variables;
  bool runs = false;  // not folded into a constant
  bool on_device = false;
};

/// The op in a program of its own. Of several steps the first is launched, the next captured, others
/// replayed. Throws: what the step throws.
Results run_program(const OpDef& def, const OpCase& op_case, Domain domain, int steps, int streams = 1,
                    Products products = Products::Exact);

}  // namespace braid::testing
