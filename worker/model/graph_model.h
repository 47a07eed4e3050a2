// A graph that another program has written as the model of a job (model.graph): what is fed, what is trained,
// what variables begin with and what runs beside, found in the file and made into the ModelGraph that the
// rest of the worker knows. Everything that keeps it from training is told at once. Thread rule: pure, but
// for the files that it reads.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "worker/model/feeds.h"

namespace braid::proto {
class Job;
}
namespace braid {
struct Table;
}

namespace braid::worker {

/// What was found, for those who look.
struct GraphModelReport {
  struct Variable {
    std::string name;
    std::string type;     // "float32[10, 4]"
    std::string role;     // "trained", "trained by rows", "frozen", "not trained", "does not reach the loss"
    std::string initial;  // "zeros", "uniform in [-0.1, 0.1)", "from 'ckpt'", ...
  };
  int nodes_in_file = 0, nodes = 0;
  std::vector<std::string> feeds;  // "'dense' <- column 'dense'"
  std::vector<Variable> variables;
  std::vector<std::string> updates;

  std::string text() const;  // some lines
  std::string summary() const;
};

/// `columns`: of the data. Throws: InvalidArgument, with all that is wrong; DataLoss.
ModelGraph build_graph_model(const proto::Job& job, const std::vector<InputColumn>& columns,
                             GraphModelReport* report = nullptr);

/// The columns of a table; of the weights none, unless a feed names them.
std::vector<InputColumn> columns_of_table(const Table& table);

/// A column for each placeholder that the loss needs and nothing feeds, as if the data had them: to look at a
/// graph without data. Dimensions that are not known count as 1.
std::vector<InputColumn> columns_of_placeholders(const proto::Job& job);

}  // namespace braid::worker
