// The one table of passes, in the order in which compile() runs them. `braid graph passes` and
// docs/design/passes.md are printed from it. A pass is a function on the Plan in a file of its folder.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/program/plan.h"

namespace braid {

enum class PassDomain {
  All,
  Device,  // skipped for a program of the host
};

struct Pass {
  std::string_view name;    // its notes have the same
  std::string_view folder;  // of engine/
  PassDomain domain;
  void (*run)(Plan& plan);
  std::string_view does;  // one line
};

std::span<const Pass> passes();

/// The table as text; `markdown` as docs/design/passes.md has it.
std::string passes_text(bool markdown);

}  // namespace braid
