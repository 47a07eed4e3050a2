#include "tests/engine/staging/delayed_op.h"

#include <atomic>
#include <cstring>

#include "engine/ir/op.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

constexpr int kMostUs = 150;

PreparedKernel prepare(const PrepareContext& context) {
  PreparedKernel kernel;
  const auto& input = context.inputs[0];
  const std::size_t bytes = static_cast<std::size_t>(input.shape.elements()) * dtype_size(input.dtype);
  kernel.run = [bytes](const KernelArgs& args) {
    static std::atomic<std::uint64_t> calls{0};
    random_delay(calls.fetch_add(1, std::memory_order_relaxed), kMostUs);
    std::memcpy(args.outputs[0], args.inputs[0], bytes);
  };
  return kernel;
}

}  // namespace

void register_delayed_op() {
  static const bool once = [] {
    OpDef def;
    def.name = "test.Delayed";
    def.min_inputs = def.max_inputs = 1;
    def.infer = [](InferContext& c) { c.output(c.dtype(0), c.shape(0)); };
    def.no_gradient_reason = "an op of the tests";
    def.cpu = prepare;
    OpRegistry::global().add(std::move(def));
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace braid::testing
