// Files that others have made and that are too large, or not free, to lie in the project. Tests use them as
// outside oracles only: what they check besides, they check on data of their own. tests/README.md lists them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace braid {

/// `name` in the folder that the variable BRAID_TEST_DATA names, else in shared/data beside the project's.
inline std::filesystem::path outside_data(const std::string& name) {
  const char* folder = std::getenv("BRAID_TEST_DATA");
  return (folder ? std::filesystem::path(folder)
                 : std::filesystem::path(BRAID_SOURCE_DIR) / "../shared/data") /
         name;
}

}  // namespace braid

/// Ends the test as skipped where `path` is not there; says where it is from.
#define SKIP_WITHOUT_OUTSIDE_DATA(path)                                \
  if (!std::filesystem::exists(path))                                  \
  GTEST_SKIP() << "an outside oracle is not here: " << (path).string() \
               << "; tests/README.md, \"Outside oracles\", says where to get it and where to put it"
