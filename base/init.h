// Deterministic, counter-addressed random numbers and the initialisers made of them. Element i of a stream
// depends on (key, i) only, so a row of an embedding table has the same initial value whether it is made as
// part of the whole table, alone on a parameter server when its key is first seen, or by another number of
// threads.
//
// Generator: Philox4x32-10 (Salmon et al., SC'11), one 128-bit block for 4 consecutive elements. Uniforms use
// 24 bits. Normals are the inverse normal distribution function of one uniform (Acklam's rational
// approximation), truncated ones restrict that uniform to the central two standard deviations, so both stay
// addressable by element. No libm: same bits on every machine. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace braid {

struct RngKey {
  std::uint64_t value = 0;
  friend bool operator==(const RngKey&, const RngKey&) = default;
};

/// Key of a stream: the job's seed, the node or variable name, and the step (0 for initial values).
RngKey make_rng_key(std::uint64_t seed, std::string_view name, std::uint64_t step = 0);

/// 64-bit hash of a string that never changes between versions (FNV-1a with a final mix). Used in plans and
/// files.
std::uint64_t stable_hash(std::string_view text);

/// out[k] = uniform in [0, 1) of element first + k.
void fill_uniform01(RngKey key, std::uint64_t first, std::span<float> out);
/// out[k] = 32 random bits of element first + k.
void fill_bits(RngKey key, std::uint64_t first, std::span<std::uint32_t> out);
/// The inverse of the standard normal distribution function, relative error below 1.2e-9. REQUIRES: 0 < p
/// < 1.
double normal_quantile(double p);
void fill_normal01(RngKey key, std::uint64_t first, std::span<float> out);
/// Standard normal restricted to (-2, 2).
void fill_truncated_normal01(RngKey key, std::uint64_t first, std::span<float> out);

/// On the wire and in checkpoints: never renumber.
enum class InitKind : int { Zeros = 0, Constant = 1, Uniform = 2, Normal = 3, TruncatedNormal = 4 };

struct InitSpec {
  InitKind kind = InitKind::Zeros;
  float a = 0;  // Constant: value; Uniform: low; normals: mean
  float b = 0;  // Uniform: high; normals: standard deviation
};

/// Fills elements [first, first + out.size()) of a variable whose stream is `key`.
void fill_initial(const InitSpec& spec, RngKey key, std::uint64_t first, std::span<float> out);

}  // namespace braid
