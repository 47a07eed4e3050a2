// Flags that say what of a graph is trained, as the fields of model.graph: `braid train --graph` and `braid
// graph check --train` have them. Thread rule: values.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}
namespace braid::proto {
class TrainedGraph;
}

namespace braid::cli {

struct GraphModelFlags {
  std::string file, inference_file, loss, attach, prediction, label;
  std::string trainable, frozen, promote, train_op, initial_file;
  std::vector<std::string> feeds, constants, updates;

  /// Throws: InvalidArgument for a text that is none of its kind.
  proto::TrainedGraph message() const;
};

/// All but the file's own.
void add_graph_model_flags(CLI::App& command, GraphModelFlags& flags);

}  // namespace braid::cli
