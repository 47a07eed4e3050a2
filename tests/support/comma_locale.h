// A locale of decimal commas, made by localedef, for as long as it lives. Thread rule: one thread, alone.
#pragma once

#include <clocale>
#include <cstdlib>
#include <string>

#include "tests/support/temp_dir.h"

namespace braid {

class CommaLocale {
 public:
  CommaLocale() {
    const std::string name = (directory_.path() / "de_DE.UTF-8").string();
    const std::string make = "localedef -i de_DE -f UTF-8 '" + name + "' >/dev/null 2>&1";
    if (std::system(make.c_str()) != 0) return;
    ::setenv("LOCPATH", directory_.path().c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
    ::unsetenv("LOCPATH");
  }
  ~CommaLocale() { std::setlocale(LC_ALL, "C"); }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  /// False where the machine has no localedef.
  bool is_set() const { return is_set_; }

 private:
  const TempDir directory_;
  bool is_set_ = false;
};

}  // namespace braid
