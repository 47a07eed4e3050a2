// TableSet as PsTableSet of proto/ps.proto and back. Thread rule: pure functions.
#pragma once

#include "ps/table_set.h"

namespace braid::proto {
class PsTableSet;
}

namespace braid::ps {

void to_proto(const TableSet& set, proto::PsTableSet* out);
TableSet from_proto(const proto::PsTableSet& in);

}  // namespace braid::ps
