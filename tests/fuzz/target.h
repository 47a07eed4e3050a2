// A fuzz target: one function over bytes, in libFuzzer's form, so that the same object links with libFuzzer
// (clang, BRAID_FUZZ=ON) or with driver.cc. A target ends the process when its input makes the product do
// anything but succeed or refuse the input as a user's mistake. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace braid::fuzz {

/// Inputs to begin with, which the driver mutates. None: the bytes are choices of a grammar, and are drawn.
std::vector<std::string> seeds();

/// How inputs have ended so far.
struct Tally {
  std::uint64_t accepted = 0, refused = 0, no_memory = 0;
};
Tally& tally();

/// Whether an input may ask for more memory than there is. Then the message must name the node, or the
/// variable.
enum class NoMemory { IsAFault, MayNameANode };

/// Runs `work`. Ends the process (abort) unless it succeeds or throws what ends `braid` with exit code 2:
/// InvalidArgument, DataLoss or OutOfRange; with MayNameANode also OutOfMemory that names the node or
/// variable.
void expect_accepted_or_refused(NoMemory no_memory, const std::function<void()>& work);

/// The bytes as a file of that name, in a directory of the process that is removed at its end.
std::filesystem::path as_file(std::string_view name, const std::uint8_t* data, std::size_t size);
inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace braid::fuzz
