// What this process may use of the machine's processors. Thread rule: pure functions.
#pragma once

#include <string>

namespace braid {

/// Cores that the scheduler may give this process: its affinity mask, and the quota of its control group when
/// that is less (a container's CPU limit, rounded up). At least 1. Read anew at each call.
int usable_cores();

/// The processor's name as the system tells it, for reports; "unknown processor" when it does not.
std::string cpu_name();

/// Tells the core that a spin loop waits.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace braid
