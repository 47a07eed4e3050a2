// The models of the zoo as examples/jobs has them, of din without its list of fields.
#pragma once

#include <cstdint>
#include <string>

#include "base/optim.h"
#include "models/model.h"

namespace braid::bench {

struct ZooCase {
  std::int64_t batch = 128;  // the job's
  ModelConfig config = {};
  OptimizerKind optimizer = OptimizerKind::Sgd;
};

/// Of a name that the zoo does not have: a batch of 256, and 10 classes.
ZooCase zoo_case(const std::string& name);

}  // namespace braid::bench
