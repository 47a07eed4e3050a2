// From a trained job to its predictions: the job's model as a graph, with the values of the job's checkpoint.
#include <gmock/gmock.h>

#include <cstring>
#include <string>

#include "base/files.h"
#include "base/formats/npy.h"
#include "tests/cli/tool_test.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

std::string example(const std::string& job) {
  return (Path(BRAID_SOURCE_DIR) / "examples/jobs" / job).string();
}

class ServingTest : public ToolTest {
 protected:
  /// Of what `graph export` has printed: the first prediction.
  static std::string prediction_in(const std::string& printed) {
    const std::size_t begin = printed.find("prediction '") + 12;
    return printed.substr(begin, printed.find('\'', begin) - begin);
  }
  template <class T>
  std::string feed(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                   const std::vector<T>& values) {
    return name + "=" + write(name + ".npy", format_npy(dtype, shape, std::as_bytes(std::span(values))));
  }
  static std::vector<float> floats_in(const Path& file) {
    const std::string bytes = read_file(file);
    const NpyArray array = parse_npy(std::as_bytes(std::span(bytes)), file.string());
    std::vector<float> values(array.data.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), array.data.data(), array.data.size());
    return values;
  }
};

TEST_F(ServingTest, ARunOfTheExportedGraphTakesTheCheckpointsValues) {
  const Path checkpoints = directory() / "checkpoints";
  train("train", linear_regression().with({"steps=40"}).with(checkpoints_in(checkpoints, 20)));
  const std::string graph = path("model.pb");
  const std::string prediction = prediction_in(expect_good(
      {"graph", "export", "--job", example("linear_regression.pbtxt"), "--inference", "--out", graph}));
  const std::string x = feed<float>("x", DType::Float32, {3, 1}, {1, 0, 2});
  const std::string y = feed<float>("y", DType::Float32, {3, 1}, {0, 1, -3});
  expect_good({"graph", "run", graph, "--checkpoint", checkpoints.string(), "--feed", x, "--feed", y,
               "--fetch", prediction, "--out", path("z.npy")});
  Values trained = values_of_newest(checkpoints);
  const float w_x = trained["weight_x"][0], w_y = trained["weight_y"][0], b = trained["bias"][0];
  EXPECT_THAT(floats_in(path("z.npy")),
              Pointwise(FloatNear(1e-6F), {w_x + b, w_y + b, 2 * w_x - 3 * w_y + b}));

  Process scorer(
      {SCORER_BINARY, graph, (checkpoints / "step-000000000040").string(), prediction, "x=2", "y=-3"}, {},
      directory() / "scorer");
  EXPECT_EQ(scorer.exit_code(), 0) << scorer.err();
  EXPECT_NEAR(std::stof(scorer.out()), 2 * w_x - 3 * w_y + b, 1e-5);

  // Groups answer with the same bits.
  expect_good({"infer",
               "--graph",
               graph,
               "--checkpoint",
               (checkpoints / "step-000000000040").string(),
               "--input",
               x,
               "--input",
               y,
               "--output",
               prediction,
               "--batch",
               "3",
               "--iters",
               "4",
               "--groups",
               "2",
               "--threads",
               "2",
               "--check",
               "--out",
               path("answers")});
  std::string file = prediction;
  for (char& c : file)
    if (c == '/') c = '_';
  EXPECT_EQ(floats_in(directory() / "answers" / (file + ".npy")), floats_in(path("z.npy")));
}

