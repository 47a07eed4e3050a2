// Pooling by attention (pooling ATTENTION): the rows e_i of a list's ids by the softmax of their products
// with a query q of the same width d,
//   sum_i a_i e_i,   a = softmax(q . e_i / sqrt(d)),   zeros of a list without ids.
// q is the row of another column of the same batch, or a learned vector "<column>/query" [d], which begins
// uniform in +- 1 / sqrt(d). Lists that 0 fills are masked: what fills them has no part in it.
#pragma once

#include <string>
#include <vector>

#include "models/id_columns.h"

namespace braid {

/// The column that `column` names as its query. Throws: InvalidArgument where there is none, where it is a
/// list or has another width.
IdColumn& query_of(const std::string& model, std::vector<IdColumn>& columns, const IdColumn& column);

/// Whether its rows of `dim` numbers are pooled so: rows of one number, as those of a wide part, are not,
/// but as if the column said nothing.
bool pools_by_attention(const IdColumn& column, std::int64_t dim);

/// Its table, that of its query, and the pooled rows: [B, dim]. Throws: InvalidArgument where the column has
/// weights.
Output attended(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
                const InitSpec& init);

}  // namespace braid
