// Random texts that nobody can guess. Thread rule: safe from any thread.
#pragma once

#include <string>

namespace braid {

/// 64 hexadecimal digits from the system's source of randomness. Throws: Internal when it has none.
std::string random_secret();

}  // namespace braid
