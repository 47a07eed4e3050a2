// What an op of a GraphDef stands for, before nodes are made. Thread rule: pure function.
#pragma once

#include <string_view>

#include "engine/ir/op.h"

namespace braid {

/// Ordinary where the engine has no such op, and the importer lowers it.
inline OpRole role_of(std::string_view op) {
  const OpDef* def = OpRegistry::global().find(op);
  return def ? def->role : OpRole::Ordinary;
}

}  // namespace braid