TEST_F(ServingTest, RowsThatServersNeverMadeHaveTheirInitialValues) {
  const Path local = directory() / "local", served = directory() / "served";
  const Job job = mmoe().with({"steps=6", "model.sparse_tables=true", "seed=11"});
  train("train", job.with(checkpoints_in(local, 6)));
  Cluster cluster(directory(), job.with(checkpoints_in(served, 6)).with({"strategy.kind=PS"}), {1, 2});
  cluster.expect_success();

  std::vector<std::string> exporting{"graph",       "export", "--job",         example(job.file),
                                     "--inference", "--out",  path("model.pb")};
  for (const std::string& set : job.set) exporting.insert(exporting.end(), {"--set", set});
  const std::string printed = expect_good(exporting);
  EXPECT_THAT(printed, HasSubstr("', '")) << "a prediction of each task";
  // Ids of all of the first column's rows: six steps of eight examples have made some of them.
  std::vector<float> dense(40 * 3, 0.5F);
  std::vector<std::int64_t> sparse;
  for (std::int64_t id = 0; id < 40; ++id) sparse.insert(sparse.end(), {id, id % 12, id % 24});
  const std::string d = feed("dense", DType::Float32, {40, 3}, dense);
  const std::string s = feed("sparse", DType::Int64, {40, 3}, sparse);
  const auto predict = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "graph", "run",        path("model.pb"), "--feed", d, "--feed", s, "--fetch", prediction_in(printed),
        "--out", path("p.npy")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_good(arguments);
    return floats_in(path("p.npy"));
  };
  const std::vector<float> expected = predict({"--checkpoint", local.string()});
  EXPECT_THAT(predict({"--checkpoint", served.string()}), Pointwise(FloatNear(1e-5F), expected));
  EXPECT_THAT(predict({"--untrained"}), Not(Pointwise(FloatNear(1e-3F), expected))) << "nothing was trained";
}

TEST_F(ServingTest, ACheckpointThatIsNotTheGraphsIsRefused) {
  const Path checkpoints = directory() / "checkpoints";
  train("train", linear_regression().with({"steps=2"}).with(checkpoints_in(checkpoints, 2)));
  const std::string graph = path("other.pb");
  const std::string prediction = prediction_in(expect_good(
      {"graph", "export", "--model", "mlp", "--column", "image=2,2,1", "--inference", "--out", graph}));
  const std::string image = feed<float>("image", DType::Float32, {1, 2, 2, 1}, {1, 2, 3, 4});
  expect_refused(
      {"graph", "run", graph, "--checkpoint", checkpoints.string(), "--feed", image, "--fetch", prediction},
      AllOf(HasSubstr("the checkpoint of step 2 has no '"), HasSubstr("kernel'")));
  expect_refused({"infer", "--graph", graph, "--checkpoint", checkpoints.string(), "--output", prediction},
                 HasSubstr("the checkpoint of step 2 has no '"));
  expect_refused({"infer", "--graph", graph, "--checkpoint", path("nothing"), "--output", prediction},
                 AllOf(HasSubstr(path("nothing")), HasSubstr("no complete checkpoint")));
}

TEST_F(ServingTest, AModelIsExportedByItsJobOrByFlags) {
  const std::string job = example("mmoe_generated.pbtxt");
  expect_refused({"graph", "export", "--out", path("m.pb")}, HasSubstr("needs one of --model and --job"));
  expect_refused({"graph", "export", "--job", job, "--model", "mlp", "--out", path("m.pb")},
                 HasSubstr("needs one of --model and --job"));
  expect_refused({"graph", "export", "--job", job, "--hidden", "8", "--out", path("m.pb")},
                 AllOf(HasSubstr("excludes"), HasSubstr("--hidden")));
  expect_refused({"graph", "export", "--model", "mlp", "--set", "seed=1", "--out", path("m.pb")},
                 HasSubstr("--set requires --job"));
}

TEST_F(ServingTest, PlansAndExportsFindTheirDataWhereTrainingDoes) {
  const std::string job = write("job.pbtxt", R"(
    model { name: "wide_deep" hidden: 4 } steps: 1 optimizer { learning_rate: 0.1 } evaluation { enabled: false }
    input { format: CSV train_files: "rows.csv" global_batch_size: 2
            columns { name: "label" kind: LABEL }  columns { name: "a" kind: NUMERIC }
            columns { name: "b" kind: CATEGORICAL buckets: 4 } })");
  write("rows.csv", "1,2,x\n0,3,y\n");
  const Variables data{{"BRAID_DATA", directory().string()}};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"train", "--job", job},
        {"graph", "plan", "--job", job},
        {"graph", "export", "--job", job, "--out", path("m.pb")}}) {
    const auto found = run("tool", arguments, data);
    EXPECT_EQ(found->exit_code(), 0) << ::testing::PrintToString(arguments) << found->err();
    expect_refused(arguments, HasSubstr("names are relative to --data-dir, which is '.'"));
  }
}

}  // namespace
}  // namespace braid::integration
