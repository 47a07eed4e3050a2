#include "worker/watch/activity.h"

#include <algorithm>
#include <string>
#include <vector>

namespace braid::worker {
namespace {

/// Null when there is none.
template <class Streams>
auto* find(Streams& streams, const std::string& name) {
  const auto at =
      std::find_if(streams.begin(), streams.end(), [&](const auto& stream) { return stream.name == name; });
  return at == streams.end() ? nullptr : &*at;
}

void subtract(StreamStats& stream, const StreamStats& earlier) {
  stream.busy_seconds -= earlier.busy_seconds;
  stream.launches -= earlier.launches;
  stream.bytes -= earlier.bytes;
  stream.waits -= earlier.waits;
  for (const auto& [cause, seconds] : earlier.wait_seconds) stream.wait_seconds[cause] -= seconds;
}

void subtract(DeviceStreamWork& stream, const DeviceStreamWork& earlier) {
  stream.launches -= earlier.launches;
  stream.bytes -= earlier.bytes;
}

void add(StreamStats& sum, const StreamStats& part) {
  sum.busy_seconds += part.busy_seconds;
  sum.launches += part.launches;
  sum.bytes += part.bytes;
  sum.waits += part.waits;
  for (const auto& [cause, seconds] : part.wait_seconds) sum.wait_seconds[cause] += seconds;
}

void add(DeviceStreamWork& sum, const DeviceStreamWork& part) {
  sum.launches += part.launches;
  sum.bytes += part.bytes;
}

template <class Stream>
void subtract_all(std::vector<Stream>& streams, const std::vector<Stream>& earlier) {
  for (Stream& stream : streams)
    if (const auto* before = find(earlier, stream.name)) subtract(stream, *before);
}

template <class Stream>
void add_all(std::vector<Stream>& sum, const std::vector<Stream>& parts) {
  for (const Stream& part : parts) {
    if (auto* known = find(sum, part.name))
      add(*known, part);
    else
      sum.push_back(part);
  }
}

}  // namespace

HostActivity difference(HostActivity later, const HostActivity& earlier) {
  later.compute_seconds -= earlier.compute_seconds;
  subtract_all(later.streams, earlier.streams);
  subtract_all(later.device_streams, earlier.device_streams);
  return later;
}

void add(HostActivity& sum, const HostActivity& part) {
  sum.compute_seconds += part.compute_seconds;
  add_all(sum.streams, part.streams);
  add_all(sum.device_streams, part.device_streams);
}

}  // namespace braid::worker
