// Ops that make strings: their values where the inputs are known at compile time.

#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "base/formats/proto_wire.h"
#include "tests/engine/ops/known_values.h"
#include "tests/engine/ops/op_runner.h"
#include "tests/support/temp_dir.h"

namespace braid::testing {
namespace {

using Strings = std::vector<std::string>;

TEST(TextOpsTest, AsStringWritesAsPrintf) {
  EXPECT_EQ(to_strings(known("AsString", {f32({2}, {1.5F, -2})})), (Strings{"1.500000", "-2.000000"}));
  EXPECT_EQ(to_strings(known("AsString", {f64({1}, {1234.5})}, {{"scientific", true}, {"precision", 2}})),
            (Strings{"1.23e+03"}));
  EXPECT_EQ(to_strings(known("AsString", {f32({1}, {0.25F})}, {{"shortest", true}})), (Strings{"0.25"}));
  EXPECT_EQ(to_strings(known("AsString", {axes({7, -7})}, {{"width", 4}, {"fill", "0"}})),
            (Strings{"0007", "-007"}));
  EXPECT_EQ(to_strings(known("AsString", {axes({7, -7})}, {{"width", 4}, {"fill", "+"}})),
            (Strings{"  +7", "  -7"}));
  EXPECT_EQ(to_strings(known("AsString", {axes({7})}, {{"width", 3}, {"fill", "-"}})), (Strings{"7  "}));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(
      to_strings(known("AsString", {f32({2}, {1, -inf})}, {{"width", 6}, {"precision", 1}, {"fill", "0"}})),
      (Strings{"0001.0", "  -inf"}));
  EXPECT_EQ(known_refusal("AsString", {axes({7})}, {{"width", 1 << 30}}),
            "[AsString] node 'op': width is 1073741824");
  EXPECT_EQ(known_refusal("AsString", {axes({7})}, {{"fill", "*"}}),
            "[AsString] node 'op': fill '*' is not supported");
  EXPECT_EQ(to_strings(known("AsString", {bools({2}, {true, false})})), (Strings{"true", "false"}));
  EXPECT_EQ(to_strings(known("AsString", {bools({1}, {true})}, {{"width", 8}})), (Strings{"true"}));
}

TEST(TextOpsTest, StringsAreChangedByteByByte) {
  const Tensor x = text({"Ab\xC3\x84", " c D\t", ""});
  EXPECT_EQ(to_strings(known("StringLower", {x})), (Strings{"ab\xC3\x84", " c d\t", ""}));
  EXPECT_EQ(to_strings(known("StringUpper", {x})), (Strings{"AB\xC3\x84", " C D\t", ""}));
  EXPECT_EQ(to_strings(known("StringStrip", {x})), (Strings{"Ab\xC3\x84", "c D", ""}));
  EXPECT_EQ(tensor_to_int64s(known("StringLength", {x})), (std::vector<std::int64_t>{4, 5, 0}));
  EXPECT_EQ(known_refusal("StringLower", {x}, {{"encoding", "utf-8"}}),
            "[StringLower] node 'op': only bytes are supported, not encoded characters");
}

TEST(MovedStringsTest, KeepTheirTextsWhereverTheyGo) {
  const Tensor x = text({"a", "bc", "", "a"});
  EXPECT_EQ(to_strings(known("GatherV2", {x, axes({1, 2, 1}), Tensor::scalar<std::int32_t>(0)})),
            (Strings{"bc", "", "bc"}));
  EXPECT_EQ(to_strings(known("ConcatV2", {x, text({"z"}), Tensor::scalar<std::int32_t>(0)})),
            (Strings{"a", "bc", "", "a", "z"}));
  EXPECT_EQ(to_strings(known("SelectV2", {bools({4}, {true, false, false, true}), x, word("other")})),
            (Strings{"a", "other", "other", "a"}));
  EXPECT_EQ(to_strings(known("SparseToDense", {axes({1}), axes({3}), text({"v"}), word("gap")})),
            (Strings{"gap", "v", "gap"}));
  EXPECT_EQ(to_strings(known("ZerosLike", {x})), (Strings{"", "", "", ""}));
}

TEST(MovedStringsTest, AreEqualByTheirCharacters) {
  const Tensor x = text({"a", "bc", "", "a"});
  const auto flags = [](const Tensor& t) {
    return std::vector<bool>(t.data<bool>().begin(), t.data<bool>().end());
  };
  EXPECT_EQ(flags(known("Equal", {x, word("a")})), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(flags(known("NotEqual", {x, text({"a", "b", "", "A"})})),
            (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(to_strings(known("Unique", {x})), (Strings{"a", "bc", ""}));
  EXPECT_EQ(tensor_to_int64s(known("Unique", {x}, {}, 1)), (std::vector<std::int64_t>{0, 1, 2, 0}));
  EXPECT_EQ(known_refusal("Less", {x, x}), "[Less] node 'op': does not take string");
}

TEST(TextOpsTest, JoinRepeatsScalars) {
  EXPECT_EQ(to_strings(known("StringJoin", {text({"a", "b"}), word("x")}, {{"separator", "/"}})),
            (Strings{"a/x", "b/x"}));
  EXPECT_EQ(known_refusal("StringJoin", {text({"a", "b"}), text({"x"})}),
            "[StringJoin] node 'op': inputs must have one shape, got [2] and [1]");
}

TEST(TextOpsTest, SplitsAsTensorFlowDocuments) {
  const Tensor x = text({"hello world", "a b c"});
  EXPECT_EQ(to_strings(known("StringSplit", {x, word(" ")}, {}, 1)),
            (Strings{"hello", "world", "a", "b", "c"}));
  EXPECT_EQ(tensor_to_int64s(known("StringSplit", {x, word(" ")}, {}, 0)),
            (std::vector<std::int64_t>{0, 0, 0, 1, 1, 0, 1, 1, 1, 2}));
  EXPECT_EQ(tensor_to_int64s(known("StringSplit", {x, word(" ")}, {}, 2)), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(to_strings(known("StringSplit", {text({"a,,b"}), word(",")}, {{"skip_empty", false}}, 1)),
            (Strings{"a", "", "b"}));
  EXPECT_EQ(to_strings(known("StringSplit", {text({"abc"}), word("")}, {}, 1)), (Strings{"a", "b", "c"}));
  EXPECT_EQ(to_strings(known("StringSplitV2", {text({"1<>2<><>3"}), word("<>")}, {}, 1)),
            (Strings{"1", "2", "", "3"}));
  EXPECT_EQ(to_strings(known("StringSplitV2", {text({"1,2,3"}), word(",")}, {{"maxsplit", 1}}, 1)),
            (Strings{"1", "2,3"}));
  EXPECT_EQ(to_strings(known("StringSplitV2", {text({"  1 2   3  "}), word("")}, {}, 1)),
            (Strings{"1", "2", "3"}));
  EXPECT_EQ(to_strings(known("StringSplitV2", {text({" 1 2  3 ", "4"}), word("")}, {{"maxsplit", 1}}, 1)),
            (Strings{"1", "2  3 ", "4", ""}));
  for (const char* separator : {",", ""})
    EXPECT_EQ(
        to_strings(known("StringSplitV2", {text({" 1,2 ", ""}), word(separator)}, {{"maxsplit", 0}}, 1)),
        (Strings{" 1,2 ", ""}));
  EXPECT_EQ(to_strings(known("StringSplit", {text({"", ","}), word(",")}, {{"skip_empty", false}}, 1)),
            (Strings{"", ""}));  // nothing has no parts
}

TEST(TextOpsTest, CsvTypesDefaultsAndQuotes) {
  const std::vector<Tensor> inputs{text({"1,2.5,\"a \"\"b\"\", c\"", "3,,d"}), axes({0}), f32({1}, {-1}),
                                   text({"none"})};
  EXPECT_EQ(to_doubles(known("DecodeCSV", inputs, {}, 0)), (std::vector<double>{1, 3}));
  EXPECT_EQ(to_doubles(known("DecodeCSV", inputs, {}, 1)), (std::vector<double>{2.5, -1}));
  EXPECT_EQ(to_strings(known("DecodeCSV", inputs, {}, 2)), (Strings{"a \"b\", c", "d"}));
  EXPECT_EQ(to_doubles(known("DecodeCSV", {text({"x;7;y"}), axes({0})},
                             {{"field_delim", ";"}, {"select_cols", std::vector<std::int64_t>{1}}})),
            (std::vector<double>{7}));
  EXPECT_EQ(known_refusal("DecodeCSV", {text({"1,2"}), axes({0})}),
            "[DecodeCSV] node 'op': record 0 has 2 fields, expected 1");
  EXPECT_EQ(known_refusal("DecodeCSV", {text({"1", "x"}), axes({0})}),
            "[DecodeCSV] node 'op': record 1, field 0: 'x' is no int32");
  EXPECT_EQ(known_refusal("DecodeCSV", {text({",1"}), i32({0}, {}), axes({0})}),
            "[DecodeCSV] node 'op': record 0, field 0: it is required, but empty");
  EXPECT_EQ(known_refusal("DecodeCSV", {text({""}), axes({0})}),
            "[DecodeCSV] node 'op': record 0 has 0 fields, expected 1");
  EXPECT_EQ(known_refusal("DecodeCSV", {text({"1\r"}), axes({0})}),
            "[DecodeCSV] node 'op': a line break outside of quotes, in field 0 of '1\r'");
  EXPECT_EQ(known_refusal("DecodeCSV", {text({"\"a"}), text({"x"})}),
            "[DecodeCSV] node 'op': an open quote in '\"a'");
}

/// A record of features {name: bytes of the list's field}, as a writer of protocol buffers makes it.
std::string example(const std::vector<std::pair<std::string, std::string>>& features) {
  std::string map;
  for (const auto& [name, feature] : features) {
    std::string entry;
    put_bytes_field(entry, 1, name);
    put_bytes_field(entry, 2, feature);
    put_bytes_field(map, 1, entry);
  }
  std::string record;
  put_bytes_field(record, 1, map);
  return record;
}

std::string int_feature(const std::vector<std::uint64_t>& values, bool packed) {
  std::string list, digits;
  for (const std::uint64_t value : values) {
    if (packed)
      put_varint(digits, value);
    else
      put_varint_field(list, 1, value);
  }
  if (packed) put_bytes_field(list, 1, digits);
  std::string feature;
  put_bytes_field(feature, 3, list);
  return feature;
}

std::string float_feature(float value) {
  std::string list, feature;
  put_fixed32_field(list, 1, std::bit_cast<std::uint32_t>(value));
  put_bytes_field(feature, 2, list);
  return feature;
}

std::string bytes_feature(const Strings& values) {
  std::string list, feature;
  for (const std::string& value : values) put_bytes_field(list, 1, value);
  put_bytes_field(feature, 1, list);
  return feature;
}

TEST(ParseExampleTest, DenseAndSparseFeatures) {
  const Tensor records = text({example({{"age", float_feature(7.5F)}, {"ids", int_feature({4, 5}, true)}}),
                               example({{"ids", int_feature({6}, false)}, {"name", bytes_feature({"bo"})}})});
  const std::vector<Tensor> inputs{records,      text({}),       word("ids"),   word("age"),
                                   word("name"), f32({1}, {-1}), text({"none"})};
  const AttrMap attrs{{"Nsparse", 1},
                      {"Ndense", 2},
                      {"sparse_types", std::vector<DType>{DType::Int64}},
                      {"Tdense", std::vector<DType>{DType::Float32, DType::String}},
                      {"dense_shapes", std::vector<Shape>{Shape{1}, Shape{}}}};
  EXPECT_EQ(tensor_to_int64s(known("ParseExample", inputs, attrs, 0)),
            (std::vector<std::int64_t>{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(tensor_to_int64s(known("ParseExample", inputs, attrs, 1)), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(tensor_to_int64s(known("ParseExample", inputs, attrs, 2)), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(known("ParseExample", inputs, attrs, 3).shape(), (Shape{2, 1}));
  EXPECT_EQ(to_doubles(known("ParseExample", inputs, attrs, 3)), (std::vector<double>{7.5, -1}));
  EXPECT_EQ(to_strings(known("ParseExample", inputs, attrs, 4)), (Strings{"none", "bo"}));
}

TEST(ParseExampleTest, OneRecordHasNoAxisOfRecords) {
  const Tensor record = word(example({{"age", float_feature(7.5F)}, {"ids", int_feature({4, 5}, true)}}));
  const AttrMap types{{"num_sparse", 1},
                      {"sparse_types", std::vector<DType>{DType::Int64}},
                      {"Tdense", std::vector<DType>{DType::Float32}},
                      {"dense_shapes", std::vector<Shape>{Shape{1}}}};
  AttrMap keys = types;
  keys.set("sparse_keys", Strings{"ids"});
  keys.set("dense_keys", Strings{"age"});
  const std::vector<Tensor> second{record, text({}), text({"ids"}), text({"age"}), text({}), f32({1}, {-1})};
  const std::vector<Tensor> single{record, f32({1}, {-1})};
  for (const auto& [op, inputs, attrs] :
       {std::tuple("ParseExampleV2", second, types), std::tuple("ParseSingleExample", single, keys)}) {
    EXPECT_EQ(known(op, inputs, attrs, 0).shape(), (Shape{2, 1}));
    EXPECT_EQ(tensor_to_int64s(known(op, inputs, attrs, 0)), (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(tensor_to_int64s(known(op, inputs, attrs, 1)), (std::vector<std::int64_t>{4, 5}));
    EXPECT_EQ(tensor_to_int64s(known(op, inputs, attrs, 2)), (std::vector<std::int64_t>{2}));
    EXPECT_EQ(known(op, inputs, attrs, 3).shape(), Shape{1});
    EXPECT_EQ(to_doubles(known(op, inputs, attrs, 3)), std::vector<double>{7.5});
  }
}

TEST(ParseExampleTest, RaggedFeaturesOfTheSecondForm) {
  const Tensor records = text({example({{"ids", int_feature({4, 5}, true)}}), example({}),
                               example({{"ids", int_feature({6}, true)}})});
  const std::vector<Tensor> inputs{records, text({}), text({}), text({}), text({"ids"})};
  const AttrMap attrs{{"num_sparse", 0},
                      {"ragged_value_types", std::vector<DType>{DType::Int64}},
                      {"ragged_split_types", std::vector<DType>{DType::Int32}}};
  EXPECT_EQ(tensor_to_int64s(known("ParseExampleV2", inputs, attrs, 0)),
            (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(tensor_to_int64s(known("ParseExampleV2", inputs, attrs, 1)),
            (std::vector<std::int64_t>{0, 2, 2, 3}));
}

TEST(ParseExampleTest, DenseFeaturesOfUnknownLengthAreFilledUp) {
  const Tensor records = text({example({{"ids", int_feature({4, 5, 6, 7}, true)}}), example({}),
                               example({{"ids", int_feature({8, 9}, false)}})});
  const AttrMap attrs{{"num_sparse", 0},
                      {"Tdense", std::vector<DType>{DType::Int64}},
                      {"dense_shapes", std::vector<Shape>{Shape{Shape::kUnknown, 2}}}};
  const auto inputs = [&](const Tensor& record, Tensor filler) {
    return std::vector<Tensor>{record, text({}), text({}), text({"ids"}), text({}), std::move(filler)};
  };
  const Tensor ids = known("ParseExampleV2", inputs(records, i64({}, {-1})), attrs);
  EXPECT_EQ(ids.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(tensor_to_int64s(ids), (std::vector<std::int64_t>{4, 5, 6, 7, -1, -1, -1, -1, 8, 9, -1, -1}));
  EXPECT_EQ(
      known_refusal("ParseExampleV2",
                    inputs(text({example({{"ids", int_feature({4, 5, 6}, true)}})}), i64({0}, {})), attrs),
      "[ParseExampleV2] node 'op': record 0: feature 'ids' has 3 values, no multiple of 2");
  EXPECT_EQ(known_refusal("ParseExampleV2", inputs(records, i64({2}, {1, 2})), attrs),
            "[ParseExampleV2] node 'op': the default of dense feature 0 fills it up, so it must have one "
            "element, not 2");
}

TEST(ParseExampleTest, WhatDoesNotFitIsRefused) {
  const auto refused = [](const std::string& record, const Tensor& fallback) {
    return known_refusal(
        "ParseExample", {text({record}), text({}), word("age"), fallback},
        {{"Tdense", std::vector<DType>{DType::Float32}}, {"dense_shapes", std::vector<Shape>{Shape{}}}});
  };
  EXPECT_EQ(refused(example({}), f32({0}, {})),
            "[ParseExample] node 'op': record 0: feature 'age' is required, but missing");
  EXPECT_EQ(refused(example({{"age", int_feature({1}, true)}}), f32({0}, {})),
            "[ParseExample] node 'op': record 0: feature 'age' is int64, not float32");
  EXPECT_EQ(refused("\x0a\x7f", f32({0}, {}))
                .find("[ParseExample] node 'op': record 0 is no tf.train.Example: byte 2"),
            0U);
}

TEST(ParseExampleTest, KeysAndSizesOfNoSenseAreRefused) {
  const auto refused = [](const Tensor& key, const Shape& shape, std::size_t records = 1) {
    return known_refusal(
        "ParseExample", {text(Strings(records, example({}))), text({}), key, f32({1}, {0})},
        {{"Tdense", std::vector<DType>{DType::Float32}}, {"dense_shapes", std::vector<Shape>{shape}}});
  };
  EXPECT_EQ(refused(i64({2}, {-1, 7}), Shape{}),
            "[ParseExample] node 'op': input 2 has keys, which are strings, not int64");
  EXPECT_EQ(refused(text({"age", "age"}), Shape{}),
            "[ParseExample] node 'op': as many keys as types are needed");
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  EXPECT_EQ(refused(word("age"), Shape{kHuge}, 3),
            "[ParseExample] node 'op': feature 'age': 3 records of shape [1099511627776] are more than "
            "268435456 values");
  EXPECT_EQ(refused(word("age"), Shape{kHuge, kHuge}),
            "[ParseExample] node 'op': shape [1099511627776, 1099511627776] has more elements than 2^63 - 1");
}

TEST(TextOpsTest, Files) {
  EXPECT_EQ(to_strings(known("ShardedFilename", {word("model"), i32({}, {1}), i32({}, {4})})),
            (Strings{"model-00001-of-00004"}));
  const TempDir directory;
  const std::string file = directory.path() / "words.txt";
  std::ofstream(file) << "some text";
  EXPECT_EQ(to_strings(known("ReadFile", {word(file)})), (Strings{"some text"}));
}

TEST(TextOpsTest, WhatIsNotKnownStaysUnknown) {
  Graph graph;
  Node node;
  node.name = "op";
  node.op = &OpRegistry::global().require("AsString");
  node.inputs = {add_input(graph, "x", DType::Float32, Shape{2})};
  const NodeId id = graph.add(std::move(node));
  EXPECT_EQ(graph.known_value({id, 0}), nullptr);
  EXPECT_EQ(graph.info({id, 0}).dtype, DType::String);
}

}  // namespace
}  // namespace braid::testing
