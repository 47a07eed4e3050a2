// Names of devices as graphs write them: full, "/job:worker/replica:0/task:1/device:GPU:2", or any part of
// that, with the short forms "/gpu:0", "/cpu:0", "GPU:0". "*" stands for any job, task or number. Thread
// rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid {

/// What is not said is nothing, which every device answers to.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> kind;  // upper case: "CPU", "GPU", "TPU", ...
  std::optional<int> index;
};

/// Throws: InvalidArgument for a text of no such form, naming the part.
DeviceName parse_device_name(std::string_view text);

/// The full form; what is not said is job localhost, number 0 and kind CPU.
std::string full_device_name(const DeviceName& name);

}  // namespace braid
