// Real TensorFlow graphs with the values that TensorFlow computed for them: those that golden/make_graphs.py
// has recorded, and others that are an outside oracle. Every case whose ops the engine has must load and give
// those values. The number of outside cases that run is recorded below and may only grow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "engine/graph/specialize.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"
#include "tests/support/outside_data.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using testing::Interpreter;

constexpr int kRecordedCases = 11, kCasesThatRun = 51;
constexpr double kTolerance = 2e-6;  // most values have 8 decimals

const fs::path kCases = outside_data("tf_graphs/cases");

struct StoredValue {
  std::string kind;  // feed, node, output
  std::string name;  // of the value
  Tensor tensor;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <class T>
Tensor numbers(Shape shape, const std::vector<std::string>& words) {
  Tensor tensor(dtype_of<T>, std::move(shape));
  auto out = tensor.data<T>();
  if (words.size() != out.size()) throw DataLoss("values.tsv: wrong number of values");
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "true" || words[i] == "True") {
      out[i] = static_cast<T>(1);
    } else if (words[i] == "false" || words[i] == "False") {
      out[i] = static_cast<T>(0);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      out[i] =
          words[i].find('.') == std::string::npos ? std::stoll(words[i]) : std::llround(std::stod(words[i]));
    } else {
      out[i] = static_cast<T>(std::stod(words[i]));
    }
  }
  return tensor;
}

Tensor parse_tensor(const std::string& dtype_text, const std::string& shape_text,
                    const std::string& value_text) {
  const std::string name = dtype_text.starts_with('~') ? dtype_text.substr(1) : dtype_text;
  std::vector<std::int64_t> dims;
  for (const std::string& dim : split(shape_text, ',')) dims.push_back(std::stoll(dim));
  std::vector<std::string> words;
  std::istringstream stream(value_text);
  for (std::string word; stream >> word;) words.push_back(word);
  Shape shape(dims);
  switch (dtype_from_name(name).value_or(DType::Invalid)) {
    case DType::Float32:
      return numbers<float>(shape, words);
    case DType::Float64:
      return numbers<double>(shape, words);
    case DType::Int32:
      return numbers<std::int32_t>(shape, words);
    case DType::Int64:
      return numbers<std::int64_t>(shape, words);
    case DType::Bool:
      return numbers<bool>(shape, words);
    default:
      throw DataLoss("values.tsv: type " + name);
  }
}

std::vector<StoredValue> read_values(const fs::path& file) {
  std::vector<StoredValue> values;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields = split(line, '\t');
    fields.resize(6);
    const std::string name = fields[2] == "0" ? fields[1] : fields[1] + ":" + fields[2];
    values.push_back({fields[0], name, parse_tensor(fields[3], fields[4], fields[5])});
  }
  return values;
}

double element(const Tensor& tensor, std::size_t i) {
  switch (tensor.dtype()) {
    case DType::Float32:
      return tensor.data<float>()[i];
    case DType::Float64:
      return tensor.data<double>()[i];
    case DType::Int32:
      return tensor.data<std::int32_t>()[i];
    case DType::Int64:
      return static_cast<double>(tensor.data<std::int64_t>()[i]);
    case DType::Bool:
      return tensor.data<bool>()[i];
    default:
      return NAN;
  }
}

// Empty when they agree.
std::string difference(const Tensor& actual, const Tensor& expected) {
  if (actual.shape() != expected.shape()) {
    return "shape " + actual.shape().to_string() + ", expected " + expected.shape().to_string();
  }
  const auto elements = static_cast<std::size_t>(expected.elements());
  // Terms of a product are as large as its largest elements, also where they cancel: the order in which
  // processors add them shows there.
  double largest = 1;
  for (std::size_t i = 0; i < elements; ++i)
    if (const double e = std::abs(element(expected, i)); std::isfinite(e)) largest = std::max(largest, e);
  for (std::size_t i = 0; i < elements; ++i) {
    const double a = element(actual, i);
    const double e = element(expected, i);
    const bool same = a == e || (std::isnan(a) && std::isnan(e));
    if (!same && !(std::abs(a - e) <= kTolerance * largest)) {
      return "element " + std::to_string(i) + " is " + std::to_string(a) + ", expected " + std::to_string(e);
    }
  }
  return "";
}

// The third output of FusedBatchNorm and on are scratch of one implementation, which TensorFlow does not
// specify.
bool is_specified(const Graph& graph, const std::string& name) {
  const ValueRef value = graph.parse_value(name);
  return !(graph.node(value.node).op->name.starts_with("FusedBatchNorm") && value.output >= 3);
}

void expect_values(const std::string& name, const Graph& graph, const std::vector<StoredValue>& stored) {
  Interpreter::Feeds feeds;
  std::vector<std::string> fetches;
  std::vector<const StoredValue*> expected;
  for (const StoredValue& value : stored) {
    if (value.kind == "feed") {
      feeds[value.name] = value.tensor;
    } else if (is_specified(graph, value.name)) {
      fetches.push_back(value.name);
      expected.push_back(&value);
    }
  }
  const std::vector<Tensor> actual = Interpreter(specialize(graph, feeds, fetches, {})).run(feeds, fetches);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(difference(actual[i], expected[i]->tensor), "") << name << ": " << fetches[i];
  }
}

/// The ops that the graph has and the engine has not; none when its values were compared.
std::set<std::string> run_case(const std::string& name, const fs::path& graph, const fs::path& values) {
  const ImportResult result = try_import_graph(read_graph_file(graph));
  std::set<std::string> missing;
  for (const ImportProblem& problem : result.problems) {
    missing.insert(problem.op);
    if (problem.reason.find("not supported") == std::string::npos)
      ADD_FAILURE() << name << ": [" << problem.op << "] " << problem.node << ": " << problem.reason;
  }
  if (!missing.empty()) return missing;
  try {
    expect_values(name, result.graph, read_values(values));
  } catch (const Error& error) {
    ADD_FAILURE() << name << ": " << error.message();
  }
  return {};
}

TEST(TensorFlowGraphsTest, RecordedOnesGiveTensorFlowsValues) {
  int cases = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(BRAID_SOURCE_DIR) / "tests/engine/import/golden/graphs")) {
    if (entry.path().extension() != ".pbtxt") continue;
    ++cases;
    fs::path values = entry.path();
    EXPECT_THAT(run_case(entry.path().stem(), entry.path(), values.replace_extension(".tsv")),
                ::testing::IsEmpty());
  }
  EXPECT_EQ(cases, kRecordedCases);
}

TEST(TensorFlowGraphsTest, OthersGiveTensorFlowsValues) {
  SKIP_WITHOUT_OUTSIDE_DATA(kCases);
  int cases = 0, ran = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kCases)) {
    if (entry.path().filename() != "frozen_model.pb") continue;
    const fs::path folder = entry.path().parent_path();
    const std::string name = fs::relative(folder, kCases).string();
    ++cases;
    const std::set<std::string> missing = run_case(name, entry.path(), folder / "values.tsv");
    ran += missing.empty() ? 1 : 0;
    for (const std::string& op : missing) std::printf("  missing %-24s of %s\n", op.c_str(), name.c_str());
  }
  std::printf("%d of %d TensorFlow graphs ran\n", ran, cases);
  EXPECT_GE(ran, kCasesThatRun);
}

}  // namespace
}  // namespace braid
