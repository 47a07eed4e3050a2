// `braid graph run`, `stats`, `dot` and `export` as users call them, on files.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/formats/npy.h"
#include "tests/cli/tool_test.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char kWherePositive[] = R"(
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 } } } }
node { name: "positive" op: "Greater" input: "checked" input: "zero" }
node { name: "checked" op: "CheckNumerics" input: "x" attr { key: "message" value { s: "x" } } }
node { name: "where" op: "Where" input: "positive" }
node { name: "picked" op: "GatherNd" input: "x" input: "where" }
node { name: "unique" op: "UniqueWithCounts" input: "picked" }
node { name: "twice" op: "AddV2" input: "unique:0" input: "unique" }
)";

class GraphToolsTest : public ToolTest {
 protected:
  template <class T>
  std::string write_array(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                          const std::vector<T>& values) const {
    return write(name, format_npy(dtype, shape, std::as_bytes(std::span(values))));
  }
  NpyArray read_array(const std::string& name) const {
    const std::string bytes = read_file(directory() / name);
    return parse_npy(std::as_bytes(std::span(bytes)), name);
  }
  template <class T>
  std::vector<T> elements(const NpyArray& array) const {
    std::vector<T> values(array.data.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), array.data.data(), values.size() * sizeof(T));
    return values;
  }
};

TEST_F(GraphToolsTest, ShapesThatFollowFromTheFeedsValuesAreComputed) {
  const std::string graph = write("where.pbtxt", kWherePositive);
  // float64, as NumPy makes it, for a placeholder of float32.
  const std::string x = write_array<double>("x.npy", DType::Float64, {7}, {1, -2, 3, 3, 0, 1, 5});
  const std::string text = expect_good({"graph", "run", graph, "--feed", "x=" + x, "--fetch", "twice",
                                        "--out", path("twice.npy"), "--fetch", "unique:2", "--fetch",
                                        "unique:1", "--out", path("index.npy"), "--streams", "2"});
  EXPECT_THAT(text, HasSubstr("unique:2: int32 [3] [2 2 1]"));
  const NpyArray twice = read_array("twice.npy");
  EXPECT_EQ(twice.dtype, DType::Float32);
  EXPECT_EQ(elements<float>(twice), (std::vector<float>{2, 6, 10}));
  EXPECT_EQ(elements<std::int32_t>(read_array("index.npy")), (std::vector<std::int32_t>{0, 1, 1, 0, 2}));
}

TEST_F(GraphToolsTest, FedOutputsOfANodeNeedNotBeComputable) {
  // What a data set's iterator gives, as TensorFlow 1 programs feed it.
  const std::string graph = write("iterator.pbtxt", R"(
node { name: "make" op: "OneShotIterator" attr { key: "dataset_factory" value { func { name: "data" } } } }
node { name: "next" op: "IteratorGetNext" input: "make"
       attr { key: "output_types" value { list { type: DT_FLOAT type: DT_INT32 } } } }
node { name: "index" op: "Cast" input: "next:1" attr { key: "SrcT" value { type: DT_INT32 } }
       attr { key: "DstT" value { type: DT_FLOAT } } }
node { name: "sum" op: "AddV2" input: "next" input: "index" }
)");
  const std::string x = write_array<double>("x.npy", DType::Float64, {2}, {0.5, 1.5});
  const std::string i = write_array<std::int64_t>("i.npy", DType::Int64, {2}, {10, 20});
  EXPECT_THAT(expect_good({"graph", "run", graph, "--feed", "next:0=" + x, "--feed", "next:1=" + i, "--fetch",
                           "sum", "--fetch", "next:1"}),
              AllOf(HasSubstr("sum: float32 [2] [10.5 21.5]"), HasSubstr("next:1: int32 [2] [10 20]")));
  expect_refused({"graph", "run", graph, "--feed", "next=" + x, "--fetch", "sum"},
                 HasSubstr("[IteratorGetNext] node 'next': the op is not supported"));
}

TEST_F(GraphToolsTest, StringsAreTakenAndComparedByFedIndices) {
  const std::string graph = write("names.pbtxt", R"(
node { name: "i" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } }
       attr { key: "shape" value { shape { unknown_rank: true } } } }
