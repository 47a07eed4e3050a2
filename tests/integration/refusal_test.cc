// Broken input of every kind ends a run with 2 before it has trained, and the message says where the fault
// is.
#include <fstream>

#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/integration/run.h"
#include "tests/support/made_data.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kBadInput = 2;

class RefusalTest : public IntegrationTest {
 protected:
  template <class Matcher>
  void expect_refused(std::vector<std::string> arguments, Matcher says, const Variables& variables = {}) {
    const std::string shown = ::testing::PrintToString(arguments) + ::testing::PrintToString(variables);
    const auto process = run("refused", std::move(arguments), variables);
    EXPECT_EQ(process->wait({}), kBadInput) << shown;
    EXPECT_THAT(process->err(), says) << shown;
    EXPECT_EQ(process->out(), "") << shown;
  }
  template <class Matcher>
  void expect_job_refused(const std::vector<std::string>& set, Matcher says) {
    expect_refused(linear_regression().with(set).arguments(), says);
  }
  template <class Matcher>
  void expect_cluster_refused(const std::string& tf_config, const char* strategy, Matcher says) {
    const Job job = linear_regression().with({std::string("strategy.kind=") + strategy});
    expect_refused(job.arguments(), says, {{"TF_CONFIG", tf_config}});
  }
};

TEST_F(RefusalTest, TfConfigWithItsPathInTheDocument) {
  expect_cluster_refused(R"({"cluster": {"worker": ["a:1")", "LOCAL",
                         AllOf(HasSubstr("TF_CONFIG"), HasSubstr("byte 29")));
  expect_cluster_refused("[]", "LOCAL", HasSubstr("TF_CONFIG $: expected an object"));
  expect_cluster_refused(R"({"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker", "index": 0}})",
                         "LOCAL", HasSubstr("$.cluster.worker[1]: address 'a:1' is also"));
  expect_cluster_refused(R"({"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}})", "LOCAL",
                         HasSubstr("$.cluster.worker[0]: address 'a' has no port"));
  expect_cluster_refused(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 3}})",
                         "LOCAL", HasSubstr("$.task: worker 3: the index is out of range"));
  expect_cluster_refused(R"({"cluster": {"wroker": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
                         "LOCAL", HasSubstr("$.cluster: unknown job 'wroker'"));
  expect_cluster_refused(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})", "PS",
                         HasSubstr("$.task: ps 0: the cluster lists no ps"));
}

TEST_F(RefusalTest, AClusterThatDoesNotFitTheStrategy) {
  const std::string two = R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
                              "task": {"type": "worker", "index": 0}})";
  expect_cluster_refused(two, "LOCAL",
                         HasSubstr("strategy.kind LOCAL supports one worker, and this cluster has 2"));
  expect_cluster_refused(
      two, "PS", AllOf(HasSubstr("strategy.kind PS needs at least one ps task"), HasSubstr("--ps 1")));
  expect_cluster_refused(R"({"cluster": {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]},
                             "task": {"type": "worker", "index": 0}})",
                         "ALLREDUCE", HasSubstr("has no parameter servers"));
  expect_cluster_refused(R"({"cluster": {"worker": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]},
                             "task": {"type": "evaluator", "index": 0}})",
                         "LOCAL", HasSubstr("an evaluator needs checkpoint.directory"));
}

TEST_F(RefusalTest, AJobThatOthersCanReachWithoutAProof) {
  expect_cluster_refused(
      R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})", "PS",
      AllOf(HasSubstr("ps 0 at b:1 can be reached from beyond this host"), HasSubstr("BRAID_TOKEN"),
            HasSubstr("strategy.insecure: true")));
}

