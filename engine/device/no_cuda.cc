// Stands in for engine/device/cuda where the CUDA Toolkit was not found.
#include "base/error.h"
#include "engine/device/accelerator.h"

namespace braid {

int cuda_device_count() { return 0; }

std::shared_ptr<Accelerator> open_cuda(const AcceleratorOptions&) {
  throw InvalidArgument("this build has no CUDA: configure with -DBRAID_CUDA=ON where the CUDA Toolkit is");
}

}  // namespace braid
