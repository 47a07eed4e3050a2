// A hook of hooks_test.cc: appends its event to the file that HOOK_FILE names, 3 where that cannot be
// written; with HOOK_HANGS it does not return, with HOOK_THROWS it throws.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

extern "C" int braid_hook(const char* event_json) {
  if (std::getenv("HOOK_HANGS"))
    for (;;) ::pause();
  if (std::getenv("HOOK_THROWS")) throw std::runtime_error("no table for step 10");
  std::ofstream file(std::getenv("HOOK_FILE"), std::ios::app);
  file << event_json << "\n";
  return file.flush() ? 0 : 3;
}
