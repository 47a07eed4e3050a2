// Graphs in types that have no kernels: they compute in a wider type and give the narrow one back.
#include <gtest/gtest.h>

#include <bit>

#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/engine/testing/interpreter.h"

namespace braid {
namespace {

using testing::Interpreter;

/// A graph of one node "y" on constants "a", "b", ... of `type`, each given as "dims|values" in text format.
Graph graph_of(const std::string& op, const std::string& type, const std::vector<std::string>& inputs,
               const std::string& attrs = "") {
  std::string text, names;
  char name = 'a';
  for (const std::string& input : inputs) {
    const std::size_t bar = input.find('|');
    std::string node_type = type, values = input.substr(bar + 1);
    if (values.starts_with("int32 ")) {
      node_type = "DT_INT32";
      values = values.substr(6);
    } else if (values.starts_with("half ")) {
      node_type = "DT_BFLOAT16";
      values = values.substr(5);
    }
    const std::string label(1, name++), tensor_type = "dtype: " + node_type;
    text += "node { name: '" + label + "' op: 'Const' attr { key: 'dtype' value { type: " + node_type;
    text += " } } attr { key: 'value' value { tensor { " + tensor_type + " tensor_shape { ";
    text += input.substr(0, bar) + " } " + values + " } } } }\n";
    names += " input: '" + label + "'";
  }
  text += "node { name: 'y' op: '" + op + "'" + names + " " + attrs + " }";
  return import_graph(parse_graph(text));
}

std::vector<float> as_floats(const Graph& graph, const std::string& fetch, DType expected) {
  Interpreter interpreter(graph);
  const Tensor value = interpreter.run({}, {fetch})[0];
  EXPECT_EQ(value.dtype(), expected);
  std::vector<float> floats;
  for (std::int64_t i = 0; i < value.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (expected == DType::BFloat16) {
      const std::uint32_t bits =
          static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(value.raw())[at]) << 16;
      floats.push_back(std::bit_cast<float>(bits));
    } else if (expected == DType::UInt8) {
      floats.push_back(value.data<std::uint8_t>()[at]);
    } else if (expected == DType::Bool) {
      floats.push_back(value.data<bool>()[at] ? 1 : 0);
    } else {
      floats.push_back(static_cast<float>(value.data<std::int64_t>()[at]));
    }
  }
  return floats;
}

const std::string kTwo = "dim { size: 2 }";

TEST(WidenTest, BFloat16RoundsEachResult) {
  // 1 (0x3F80) and 2^-7 (0x3C00), whose sum is the next number; 1 and 2^-9 (0x3B00), whose sum is not.
  const Graph graph = graph_of("AddV2", "DT_BFLOAT16",
                               {kTwo + "|half_val: [0x3F80, 0x3F80]", kTwo + "|half_val: [0x3C00, 0x3B00]"});
  EXPECT_EQ(as_floats(graph, "y", DType::BFloat16), (std::vector<float>{1.0078125F, 1}));
}

TEST(WidenTest, OutputsThatAreNoDataKeepTheirType) {
  const Graph compare = graph_of(
      "Less", "DT_BFLOAT16", {kTwo + "|half_val: [0x3F80, 0x4000]", kTwo + "|half_val: [0x4000, 0x3F80]"});
  EXPECT_EQ(as_floats(compare, "y", DType::Bool), (std::vector<float>{1, 0}));
  const Graph top =
      graph_of("TopKV2", "DT_BFLOAT16", {kTwo + "|half_val: [0x3F80, 0x4000]", "|int32 int_val: 1"});
  EXPECT_EQ(as_floats(top, "y", DType::BFloat16), (std::vector<float>{2}));
  Interpreter interpreter(top);
  EXPECT_EQ(interpreter.run({}, {"y:1"})[0].data<std::int32_t>()[0], 1);
}

TEST(WidenTest, SmallIntegersWrap) {
  const Graph graph =
      graph_of("AddV2", "DT_UINT8", {kTwo + "|int_val: [250, 3]", kTwo + "|int_val: [10, 4]"});
  EXPECT_EQ(as_floats(graph, "y", DType::UInt8), (std::vector<float>{4, 7}));
  const Graph index = graph_of("ArgMax", "DT_UINT8", {kTwo + "|int_val: [3, 250]", "|int32 int_val: 0"});
  EXPECT_EQ(as_floats(index, "y", DType::Int64), (std::vector<float>{1}));
}

TEST(WidenTest, ExtremesOfNothingAreOfTheNarrowRange) {
  const std::string none = "dim { size: 0 } dim { size: 1 }|";
  EXPECT_EQ(as_floats(graph_of("Max", "DT_UINT8", {none, "|int32 int_val: 0"}), "y", DType::UInt8),
            (std::vector<float>{0}));
  EXPECT_EQ(as_floats(graph_of("Min", "DT_UINT8", {none, "|int32 int_val: 0"}), "y", DType::UInt8),
            (std::vector<float>{255}));
}

TEST(WidenTest, TheDatasTypeComesBackAlsoBesideNarrowIndices) {
  const Graph graph = graph_of(
      "OneHot", "DT_UINT8",
      {kTwo + "|int_val: [1, 0]", "|int32 int_val: 2", "|half half_val: 0x3F80", "|half half_val: 0"},
      "attr { key: 'T' value { type: DT_BFLOAT16 } }");
  EXPECT_EQ(as_floats(graph, "y", DType::BFloat16), (std::vector<float>{0, 1, 1, 0}));
}

TEST(WidenTest, BoolsAreSoughtAndScattered) {
  const Graph first = graph_of("ArgMax", "DT_BOOL", {kTwo + "|bool_val: [false, true]", "|int32 int_val: 0"});
  EXPECT_EQ(as_floats(first, "y", DType::Int64), (std::vector<float>{1}));
  const Graph scattered =
      graph_of("TensorScatterUpdate", "DT_BOOL",
               {kTwo + "|bool_val: [true, true]", "dim { size: 1 } dim { size: 1 }|int32 int_val: 1",
                "dim { size: 1 }|bool_val: false"});
  EXPECT_EQ(as_floats(scattered, "y", DType::Bool), (std::vector<float>{1, 0}));
}

TEST(WidenTest, WindowsOfIntegers) {
  const Graph graph =
      graph_of("MaxPool", "DT_UINT8",
               {"dim { size: 1 } dim { size: 2 } dim { size: 1 } dim { size: 1 }|int_val: [7, 200]"},
               "attr { key: 'ksize' value { list { i: [1, 2, 1, 1] } } } "
               "attr { key: 'strides' value { list { i: [1, 1, 1, 1] } } } attr { key: 'padding' value { s: "
               "'VALID' } }");
  EXPECT_EQ(as_floats(graph, "y", DType::UInt8), (std::vector<float>{200}));
}

TEST(WidenTest, WhatOnlyMovesElementsStaysAsItIs) {
  const Graph graph = graph_of(
      "Transpose", "DT_BFLOAT16",
      {"dim { size: 1 } dim { size: 2 }|half_val: [0x3F80, 0x4000]", kTwo + "|int32 int_val: [1, 0]"});
  EXPECT_EQ(as_floats(graph, "y", DType::BFloat16), (std::vector<float>{1, 2}));
  EXPECT_EQ(graph.size(), 3);
}

TEST(WidenTest, ConvolutionsOfFloat64ComputeInFloat32) {
  const std::string one = "dim { size: 1 } dim { size: 1 } dim { size: 1 } dim { size: 1 }|double_val: ";
  const Graph graph = graph_of("Conv2D", "DT_DOUBLE", {one + "1.5", one + "4"},
                               "attr { key: 'strides' value { list { i: [1, 1, 1, 1] } } } "
                               "attr { key: 'padding' value { s: 'SAME' } }");
  Interpreter interpreter(graph);
  const Tensor y = interpreter.run({}, {"y"})[0];
  EXPECT_EQ(y.dtype(), DType::Float64);
  EXPECT_EQ(y.data<double>()[0], 6);
}

}  // namespace
}  // namespace braid
