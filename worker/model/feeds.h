// Which value of a graph each column of the data feeds, and which values are constants: placeholders of the
// columns' names, types and shapes take the place of the fed values, behind a Cast or a Reshape where the
// graph wants another type or another shape of a row. Thread rule: one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/ir/shape.h"
#include "worker/model/model_file.h"
#include "worker/model/problems.h"

namespace braid::proto {
class TrainedGraph;
}

namespace braid::worker {

/// A column that the data has: the shape of a row.
struct InputColumn {
  std::string name;
  DType dtype = DType::Float32;
  Shape row;
  std::int64_t ids = 0;  // its numbers are from 0 to below it; 0: not known
};

struct GraphFeeds {
  struct Constant {
    std::string training, evaluation;
  };
  std::map<std::string, std::string> columns;     // value as the job names it -> column
  std::map<std::string, Constant> constants;      // value -> its text
  std::set<std::string> further;                  // columns that have a placeholder and feed nothing yet
  std::vector<std::string> used_columns() const;  // each once, sorted
};

/// What the job says, and of placeholders that it does not name those that are named like a column.
/// `roots`: the values that each file is to compute.
GraphFeeds choose_feeds(const proto::TrainedGraph& asked, const std::vector<InputColumn>& columns,
                        ModelFile& training, const std::vector<std::string>& training_roots,
                        ModelFile* inference, const std::vector<std::string>& inference_roots,
                        Problems& problems);

/// Nodes that have one of these names get others, which `file.renamed` has.
void reserve_names(ModelFile& file, const std::vector<std::string>& names);

/// Puts the placeholders and constants into the graph. `values_are_optional`: of values that this graph does
/// not have nothing is said, since another has them.
void put_feeds(ModelFile& file, const GraphFeeds& feeds, const std::vector<InputColumn>& columns,
               bool evaluation, bool values_are_optional, Problems& problems);

/// Adds a problem for each placeholder that the roots need and nothing feeds.
void check_all_fed(ModelFile& file, const std::vector<std::string>& roots,
                   const std::vector<std::string>& columns, Problems& problems);

}  // namespace braid::worker
