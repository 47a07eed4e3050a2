// Numbers as C's locale writes them, whatever locale a program around us has set, as Qt and notebooks do: in
// many a number has a decimal comma, where strtod() ends at the point. Thread rule: any thread.
#pragma once

#include <locale.h>
#include <stdlib.h>

namespace braid {

inline locale_t c_locale() {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

/// strtod() in C's locale: also of hexadecimal digits, of what is too large (infinity) and too small (0).
inline double strtod_in_c(const char* text, char** end = nullptr) {
  return ::strtod_l(text, end, c_locale());
}

/// While it lives, this thread's C functions are in C's locale.
class InCLocale {
 public:
  InCLocale() : before_(::uselocale(c_locale())) {}
  ~InCLocale() { ::uselocale(before_); }
  InCLocale(const InCLocale&) = delete;
  InCLocale& operator=(const InCLocale&) = delete;

 private:
  const locale_t before_;
};

}  // namespace braid
