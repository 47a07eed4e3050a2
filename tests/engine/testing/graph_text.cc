#include "tests/engine/testing/graph_text.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "proto/graph.pb.h"

namespace braid {

GraphDef parse_graph(const std::string& text) {
  GraphDef graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph)) << text;
  return graph;
}

std::string node(const std::string& name, const std::string& op, const std::string& inputs,
                 const std::string& rest) {
  std::string text = "node { name: '" + name + "' op: '" + op + "' ";
  std::istringstream stream(inputs);
  for (std::string input; stream >> input;) text += "input: '" + input + "' ";
  return text + rest + " }\n";
}

}  // namespace braid
