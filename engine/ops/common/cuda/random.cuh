// The random numbers of base/init.h inside kernels: the same Philox blocks under the same keys, which are
// made from the step's parameters in device memory. Compile users with --fmad=false, so that normals have the
// host's bits.
#pragma once

#include "base/philox.h"
#include "base/random_formulas.h"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/random_key.h"

namespace braid::cuda {

/// A RandomKey as a kernel's argument.
struct DeviceRandomKey {
  std::uint64_t name_hash, salt;

  explicit DeviceRandomKey(const RandomKey& key) : name_hash(stable_hash(key.name())), salt(key.salt()) {}

  __device__ std::uint64_t at(const StepParams& params) const {
    return random::key_value(params.seed ^ salt, name_hash, params.step);
  }
};

/// The 32 random bits of elements 4 * block to 4 * block + 3.
__device__ inline Pack<std::uint32_t, 4> random_bits(std::uint64_t key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32), c2 = 0,
                c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint32_t high0 = __umulhi(kPhiloxMultiplier0, c0), low0 = kPhiloxMultiplier0 * c0;
    const std::uint32_t high1 = __umulhi(kPhiloxMultiplier1, c2), low1 = kPhiloxMultiplier1 * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace braid::cuda
