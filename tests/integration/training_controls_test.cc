// What a job says of how it trains: optimizers, groups of variables, clipping, weights of rows and classes,
// accumulation. Against the losses that TensorFlow's own optimizers gave on the same rows from the same
// values (training_controls/make.py), and the same under every strategy.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/checkpoints.h"
#include "tests/integration/losses.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Path kControlFiles = Path(BRAID_SOURCE_DIR) / "tests/integration/training_controls";
constexpr int kControlSteps = 60;

/// The job of make.py; `weighted`: with its column of weights.
std::string job_text(bool weighted) {
  std::string text = R"(
name: "controls" seed: 1 steps: 60
model { name: "wide_deep" hidden: 4 embedding_dim: 2 hash_buckets: 8 sparse_tables: true }
input {
  format: CSV train_files: "rows.csv" global_batch_size: 20 shuffle: false
  columns { name: "n0" kind: NUMERIC } columns { name: "n1" kind: NUMERIC }
)";
  for (int c = 0; c < 3; ++c) {
    text += "  columns { name: \"c" + std::to_string(c) + "\" kind: CATEGORICAL";
    for (int word = 0; word < 8; ++word) text += " vocabulary: \"" + std::to_string(word) + "\"";
    text += " }\n";
  }
  text += std::string("  columns { name: \"w\" kind: ") + (weighted ? "WEIGHT" : "SKIP") + " }\n";
  return text + R"(  columns { name: "y" kind: LABEL }
}
optimizer { kind: SGD learning_rate: 0.5 }
evaluation { enabled: false }
runtime { device: CPU intra_op_threads: 1 }
)";
}

class TrainingControlsTest : public IntegrationTest {
 protected:
  Job job(const std::vector<std::string>& set, bool weighted = false) {
    const std::string name = weighted ? "weighted.pbtxt" : "job.pbtxt";
    return Job{write(name, job_text(weighted)), kControlFiles, {}}.with(set);
  }
  /// Losses from the initial values of make.py, whose checkpoint is made here.
  std::vector<double> from_given_values(const std::string& name, const Job& job) {
    const Path values = directory() / (name + "-values");
    const auto import = run(name + "-import", {"ckpt", "import", (kControlFiles / "initial.npz").string(),
                                               "--out", values.string(), "--step", "0"});
    EXPECT_EQ(import->exit_code(), 0) << import->err();
    Cluster cluster(directory() / name, job.with({"checkpoint.directory=" + values.string()}), {},
                    {"--resume"});
    cluster.expect_success();
    return cluster.mean_losses();
  }
  /// Of a cluster of that strategy, from values that follow from the seed.
  std::vector<double> losses(const std::string& name, const Job& job, const std::string& strategy,
                             Cluster::Shape shape) {
    Cluster cluster(directory() / name, job.with({"strategy.kind=" + strategy}), shape);
    cluster.expect_success();
    return cluster.mean_losses();
  }
  std::string refusal(const std::vector<std::string>& set) {
    const auto process = run("refused", job(set).arguments());
    EXPECT_EQ(process->exit_code(), 2);
    return process->err();
  }
};

TEST_F(TrainingControlsTest, LoseWhatTensorFlowsOptimizersLoseOnTheSameRows) {
  const auto file = nlohmann::json::parse(std::ifstream(kControlFiles / "losses.json"));
  for (const auto& example : file["cases"]) {
    const std::string name = example["name"];
    const std::vector<double> expected = example["losses"];
    ASSERT_EQ(expected.size(), std::size_t{kControlSteps});
    const Job with = job(example["set"].get<std::vector<std::string>>(), example["weighted"]);
    const double worst = worst_difference(from_given_values(name, with), expected);
    std::printf("%-17s largest difference from TensorFlow's losses %.2g\n", name.c_str(), worst);
    EXPECT_LT(worst, 1e-6) << name;
    if (name == "ftrl_wide" || name == "weights") {  // in parts of 7, 7 and 6 rows
      const Job in_parts = with.with({"optimizer.accumulate_steps=3"});
      EXPECT_LT(worst_difference(from_given_values(name + "-parts", in_parts), expected), 1e-6) << name;
    }
  }
}

