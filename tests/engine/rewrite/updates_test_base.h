// What tests of updates make graphs with, which are compiled for a device: compiling needs none.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/compile/compile.h"
#include "engine/ir/op.h"
#include "tests/engine/testing/assumed_kernels.h"

namespace braid::testing {

class UpdatesTest : public ::testing::Test {
 protected:
  using Ops = std::vector<std::string>;

  void SetUp() override { assume_cuda_kernels(); }

  ValueRef add(const std::string& name, const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs) {
    Node node;
    node.name = name;
    node.op = &OpRegistry::global().require(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    return {graph_.add(std::move(node)), 0};
  }
  ValueRef feed(const std::string& name, DType dtype, const Shape& shape) {
    request_.feeds.push_back({name, dtype, shape});
    return add(name, "Placeholder", {}, {{"dtype", dtype}, {"shape", shape}});
  }
  ValueRef variable(const std::string& name, const Shape& shape) {
    return add(name, "VarHandleOp", {}, {{"dtype", DType::Float32}, {"shape", shape}});
  }

  Graph graph_;
  CompileRequest request_;
};

}  // namespace braid::testing