node { name: "names" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
       attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape { dim { size: 3 } }
                                            string_val: "red" string_val: "green" string_val: "blue" } } } }
node { name: "green" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
       attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape { } string_val: "green" } } } }
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
       attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } }
node { name: "taken" op: "GatherV2" input: "names" input: "i" input: "zero" }
node { name: "is_green" op: "Equal" input: "taken" input: "green" }
)");
  const std::string i = write_array<std::int32_t>("i.npy", DType::Int32, {4}, {2, 1, 1, 0});
  const std::string text =
      expect_good({"graph", "run", graph, "--feed", "i=" + i, "--fetch", "taken", "--fetch", "is_green"});
  EXPECT_THAT(text, HasSubstr("taken: string [4] [blue green green red]"));
  EXPECT_THAT(text, HasSubstr("is_green: bool [4] [0 1 1 0]"));
}

/// A line of a file of values beside a graph: kind, node, output, type, shape, values.
struct StoredValue {
  bool is_feed = false;
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

std::vector<StoredValue> stored_values(const Path& file) {
  std::vector<StoredValue> rows;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
    fields.resize(6);
    if (fields[0] != "feed" && fields[0] != "output") continue;
    StoredValue row;
    row.is_feed = fields[0] == "feed";
    row.name = fields[2] == "0" ? fields[1] : fields[1] + ":" + fields[2];
    row.type = fields[3].starts_with('~') ? fields[3].substr(1) : fields[3];
    std::istringstream dims(fields[4]), words(fields[5]);
    for (std::string dim; std::getline(dims, dim, ',');) row.shape.push_back(std::stoll(dim));
    for (std::string word; words >> word;)
      row.values.push_back(word == "true" || word == "True"     ? 1
                           : word == "false" || word == "False" ? 0
                                                                : std::stod(word));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Those of tests/engine/import/golden/make_graphs.py.
TEST_F(GraphToolsTest, GraphsOfTensorFlowGiveTheirRecordedOutputs) {
  const Path cases = Path(BRAID_SOURCE_DIR) / "tests/engine/import/golden/graphs";
  const auto as_doubles = [&](const NpyArray& array) {
    const auto cast = [](const auto& from) { return std::vector<double>(from.begin(), from.end()); };
    if (array.dtype == DType::Float64) return elements<double>(array);
    if (array.dtype == DType::Float32) return cast(elements<float>(array));
    if (array.dtype == DType::Int64) return cast(elements<std::int64_t>(array));
    if (array.dtype == DType::Int32) return cast(elements<std::int32_t>(array));
    return cast(elements<std::uint8_t>(array));
  };
  int graphs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cases)) {
    if (entry.path().extension() != ".pbtxt") continue;
    ++graphs;
    const std::string name = entry.path().stem().string();
    std::vector<std::string> arguments{"graph", "run", entry.path().string()};
    std::vector<std::vector<double>> expected;
    for (const StoredValue& row : stored_values(cases / (name + ".tsv"))) {
      if (row.is_feed) {  // floats as float64, whatever the graph takes
        const std::string array = "feed" + std::to_string(arguments.size()) + ".npy";
        const bool is_bool = row.type == "bool",
                   is_float = row.type.starts_with("float") || row.type == "double";
        const std::vector<std::int64_t> whole(row.values.begin(), row.values.end());
        const std::string file =
            is_float  ? write_array<double>(array, DType::Float64, row.shape, row.values)
            : is_bool ? write_array<std::uint8_t>(array, DType::Bool, row.shape, {whole.begin(), whole.end()})
                      : write_array<std::int64_t>(array, DType::Int64, row.shape, whole);
        arguments.insert(arguments.end(), {"--feed", row.name + "=" + file});
      } else {
        const std::string out = "out" + std::to_string(expected.size()) + ".npy";
        arguments.insert(arguments.end(), {"--fetch", row.name, "--out", path(out)});
        expected.push_back(row.values);
      }
    }
    expect_good(arguments);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::vector<double> values = as_doubles(read_array("out" + std::to_string(i) + ".npy"));
      ASSERT_EQ(values.size(), expected[i].size()) << name;
      for (std::size_t k = 0; k < values.size(); ++k)
        ASSERT_NEAR(values[k], expected[i][k], 2e-6 * std::max(1.0, std::abs(expected[i][k]))) << name;
    }
  }
  EXPECT_EQ(graphs, 11);
}

