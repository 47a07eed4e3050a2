// What the values of an ONNX model are called as nodes of a GraphDef. Thread rule: values.
#pragma once

#include <map>
#include <set>
#include <string>

#include "proto/onnx.pb.h"

namespace braid::onnx {

/// A GraphDef's names have no ':' and do not begin with '^'; ":0" is what value 0 of a node is called there,
/// too.
std::string clean_name(std::string name);

/// Of the values of a model's graph. One that is clean keeps its name; of others that become equal, those
/// that come later get a number.
class NodeNames {
 public:
  explicit NodeNames(const ModelProto& model);
  /// The clean name of what is no value of the graph.
  std::string of(const std::string& value) const;
  const std::set<std::string>& all() const { return taken_; }

 private:
  void add(const std::string& value);

  std::map<std::string, std::string> by_value_;
  std::set<std::string> taken_;
};

}  // namespace braid::onnx
