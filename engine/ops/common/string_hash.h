// The hashes behind TensorFlow's string-to-bucket ops, which must give its buckets: FarmHash's Fingerprint64
// (Pike, 2014), the MurmurHash64A (Appleby) with TensorFlow's seed that older graphs use, and SipHash-2-4
// (Aumasson and Bernstein, 2012) with a key. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace braid {

std::uint64_t farm_fingerprint64(std::string_view text);
std::uint64_t murmur_hash64(std::string_view text, std::uint64_t seed = 0xDECAFCAFFE);
std::uint64_t sip_hash64(std::string_view text, std::uint64_t key0, std::uint64_t key1);

}  // namespace braid