TEST_F(GraphToolsTest, WhatIsAboveAFedValueNeedNotBeSupported) {
  const std::string graph = write("decode.pbtxt", R"(
node { name: "file" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }
node { name: "image" op: "DecodeJpeg" input: "file" }
node { name: "scaled" op: "Cast" input: "image" attr { key: "SrcT" value { type: DT_UINT8 } } attr { key: "DstT" value { type: DT_FLOAT } } }
node { name: "y" op: "Neg" input: "scaled" }
)");
  const std::string x = write_array<float>("x.npy", DType::Float32, {2}, {1, 2});
  EXPECT_THAT(expect_good({"graph", "run", graph, "--feed", "scaled:0=" + x, "--fetch", "y:0"}),
              HasSubstr("float32 [2] [-1 -2]"));
  expect_refused({"graph", "run", graph, "--fetch", "y"},
                 HasSubstr("[DecodeJpeg] node 'image': the op is not supported"));
}

TEST_F(GraphToolsTest, VariablesAreSetByTheNodesOfInit) {
  const std::string graph = write("variable.pbtxt", R"(
node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 2.5 } } } }
node { name: "assign" op: "Assign" input: "v" input: "c" }
node { name: "init" op: "NoOp" input: "^assign" }
node { name: "y" op: "Neg" input: "v" }
)");
  EXPECT_THAT(expect_good({"graph", "run", graph, "--init", "init", "--fetch", "y"}),
              HasSubstr("y: float32 [] [-2.5]"));
  expect_refused(
      {"graph", "run", graph, "--fetch", "y"},
      AllOf(HasSubstr(graph + ": 1 variable has no value: 'v'; give --checkpoint DIR or --init NODE"),
            HasSubstr("--untrained")));
  EXPECT_THAT(expect_good({"graph", "run", graph, "--untrained", "--fetch", "y"}),
              HasSubstr("y: float32 [] [-0]"));
}

TEST_F(GraphToolsTest, WhatCannotRunIsRefusedWithItsReason) {
  const std::string graph = write("where.pbtxt", kWherePositive);
  const std::string x = write_array<float>("x.npy", DType::Float32, {2}, {1, 2});
  const std::string matrix = write_array<float>("matrix.npy", DType::Float32, {1, 2}, {1, 2});
  const std::string wide = write_array<std::int64_t>("wide.npy", DType::Int64, {1}, {1LL << 40});
  const std::string words = write_array<std::uint8_t>("words.npy", DType::Bool, {1}, {1});
  const auto run_with = [&](const std::string& file, std::vector<std::string> rest) {
    std::vector<std::string> arguments{"graph", "run", graph, "--feed", "x=" + file};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  };
  expect_refused({"graph", "run", graph, "--fetch", "twice"},
                 HasSubstr("[Placeholder] node 'x': it is needed but not fed"));
  expect_refused({"graph", "run", graph}, HasSubstr("needs --fetch"));
  expect_refused(run_with(matrix, {"--fetch", "twice"}),
                 AllOf(HasSubstr("[1, 2]"), HasSubstr("the graph expects")));
  expect_refused(run_with(words, {"--fetch", "twice"}),
                 HasSubstr("--feed x: the array holds bool, the graph expects float32"));
  expect_refused(run_with(x, {"--fetch", "twicee"}),
                 HasSubstr("there is no node 'twicee'; did you mean 'twice'?"));
  expect_refused(run_with(x, {"--out", path("y.npy"), "--fetch", "twice"}),
                 HasSubstr("put it after the --fetch"));
  expect_refused(
      run_with(x, {"--fetch", "twice", "--out", path("none/y.npy")}),
      AllOf(HasSubstr("none/y.npy: there is no directory"), ::testing::Not(HasSubstr("Unavailable"))));
  expect_refused(run_with(path("none.npy"), {"--fetch", "twice"}), HasSubstr("none.npy"));
  expect_refused(run_with(x, {"--fetch", "twice", "--feed", "x=" + x}), HasSubstr("--feed x is given twice"));
  expect_refused({"graph", "run", graph, "--feed", "x", "--fetch", "twice"},
                 HasSubstr("expected name=file.npy"));
}

