// Fills the process's registry with the ops of this folder. The registry itself (engine/ir/op.h) knows no op.
#include "engine/ir/op.h"

namespace braid {

#define BRAID_OPS(stem) void register_##stem(OpRegistry& registry);
#include "engine/ops/ops.def"
#undef BRAID_OPS

namespace {

/// A build for one machine's processor (BRAID_NATIVE) may have been carried to another.
void check_processor() {
#ifdef BRAID_VECTORS
  if (!__builtin_cpu_supports(BRAID_VECTORS))
    throw InvalidArgument("this Braid was built for processors with " BRAID_VECTORS
                          ", which this machine does not have: build it here, or with -DBRAID_NATIVE=OFF");
#endif
}

}  // namespace

void register_cuda_kernels(OpRegistry& registry);  // cuda_kernels.cc, or no_cuda.cc where there is no CUDA

OpRegistry& OpRegistry::global() {
  static OpRegistry* registry = [] {
    check_processor();
    auto* r = new OpRegistry;  // lives as long as the process: graphs hold pointers to its ops
#define BRAID_OPS(stem) register_##stem(*r);
#include "engine/ops/ops.def"
#undef BRAID_OPS
    register_cuda_kernels(*r);
    return r;
  }();
  return *registry;
}

}  // namespace braid
