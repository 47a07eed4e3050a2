// Where each node of a program runs, in TensorFlow's manner: "name: (Op): /job:localhost/replica:0/task:0/
// device:CPU:0". Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/device_name.h"
#include "engine/program/program.h"

namespace braid {

/// A line a node, producers first. Constants and what is fed are on the CPU, views where what they look at
/// is. `process` says job and task.
std::vector<std::string> placement_log(const Program& program, DeviceName process = {});

}  // namespace braid
