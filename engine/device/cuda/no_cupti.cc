// Stands in for the sampler where the CUDA Toolkit has no CUPTI, or one whose records this build does not
// know.
#include "base/error.h"
#include "engine/device/activity.h"

namespace braid {

std::unique_ptr<ActivitySampler> make_activity_sampler(Accelerator&) {
  throw Unavailable("this build has no CUPTI");
}

}  // namespace braid