struct Control {
  const char* name;
  std::vector<std::string> set;
  bool weighted = false;
  bool on_two_servers_workers = true;  // whether two workers of servers do what one process does
};

std::vector<Control> controls() {
  return {
      {"ftrl_group",
       {"optimizer.kind=ADAM", "optimizer.learning_rate=0.01",
        "optimizer.group=match: 'wide/.*' kind: FTRL learning_rate: 0.1 l1: 0.01 l2: 0.01"}},
      {"rmsprop_centered",
       {"optimizer.kind=RMSPROP", "optimizer.learning_rate=0.01", "optimizer.momentum=0.5",
        "optimizer.centered=true", "optimizer.epsilon=1e-3"}},
      {"adamw_l1_l2",
       {"optimizer.kind=ADAMW", "optimizer.learning_rate=0.01", "optimizer.l1=0.01", "optimizer.l2=0.01"}},
      {"clip_value", {"optimizer.clip_value=0.02"}},
      // Workers of servers clip what is their own.
      {"clip_norm", {"optimizer.clip_norm=0.2"}, false, false},
      {"weights", {"model.class_weights=0.5,2"}, true},
      {"frozen", {"optimizer.group=match: 'deep/mlp/.*' frozen: true"}},
      {"in_parts", {"optimizer.accumulate_steps=3", "optimizer.kind=ADAGRAD"}, true},
  };
}

TEST_F(TrainingControlsTest, AreTheSameUnderEveryStrategy) {
  for (const Control& control : controls()) {
    SCOPED_TRACE(control.name);
    const std::string name = control.name;
    const Job with = job(control.set, control.weighted);
    const std::vector<double> local = losses(name + "-local", with, "LOCAL", {});
    const auto expect_same = [&](const std::string& where, const std::vector<double>& others) {
      const double worst = worst_difference(others, local);
      std::printf("%-17s %-12s largest difference %.2g\n", control.name, where.c_str(), worst);
      EXPECT_LT(worst, 1e-5) << where;
    };
    expect_same("all-reduce", losses(name + "-reduce", with, "ALLREDUCE", {2, 0}));
    const int workers = control.on_two_servers_workers ? 2 : 1;
    expect_same("servers", losses(name + "-ps", with, "PS", {workers, 2}));
    // One worker that pulls what it has pushed: ASP without staleness.
    expect_same("ASP",
                losses(name + "-asp", with.with({"strategy.consistency=ASP", "runtime.steps_in_flight=1"}),
                       "PS", {1, 1}));
  }
}

TEST_F(TrainingControlsTest, ManyPartsAreOneStep) {
  for (const char* tables : {"true", "false"}) {
    const Job whole = job(
        {std::string("model.sparse_tables=") + tables, "optimizer.kind=ADAM", "optimizer.learning_rate=0.01"},
        true);
    const std::vector<double> expected = losses(std::string("whole-") + tables, whole, "LOCAL", {});
    EXPECT_EQ(losses(std::string("one-") + tables, whole.with({"optimizer.accumulate_steps=1"}), "LOCAL", {}),
              expected);
    for (const char* parts : {"2", "4", "7", "20"}) {
      const std::vector<double> own =
          losses(std::string("parts-") + parts + tables,
                 whole.with({std::string("optimizer.accumulate_steps=") + parts}), "LOCAL", {});
      EXPECT_LT(worst_difference(own, expected), 1e-6) << parts << " parts, sparse_tables " << tables;
    }
  }
}

