// Functions of texts that a graph applies to chosen texts: hashes and lookups of what feature columns keep of
// a dense column, which are those that are not empty. They become functions of all texts, whose results are
// chosen. So they follow row by row from the columns of a file or an array, and can be computed before a
// step.
//   hash(gather_nd(texts, places))  ->  gather_nd(hash(texts), places)
//   texts != "word"                 ->  fingerprint(texts) != that of the word
//   shape(texts)                    ->  shape(fingerprint(texts))
//   SparseCross of texts            ->  of their fingerprints, which it chains
// Thread rule: pure.
#pragma once

#include "proto/graph.pb.h"

namespace braid {

/// Of the graph's own nodes; functions of its library are left alone. Names of nodes that were there stay.
void hoist_text_functions(GraphDef& graph);

}  // namespace braid
