// Lookups in tables (HashTable, HashTableV2) -> lookups in what their initialiser puts there. A table is
// filled once, by an InitializeTable, LookupTableImport or InitializeTableFromTextFile (with and without V2)
// that stands elsewhere in the graph and that a fetch does not reach; here each lookup takes its keys and
// values as inputs. Tables and initialisers stay as nodes without effect, so that `init_all_tables` can be
// run. Thread rule: pure function.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "proto/graph.pb.h"

namespace braid {

struct LoweredTables {
  GraphDef graph;
  std::map<std::string, std::string> problems;  // lookups that have no table, and why
};

/// Nothing when the graph has no tables. REQUIRES: functions are inlined.
std::optional<LoweredTables> lower_tables(const GraphDef& graph);

}  // namespace braid
