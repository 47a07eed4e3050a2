#include "base/secret.h"

#include <sys/random.h>

#include <array>
#include <cerrno>

#include "base/error.h"

namespace braid {

std::string random_secret() {
  std::array<unsigned char, 32> bytes;
  ssize_t got;
  do got = getrandom(bytes.data(), bytes.size(), 0);
  while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) throw Internal("no random numbers from the system");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace braid