TEST_F(RefusalTest, OneFileForSeveralWorkersOfAHost) {
  const Job job =
      linear_regression().with({"strategy.kind=ALLREDUCE", "metrics.trace_file=" + path("t.json")});
  expect_refused(
      job.arguments(),
      AllOf(HasSubstr("metrics.trace_file '" + path("t.json")), HasSubstr("2 workers of this host")),
      {{"TF_CONFIG", R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
                                    "task": {"type": "worker", "index": 1}})"}});
}

TEST_F(RefusalTest, JobFilesWithLineAndColumn) {
  expect_refused({"train", "--job", (directory() / "none.pbtxt").string()},
                 AllOf(HasSubstr("none.pbtxt'"), HasSubstr("No such file")));
  expect_refused({"train", "--job", directory().string()}, HasSubstr("is a directory"));
  const std::string unknown =
      write("unknown.pbtxt", "name: 'x'\nsteps: 3\noptimizer { learning_rat: 0.1 }\n");
  expect_refused(
      {"train", "--job", unknown},
      HasSubstr(unknown + ":3:25: unknown field 'learning_rat' in Optimizer; did you mean 'learning_rate'?"));
  const std::string value = write("enum.pbtxt", "name: 'x'\nstrategy { kind: ALREDUCE }\n");
  expect_refused({"train", "--job", value},
                 AllOf(HasSubstr(value + ":2:"), HasSubstr("did you mean 'ALLREDUCE'?")));
  const std::string type = write("type.pbtxt", "steps: many\n");
  expect_refused({"train", "--job", type}, HasSubstr(type + ":1:8"));
}

TEST_F(RefusalTest, OverridesAndValuesThatMakeNoJob) {
  expect_job_refused({"stpes=3"},
                     HasSubstr("--set stpes=3: unknown field 'stpes' in Job; did you mean 'steps'?"));
  expect_job_refused({"strategy.kind=ALREDUCE"}, HasSubstr("did you mean 'ALLREDUCE'?"));
  expect_job_refused({"strategy.consistency=SPP"}, HasSubstr("did you mean 'SSP'?"));
  expect_job_refused({"model.name=lenet"}, HasSubstr("there is no model 'lenet'; the models are: cnn,"));
  expect_job_refused({"input.global_batch_size=18"},
                     HasSubstr("17 rows are fewer than one global batch of 18"));
  const Path rules = directory() / "rules.txt";
  std::ofstream(rules) << "1:y\n";
  expect_job_refused({"streams.count=1", "streams.policy=USER", "streams.rules_file=" + rules.string()},
                     HasSubstr("node 'y': stream 1 does not exist; the program has 1 compute stream"));
}

TEST_F(RefusalTest, VariablesOfTheEnvironment) {
  for (const char* variable : {"BRAID_LOG", "BRAID_PROGRESS"})
    expect_refused(linear_regression().arguments(), HasSubstr(std::string(variable) + "='loud': known are "),
                   {{variable, "loud"}});
}

TEST_F(RefusalTest, PlacesThatCannotBeWritten) {
  const std::string file = write("file", "");
  expect_job_refused({"checkpoint.directory=" + file}, HasSubstr("checkpoint.directory '" + file + "'"));
  expect_job_refused({"checkpoint.directory=/proc/none"}, HasSubstr("checkpoint.directory '/proc/none'"));
  expect_job_refused({"checkpoint.directory=/proc/none", "streams.count=2", "streams.policy=AUTO"},
                     HasSubstr("checkpoint.directory '/proc/none'"));  // which keeps the plan of the streams
  expect_job_refused({"metrics.steps_file=/proc/none/x"}, HasSubstr("metrics.steps_file: cannot write"));
  expect_job_refused({"metrics.trace_file=/proc/none/x"}, HasSubstr("metrics.trace_file: cannot write"));
  expect_job_refused({"metrics.listen=nonsense"}, HasSubstr("'nonsense' is not an address"));
}

TEST_F(RefusalTest, ResumeWithoutADirectory) {
  std::vector<std::string> arguments = linear_regression().arguments();
  arguments.emplace_back("--resume");
  expect_refused(arguments, HasSubstr("--resume needs checkpoint.directory"));
}

TEST_F(RefusalTest, CommandLines) {
  expect_refused({}, HasSubstr("a subcommand is required"));
  expect_refused({"trian"}, AllOf(HasSubstr("trian"),
                                  HasSubstr("train, launch, predict, evaluate, infer, graph, data, ckpt")));
  expect_refused({"graph", "paln"}, HasSubstr("The subcommands of `braid graph` are show, check,"));
  expect_refused({"train", "--job", "x", "--steps", "3"}, HasSubstr("--set steps=100"));
  expect_refused({"train", "--job", "x", "--device", "gpu"}, HasSubstr("gpu not in {CUDA,CPU,AUTO}"));
  expect_refused({"launch", "--workers", "2", "train", "--job", "x"}, HasSubstr("after --: braid launch"));
  expect_refused({"graph"}, AllOf(HasSubstr("a subcommand is required"), HasSubstr("plan")));
  expect_refused({"train"}, HasSubstr("braid train needs --job FILE, or --graph FILE"));
  expect_refused({"train", "--job", "x", "--bogus"}, HasSubstr("--bogus"));
}

TEST_F(RefusalTest, ImagesAndLabelsThatAreMissingDamagedOrOfAnotherSize) {
  const Path source = mlp().data;
  const std::string images = "train-images-idx3-ubyte.gz", labels = "train-labels-idx1-ubyte.gz";
  Job job = mlp().with({"steps=2"});
  job.data = directory() / "none";
  expect_refused(job.arguments(),
                 AllOf(HasSubstr("input.train_files: '"), HasSubstr("none/" + images + "': No such file"),
                       HasSubstr("relative to --data-dir, which is '" + job.data.string())));

  job.data = directory();
  std::filesystem::copy(source / labels, directory() / labels);
  write(images, read_file(source / images).substr(0, 100000));
  expect_refused(job.arguments(), AllOf(HasSubstr(images), HasSubstr("gzip data ends early after")));
  write(images, read_file(source / labels));
  expect_refused(job.arguments(), AllOf(HasSubstr(images), HasSubstr("byte 0: wrong magic number")));
  std::string damaged = read_file(source / images);
  damaged[damaged.size() / 2] ^= 0x10;
  write(images, damaged);
  expect_refused(job.arguments(), AllOf(HasSubstr(images), HasSubstr("damaged gzip data")));
  write(images, read_file(source / images));
  write(labels, read_file(source / "t10k-labels-idx1-ubyte.gz"));
  expect_refused(job.arguments(), AllOf(HasSubstr("has " + std::to_string(kImages.train) + " images"),
                                        HasSubstr("has " + std::to_string(kImages.test) + " labels")));
}

TEST_F(RefusalTest, ALabelOutsideOfTheClasses) {
  expect_refused(
      mlp().with({"steps=20", "model.classes=7"}).arguments(),
      AllOf(HasSubstr("node 'SparseSoftmaxCrossEntropyWithLogits'"), HasSubstr("is outside [0, 7)")));
}

TEST_F(RefusalTest, RowsOfTextWithTheirLine) {
  Job job = wide_deep().with({"steps=2", "input.test_files=adult.data"});
  const std::string text = read_file(job.data / "adult.data").substr(0, 40000);
  const std::string whole = text.substr(0, text.rfind('\n') + 1);
  job.data = directory();
  const std::size_t third = whole.find('\n', whole.find('\n') + 1) + 1, fourth = whole.find('\n', third) + 1;
  const std::string head = whole.substr(0, third), row = whole.substr(third, fourth - third),
                    tail = whole.substr(fourth);
  write("adult.data", head + row.substr(0, row.rfind(',')) + "\n" + tail);
  expect_refused(job.arguments(), HasSubstr("adult.data' line 3: expected 15 fields, got 14"));
  write("adult.data", head + "old" + row.substr(row.find(',')) + tail);
  expect_refused(job.arguments(), HasSubstr("adult.data' line 3: column 1 (age): 'old' is not a number"));
  const auto tolerant = run("tolerant", job.with({"input.max_bad_records=1"}).arguments());
  EXPECT_EQ(tolerant->wait({}), 0) << tolerant->err();
}

/// A model of probabilities that learns from labels of 2 loses less and less, without end.
TEST_F(RefusalTest, LabelsThatAreNoProbabilitiesAlsoWhereRowsAreStreamed) {
  std::string rows, words;
  for (int i = 0; i < 4000; ++i) {
    rows += std::to_string(i % 50) + (i == 3500 ? ",2\n" : ",1\n");
    words += std::to_string(i % 50) + (i % 2 == 0 ? ",yes\n" : ",\n");
  }
  write("rows.csv", rows);
  write("words.csv", words);
  const auto job = [&](const std::string& file, const std::string& read, const std::string& label) {
    return Job{write("job.pbtxt",
                     "name: \"labels\" epochs: 1 model { name: \"wide_deep\" hidden: 4 embedding_dim: 2 }\n"
                     "input { format: CSV train_files: \"" +
                         file + "\" global_batch_size: 100 read: " + read +
                         "\n  columns { name: \"city\" kind: CATEGORICAL buckets: 50 }\n"
                         "  columns { name: \"clicked\" kind: LABEL " +
                         label + " } }\noptimizer { kind: SGD learning_rate: 0.1 }\n"),
               directory(),
               {}}
        .arguments();
  };
  expect_refused(job("rows.csv", "MEMORY", ""), HasSubstr("column 'clicked' has the label 2 in row 3501"));
  expect_refused(job("rows.csv", "STREAM", ""),
                 AllOf(HasSubstr("column 'clicked' has the label 2 in "), HasSubstr("rows.csv' bytes")));
  for (const char* const read : {"MEMORY", "STREAM"})
    expect_refused(job("words.csv", read, "positive: \"yes\""),
                   HasSubstr("words.csv' line 2: column 2 (clicked): a label is missing"));
}

TEST_F(RefusalTest, ClicksThatAreCutDamagedOrMissing) {
  const auto made = run("make", {"data", "criteo", "--rows", "300", "--out", path("tsv")});
  ASSERT_EQ(made->wait({}), 0) << made->err();
  const auto packed =
      run("pack", {"data", "criteo", "--rows", "300", "--format", "tfrecord", "--out", path("records")});
  ASSERT_EQ(packed->wait({}), 0) << packed->err();
  const Job job = dlrm(directory()).with({"steps=2"});
  const auto train_on = [&](const std::string& name) {
    return job.with({"input.train_files=" + name}).arguments();
  };

  const std::string records = read_file(directory() / "records/train.tfrecord");
  write("cut.tfrecord", records.substr(0, records.size() - 9));
  expect_refused(train_on("cut.tfrecord"),
                 AllOf(HasSubstr("cut.tfrecord' record 300 at byte"), HasSubstr("truncated")));
  std::string damaged = records;
  damaged[40] ^= 0x04;
  write("data.tfrecord", damaged);
  expect_refused(train_on("data.tfrecord"),
                 AllOf(HasSubstr("data.tfrecord' record 1 at byte 0: the CRC of its"),
                       HasSubstr("bytes of data does not match")));
  damaged = records;
  damaged[1] ^= 0x04;
  write("length.tfrecord", damaged);
  expect_refused(train_on("length.tfrecord"),
                 HasSubstr("length.tfrecord' record 1 at byte 0: the CRC of its length"));

  const std::string rows = read_file(directory() / "tsv/train.tsv");
  const std::size_t second = rows.find('\n') + 1, third = rows.find('\n', second) + 1;
  write("short.tsv", rows.substr(0, rows.rfind('\t', third)) + "\n" + rows.substr(third));
  expect_refused(train_on("short.tsv"), HasSubstr("short.tsv' line 2: expected 40 fields, got 39"));
  write("label.tsv", rows.substr(0, second) + "2" + rows.substr(second + 1));
  expect_refused(train_on("label.tsv"), HasSubstr("label.tsv' line 2: label '2' is not 0 or 1"));

  write("none.tsv", "");
  expect_refused(train_on("none.tsv"),
                 AllOf(HasSubstr("input.train_files: '"), HasSubstr("none.tsv' has no records")));
  write("none.tfrecord", "");
  expect_refused(train_on("none.tfrecord"), HasSubstr("none.tfrecord' has no records"));
  expect_refused(train_on("none-*.tsv"), AllOf(HasSubstr("input.train_files: no file matches"),
                                               HasSubstr("none-*.tsv"), HasSubstr("relative to --data-dir")));
}

TEST_F(RefusalTest, GraphsWithACycleOrWithShapesThatDoNotFit) {
  const std::string cycle =
      write("cycle.pbtxt",
            "node { name: 'a' op: 'Relu' input: 'b' attr { key: 'T' value { type: DT_FLOAT } } }\n"
            "node { name: 'b' op: 'Relu' input: 'a' attr { key: 'T' value { type: DT_FLOAT } } }\n");
  expect_refused({"graph", "plan", cycle}, HasSubstr("is on a cycle: 'b' -> 'a' -> 'b'"));
  expect_refused({"graph", "run", cycle, "--fetch", "b", "--out", path("b.npy")}, HasSubstr("is on a cycle"));
  const auto matrix = [](const std::string& name, const std::string& rows, const std::string& columns) {
    return "node { name: '" + name + "' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } " +
           "attr { key: 'shape' value { shape { dim { size: " + rows + " } dim { size: " + columns +
           " } } } } }\n";
  };
  const std::string product =
      write("product.pbtxt", matrix("x", "2", "3") + matrix("w", "4", "5") +
                                 "node { name: 'y' op: 'MatMul' input: 'x' input: 'w' "
                                 "attr { key: 'T' value { type: DT_FLOAT } } }\n");
  expect_refused({"graph", "plan", product},
                 AllOf(HasSubstr("[MatMul] node 'y'"), HasSubstr("[2, 3]"), HasSubstr("[4, 5]")));
}

TEST_F(RefusalTest, GraphFiles) {
  expect_refused({"graph", "check", "/none.pb"}, HasSubstr("/none.pb"));
  const std::string text = write("bad.pbtxt", "node {\n  nme: 'a'\n}\n");
  expect_refused({"graph", "check", text}, HasSubstr(text + ":2:"));
  const std::string binary = write("bad.pb", std::string("\x7f\x45LF\x01\x02\x03", 7));
  expect_refused({"graph", "check", binary}, HasSubstr("neither a binary nor a text GraphDef"));
  const std::string ops =
      write("ops.pbtxt", "node { name: 'a' op: 'Foo' } node { name: 'b' op: 'Relu' input: 'zz' }");
  expect_refused({"graph", "plan", ops}, AllOf(HasSubstr("[Foo] node 'a': the op is not supported"),
                                               HasSubstr("input 'zz' does not exist")));
}

TEST_F(RefusalTest, Checkpoints) {
  expect_refused({"ckpt", "ls", "/none"}, HasSubstr("'/none' is not a directory"));
  expect_refused({"ckpt", "show", directory().string()}, HasSubstr("no MANIFEST"));
}

}  // namespace
}  // namespace braid::integration
