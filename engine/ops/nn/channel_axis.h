// Where BiasAdd and its gradient find the channels: the last axis (data_format NHWC) or axis 1 (NCHW).
#pragma once

#include <string>
#include <vector>

namespace braid {

/// The channel axis of a value of rank `rank`. Fails through the context for another format, or too low a
/// rank.
template <class Context>
int channel_axis(const Context& c, int rank) {
  const auto format = c.template attr<std::string>("data_format", "NHWC");
  if (format != "NHWC" && format != "NCHW") c.fail("data_format must be NHWC or NCHW, got " + format);
  if (format == "NCHW" && rank < 2) c.fail("data_format NCHW needs rank >= 2");
  return format == "NCHW" ? 1 : rank - 1;
}

/// All axes but the channel axis.
template <class Context>
std::vector<int> axes_beside_channels(const Context& c, int rank) {
  std::vector<int> axes;
  for (int axis = 0; axis < rank; ++axis)
    if (axis != channel_axis(c, rank)) axes.push_back(axis);
  return axes;
}

}  // namespace braid