TEST_F(GraphToolsTest, ExportedModelsLoadAndRun) {
  for (const char* model : {"linear_regression", "mlp", "cnn", "wide_deep", "dlrm", "deepfm", "dcn_v2",
                            "mmoe", "din", "resnet18", "transformer"}) {
    EXPECT_THAT(expect_good({"graph", "export", "--model", model, "--out", path("whole.pbtxt")}),
                HasSubstr(", loss '"));
    EXPECT_THAT(expect_good({"graph", "check", path("whole.pbtxt")}), HasSubstr("all of them can be loaded"));
    expect_good({"graph", "export", "--model", model, "--inference", "--out", path("inference.pb")});
    EXPECT_THAT(expect_good({"graph", "check", path("inference.pb")}),
                HasSubstr("all of them can be loaded"));
    EXPECT_EQ(expect_good({"graph", "show", path("inference.pb")}).find("label"), std::string::npos) << model;
  }
  expect_good({"graph", "export", "--model", "mlp", "--inference", "--hidden", "8,4", "--classes", "3",
               "--column", "image=2,2,1", "--out", path("small.pb")});
  const std::string image =
      write_array<float>("image.npy", DType::Float32, {5, 2, 2, 1}, std::vector<float>(20, 1.0F));
  expect_refused({"graph", "run", path("small.pb"), "--feed", "image=" + image, "--fetch", "logits/BiasAdd"},
                 AllOf(HasSubstr("6 variables have no values: '"), HasSubstr("', ...; give --checkpoint DIR"),
                       HasSubstr("--untrained")));
  expect_good({"graph", "run", path("small.pb"), "--untrained", "--feed", "image=" + image, "--fetch",
               "logits/BiasAdd", "--out", path("logits.npy")});
  EXPECT_EQ(read_array("logits.npy").shape, (std::vector<std::int64_t>{5, 3}));
  expect_refused({"graph", "export", "--model", "nothing", "--out", path("x.pb")},
                 HasSubstr("the models are: "));
  expect_refused({"graph", "export", "--model", "mlp", "--column", "image=2,x", "--out", path("x.pb")},
                 HasSubstr("--column image=2,x: expected name=size,size,..."));
}

TEST_F(GraphToolsTest, StatsCountParametersAndWork) {
  expect_good({"graph", "export", "--model", "mlp", "--inference", "--hidden", "8", "--classes", "3",
               "--column", "image=2,2,1", "--out", path("small.pb")});
  const std::string text = expect_good({"graph", "stats", path("small.pb"), "--batch", "10"});
  // 4 x 8 + 8 and 8 x 3 + 3 parameters; two products of 2 (10 x 4 x 8) and 2 (10 x 8 x 3) operations.
  EXPECT_THAT(text,
              AllOf(HasSubstr("variables: 4 with 67 parameters"), HasSubstr("MatMul"), HasSubstr("1.12 k")));
}

TEST_F(GraphToolsTest, StatsSayWhenABatchDoesNotFit) {
  const std::string graph = write("fixed.pbtxt", R"(
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: -1 } } } } }
node { name: "w" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 1 } } } }
node { name: "y" op: "AddV2" input: "x" input: "w" }
)");
  const std::string text = expect_good({"graph", "stats", graph, "--batch", "2"});
  EXPECT_THAT(text, HasSubstr("2 for unknown dimensions does not fit: [AddV2] node 'y'"));
  EXPECT_THAT(text, HasSubstr("nodes: 3  ops: 3"));
}

TEST_F(GraphToolsTest, DotIsADigraphOfEveryNode) {
  const std::string graph = write("where.pbtxt", kWherePositive);
  const std::string text = expect_good({"graph", "dot", graph});
  EXPECT_THAT(text, AllOf(HasSubstr("digraph"), HasSubstr("\"checked\" -> \"positive\" [label=\"[?]\""),
                          HasSubstr("UniqueWithCounts")));
  expect_good({"graph", "dot", graph, "--out", path("graph.dot")});
  EXPECT_EQ(read_file(directory() / "graph.dot"), text);
  const std::string table = write("table.pbtxt", R"(
node { name: "table" op: "HashTableV2" }
node { name: "found" op: "LookupTableFindV2" input: "table" input: "table:7" }
)");
  EXPECT_THAT(expect_good({"graph", "dot", table}), HasSubstr("\"table\" -> \"found\";"));
}

