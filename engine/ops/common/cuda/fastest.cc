#include "engine/ops/common/cuda/fastest.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/cuda/await.h"
#include "base/cuda/check.h"
#include "base/cuda/handles.h"
#include "engine/device/cuda/cuda_device.h"

namespace braid::cuda {
namespace {

constexpr int kRounds = 5, kMostRuns = 8;  // of each way in a round
constexpr float kRoundMs = 0.5F;           // or one run, where that is longer
constexpr float kHopeless = 2;             // so many times slower than another in the first round
constexpr double kWorthwhile = 0.97;

}  // namespace

int fastest(Accelerator& accelerator, int ways, const std::function<bool(int way, StreamRef stream)>& run) {
  CudaDevice& device = device_of(&accelerator);
  const DeviceGuard guard(device.ordinal());
  const StreamRef stream = device.stream("measure", 0);
  const Event begin = make_timed_event(), end = make_timed_event();
  std::vector<std::vector<float>> times(static_cast<std::size_t>(ways));
  std::vector<char> works(times.size(), 1);
  std::vector<int> runs(times.size(), 1);
  for (int round = -2; round < kRounds; ++round) {  // the first one loads kernels, the second is a guess
    for (std::size_t way = 0; way < times.size(); ++way) {
      if (!works[way]) continue;
      BRAID_CUDA_CHECK(cudaEventRecord(begin.get(), native(stream)));
      for (int i = 0; i < runs[way] && works[way]; ++i) works[way] = run(static_cast<int>(way), stream);
      BRAID_CUDA_CHECK(cudaEventRecord(end.get(), native(stream)));
      await_stream(native(stream), WaitContext::with_timeout(device.options().wait_timeout),
                   "measuring a way");
      if (round >= -1) times[way].push_back(elapsed_ms(begin, end) / static_cast<float>(runs[way]));
    }
    if (round != -1) continue;
    float least = std::numeric_limits<float>::infinity();
    for (std::size_t way = 0; way < times.size(); ++way)
      if (works[way]) least = std::min(least, times[way][0]);
    for (std::size_t way = 0; way < times.size(); ++way) {
      if (!works[way]) continue;
      works[way] = times[way][0] <= kHopeless * least;
      runs[way] = std::clamp(static_cast<int>(kRoundMs / std::max(times[way][0], 1e-3F)), 1, kMostRuns);
      times[way].clear();
    }
  }
  const auto median = [&](std::size_t way) {
    if (!works[way]) return std::numeric_limits<float>::infinity();
    std::vector<float>& of = times[way];
    std::nth_element(of.begin(), of.begin() + kRounds / 2, of.end());
    return of[kRounds / 2];
  };
  std::size_t best = 0;
  float least = static_cast<float>(kWorthwhile) * median(0);
  for (std::size_t way = 1; way < times.size(); ++way)
    if (const float time = median(way); time < least) {
      best = way;
      least = time;
    }
  return static_cast<int>(best);
}

}  // namespace braid::cuda