TEST_F(TrainingControlsTest, PartsDropWithMasksOfTheirOwn) {
  // Forward and backward of a part have one mask, else nothing would be learned.
  const Job dropping = job({"model.dropout=0.3", "optimizer.accumulate_steps=4", "optimizer.kind=ADAGRAD",
                            "steps=300", "optimizer.learning_rate=0.1"});
  const std::vector<double> own = losses("dropping", dropping, "LOCAL", {});
  EXPECT_EQ(own, losses("again", dropping, "LOCAL", {}));
  EXPECT_LT(own.back(), own.front() - 0.05);
}

TEST_F(TrainingControlsTest, AFrozenGroupKeepsItsValuesAndOthersLearn) {
  const auto after = [&](const std::string& steps) {
    const Path root = directory() / ("checkpoints-" + steps);
    losses(steps,
           job({"optimizer.group=match: 'deep/.*' frozen: true", "checkpoint.directory=" + root.string(),
                "steps=" + steps}),
           "LOCAL", {});
    return values_of_newest(root);
  };
  const Values first = after("1"), last = after("3");
  ASSERT_FALSE(first.empty());
  for (const auto& [name, values] : first) {
    if (name.starts_with("deep/")) {
      EXPECT_EQ(values, last.at(name)) << name;
    } else if (name == "wide/dense/kernel") {
      EXPECT_NE(values, last.at(name)) << name;
    }
  }
}

TEST_F(TrainingControlsTest, AResumedRunGoesOnWithEverySlot) {
  const std::vector<std::string> set{
      "optimizer.kind=RMSPROP", "optimizer.learning_rate=0.01", "optimizer.momentum=0.5",
      "optimizer.centered=true", "optimizer.group=match: 'wide/.*' kind: FTRL learning_rate: 0.1 l1: 0.01"};
  for (const auto& [strategy, shape] : std::map<std::string, Cluster::Shape>{{"LOCAL", {}}, {"PS", {1, 2}}}) {
    const Path root = directory() / (strategy + "-checkpoints");
    const Job whole = job(set).with({"strategy.kind=" + strategy});
    const std::vector<double> expected = losses(strategy + "-whole", whole, strategy, shape);
    const Job saving = whole.with({"checkpoint.directory=" + root.string(), "checkpoint.every_steps=20"});
    losses(strategy + "-first", saving.with({"steps=20"}), strategy, shape);
    Cluster resumed(directory() / (strategy + "-resumed"), saving, shape, {"--resume"});
    resumed.expect_success();
    const std::vector<double> rest = resumed.mean_losses(20);
    EXPECT_EQ(rest, std::vector<double>(expected.begin() + 20, expected.end())) << strategy;
  }
}

TEST_F(TrainingControlsTest, AreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal({"optimizer.group=match: 'wid/.*' kind: FTRL"}),
              AllOf(HasSubstr("optimizer.group[0] 'wid/.*': matches no trainable variable; there are: "),
                    HasSubstr("wide/dense/kernel")));
  EXPECT_THAT(refusal({"optimizer.group=match: 'wide/.*'", "optimizer.group[0].match=wide/("}),
              HasSubstr("optimizer.group[0] 'wide/(': match is not a regular expression: missing )"));
  EXPECT_THAT(refusal({"optimizer.group=kind: FTRL"}), HasSubstr("optimizer.group[0].match is missing"));
  EXPECT_THAT(refusal({"optimizer.group=match: '.*' frozen: true"}),
              HasSubstr("all trainable variables are frozen"));
  EXPECT_THAT(refusal({"optimizer.clip_norm=-1"}), HasSubstr("optimizer.clip_norm must not be negative"));
  EXPECT_THAT(refusal({"optimizer.group=match: '.*' learning_rate: -1"}),
              HasSubstr("optimizer.group[0].learning_rate must be positive"));
  EXPECT_THAT(refusal({"optimizer.accumulate_steps=21"}),
              HasSubstr("optimizer.accumulate_steps is 21, but a worker's part of a batch has only 20 rows"));
  EXPECT_THAT(refusal({"model.class_weights=1,2,3"}),
              HasSubstr("model.class_weights has 3 numbers, but there are 2 classes"));
}

}  // namespace
}  // namespace braid::integration
