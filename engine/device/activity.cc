#include "engine/device/activity.h"

#include <algorithm>

namespace braid {

double DeviceActivity::overlap_factor() const {
  double sum = 0;
  for (const StreamActivity& stream : streams) sum += stream.busy_seconds;
  return busy_seconds > 0 ? sum / busy_seconds : 0;
}

void DeviceActivity::add(const DeviceActivity& window) {
  window_seconds += window.window_seconds;
  busy_seconds += window.busy_seconds;
  dropped += window.dropped;
  inputs.add(window.inputs);
  for (const StreamActivity& more : window.streams) {
    const auto known = std::find_if(streams.begin(), streams.end(), [&](const StreamActivity& stream) {
      return stream.stream == more.stream;
    });
    if (known == streams.end()) {
      streams.push_back(more);
    } else {
      known->busy_seconds += more.busy_seconds;
      known->pieces += more.pieces;
    }
  }
}

void CopyActivity::add(const CopyActivity& more) {
  copies += more.copies;
  bytes += more.bytes;
  seconds += more.seconds;
  hidden_seconds += more.hidden_seconds;
}

std::uint64_t covered_ns(std::vector<ActivityInterval> intervals, std::uint64_t begin, std::uint64_t end) {
  std::sort(intervals.begin(), intervals.end(),
            [](const ActivityInterval& a, const ActivityInterval& b) { return a.begin < b.begin; });
  std::uint64_t covered = 0, reached = begin;
  for (const ActivityInterval& interval : intervals) {
    const std::uint64_t from = std::max(interval.begin, reached), to = std::min(interval.end, end);
    if (from >= to) continue;
    covered += to - from;
    reached = to;
  }
  return covered;
}

std::uint64_t covered_by_both_ns(const std::vector<ActivityInterval>& some,
                                 const std::vector<ActivityInterval>& others, std::uint64_t begin,
                                 std::uint64_t end) {
  std::vector<ActivityInterval> either = some;
  either.insert(either.end(), others.begin(), others.end());
  return covered_ns(some, begin, end) + covered_ns(others, begin, end) -
         covered_ns(std::move(either), begin, end);
}

}  // namespace braid
