#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <typeinfo>

#include "base/error.h"
#include "tests/support/temp_dir.h"

namespace braid::fuzz {
namespace {

[[noreturn]] void fail(const char* type, const char* message) {
  std::fprintf(stderr, "fuzz target: neither accepted nor refused: %s: %s\n", type, message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace

Tally& tally() {
  static Tally counts;
  return counts;
}

void expect_accepted_or_refused(NoMemory no_memory, const std::function<void()>& work) {
  try {
    work();
    ++tally().accepted;
  } catch (const OutOfMemory& error) {
    const bool names_holder = error.message().find("node '") != std::string::npos ||
                              error.message().find("variable '") != std::string::npos;
    const bool names_node = names_holder && no_memory == NoMemory::MayNameANode;
    if (!names_node) fail("OutOfMemory", error.what());
    ++tally().no_memory;
  } catch (const Error& error) {
    const bool has_no_place = no_memory == NoMemory::MayNameANode &&
                              error.message().find("2^63") != std::string::npos &&
                              error.message().find("node '") == std::string::npos;
    if (has_no_place) fail("no node is named", error.what());
    if (exit_code_for(error.code()) != kExitBadInput && error.code() != ErrorCode::OutOfRange)
      fail(std::string(error_code_name(error.code())).c_str(), error.what());
    ++tally().refused;
  } catch (const std::exception& error) {
    fail(typeid(error).name(), error.what());
  }
}

std::filesystem::path as_file(std::string_view name, const std::uint8_t* data, std::size_t size) {
  static const TempDir directory;
  std::filesystem::path file = directory.path() / name;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return file;
}

}  // namespace braid::fuzz