TEST_F(GraphToolsTest, AxesMayBeFedWhereShapesAreKnownWithoutThem) {
  const std::string graph = write("reverse.pbtxt", R"(
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "axes" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
node { name: "y" op: "ReverseV2" input: "x" input: "axes" }
)");
  const std::string x = write_array<float>("x.npy", DType::Float32, {2, 2}, {1, 2, 3, 4});
  const std::string axes = write_array<std::int32_t>("axes.npy", DType::Int32, {1}, {1});
  EXPECT_THAT(
      expect_good({"graph", "run", graph, "--feed", "x=" + x, "--feed", "axes=" + axes, "--fetch", "y"}),
      HasSubstr("y: float32 [2, 2] [2 1 4 3]"));
  expect_refused(
      {"graph", "plan", write("vector.pbtxt", R"(
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "axes" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape { dim { size: 1 } } } } }
node { name: "y" op: "ReverseV2" input: "x" input: "axes" }
)")},
      HasSubstr("[ReverseV2] node 'y': the value of input 1 must be known before the program runs"));
}

const char kLogOnADevice[] = R"(
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "y" op: "Log" input: "x" device: "/job:localhost/device:GPU:0" }
node { name: "z" op: "Neg" input: "y" }
)";

TEST_F(GraphToolsTest, PlacementIsLoggedAndSoftUnlessItIsNot) {
  const std::string graph = write("device.pbtxt", kLogOnADevice);
  const std::string x = write_array<float>("x.npy", DType::Float32, {2}, {1, 2});
  const std::vector<std::vector<std::string>> commands = {
      {"graph", "run", graph, "--feed", "x=" + x, "--fetch", "z"},
      {"graph", "plan", graph, "--device", "cpu"}};
  for (std::vector<std::string> command : commands) {
    command.push_back("--log-device-placement");
    const auto process = run("logged", command);
    EXPECT_EQ(process->wait({}), 0) << process->err();
    EXPECT_THAT(process->err(), HasSubstr("y: (Log): /job:localhost/replica:0/task:0/device:CPU:0\n"));
    command.push_back("--no-soft-placement");
    expect_refused(command, HasSubstr("[Log] node 'y' asks for '/job:localhost/device:GPU:0'"));
  }
}

TEST_F(GraphToolsTest, CheckedNumbersEndTheRunAtTheNodeThatMadeTheFirstBadOne) {
  const std::string graph = write("device.pbtxt", kLogOnADevice);
  const std::string x = write_array<float>("x.npy", DType::Float32, {2}, {1, -2});
  const std::vector<std::string> command = {"graph", "run", graph, "--feed", "x=" + x, "--fetch", "z"};
  EXPECT_THAT(expect_good(command), HasSubstr("nan"));
  std::vector<std::string> checked = command;
  checked.push_back("--check-numerics");
  const auto process = run("checked", checked);
  EXPECT_EQ(process->wait({}), 1);
  EXPECT_THAT(process->err(), HasSubstr("the output of [Log] node 'y' : element 1 is NaN"));
}

TEST_F(GraphToolsTest, CheckedTrainingEndsAtTheNodeThatMadeTheFirstBadNumber) {
  const Job job = linear_regression().with({"steps=20", "optimizer.learning_rate=1e30"});
  const auto plain = run("plain", job.arguments());
  EXPECT_EQ(plain->wait({}), 1);
  EXPECT_THAT(plain->err(), AllOf(HasSubstr("loss is"), ::testing::Not(HasSubstr("node '"))));
  std::vector<std::string> arguments = job.arguments();
  arguments.push_back("--check-numerics");
  const auto checked = run("checked", arguments);
  EXPECT_EQ(checked->wait({}), 1);
  EXPECT_THAT(checked->err(), AllOf(HasSubstr("[CheckNumerics] node '"), HasSubstr("the output of ["),
                                    HasSubstr(" is infinite"), HasSubstr("step ")));
  const std::vector<float> losses =
      train("good", linear_regression().with({"steps=5", "runtime.check_numerics=true"}));
  EXPECT_EQ(losses, train("unchecked", linear_regression().with({"steps=5"})));
}

}  // namespace
}  // namespace braid::integration
