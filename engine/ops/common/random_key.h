// The key of a random op's stream: (job seed, node name, step), and the node's attributes seed and seed2
// where they are not 0. Element i of an output depends on (key, i) only, so threads and blocks do not matter.
#pragma once

#include <cstdint>
#include <string>

#include "base/init.h"
#include "engine/ir/op.h"

namespace braid {

class RandomKey {
 public:
  /// `name`: whose numbers they are; nodes that must draw the same ones give the same name.
  RandomKey(const AttrMap& attrs, std::string name)
      : name_(std::move(name)),
        salt_(mix(attrs.get("seed", std::int64_t{0}), attrs.get("seed2", std::int64_t{0}))) {}

  RngKey at(const StepParams& params) const { return make_rng_key(params.seed ^ salt_, name_, params.step); }

  const std::string& name() const { return name_; }
  std::uint64_t salt() const { return salt_; }

 private:
  /// 0 for (0, 0); else the finaliser of SplitMix64 over both.
  static std::uint64_t mix(std::int64_t seed, std::int64_t seed2) {
    if (seed == 0 && seed2 == 0) return 0;
    std::uint64_t z =
        static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(seed2);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::string name_;
  std::uint64_t salt_;
};

}  // namespace braid
