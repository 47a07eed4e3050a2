// Rows without what is to be predicted: columns that predictions do not depend on, such as labels, may be
// missing. Thread rule: pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace braid {
struct Table;
struct ModelGraph;
}  // namespace braid
namespace braid::proto {
class Job;
}

namespace braid::worker {

/// Columns that the model reads, and that no value of `outputs` depends on; its labels, and weights.
std::vector<std::string> columns_apart(const ModelGraph& model, const std::vector<std::string>& outputs);

/// `shapes` with the columns of a job's graph that they lack, as its placeholders say; of another model
/// themselves. Throws: as read_model_file().
std::shared_ptr<const Table> with_graph_columns(const proto::Job& job,
                                                const std::shared_ptr<const Table>& shapes);

/// `rows` with zeros in place of columns among `apart` that `shapes` has and they lack.
std::shared_ptr<const Table> completed(const std::shared_ptr<const Table>& rows, const Table& shapes,
                                       const std::vector<std::string>& apart);

}  // namespace braid::worker
