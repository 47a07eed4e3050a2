// Graphs whose input comes from queues and readers inside them, through `braid graph run`.
#include <gmock/gmock.h>

#include "base/files.h"
#include "tests/integration/run.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string strings(const std::string& name, const std::vector<std::string>& values, bool is_scalar = false) {
  std::string text = "node { name: '" + name +
                     "' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } " +
                     "attr { key: 'value' value { tensor { dtype: DT_STRING tensor_shape { ";
  if (!is_scalar) text += "dim { size: " + std::to_string(values.size()) + " } ";
  text += "} ";
  for (const std::string& value : values) text += "string_val: '" + value + "' ";
  return text + "} } } }\n";
}

std::string number(const std::string& name, int value) {
  return "node { name: '" + name + "' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } " +
         "attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape { } int_val: " +
         std::to_string(value) + " } } } }\n";
}

std::string node(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
                 const std::string& attrs = "") {
  std::string text = "node { name: '" + name + "' op: '" + op + "' ";
  for (const std::string& input : inputs) text += "input: '" + input + "' ";
  return text + attrs + " }\n";
}

class GraphQueuesTest : public IntegrationTest {
 protected:
  /// Lines "number,word" of the files, in batches of `batch`.
  std::string pipeline(const std::vector<std::string>& files, int batch, const std::string& dequeue,
                       const std::string& batch_queue, const std::string& waits_for = "") const {
    return strings("files", files) + node("names", "Identity", {"files"}) +
           node("epoch", "CountUpTo", {"counter"}, "attr { key: 'limit' value { i: 2 } }") +
           node("counter", "VariableV2", {},
                "attr { key: 'dtype' value { type: DT_INT64 } } attr { key: 'shape' value { shape { } } }") +
           node("counted", "Identity", {"files", "^epoch"}) + node("file_queue", "FIFOQueueV2", {}) +
           node("fill_names", "QueueEnqueueManyV2", {"file_queue", waits_for.empty() ? "names" : waits_for}) +
           node("reader", "TextLineReaderV2", {}, "attr { key: 'skip_header_lines' value { i: 1 } }") +
           node("read", "ReaderReadV2", {"reader", "file_queue"}) + number("no_number", 7) +
           strings("no_word", {"none"}, true) + node("csv", "DecodeCSV", {"read:1", "no_number", "no_word"}) +
           node("queue", batch_queue, {}, "attr { key: 'min_after_dequeue' value { i: 3 } }") +
           node("fill", "QueueEnqueueV2", {"queue", "csv", "csv:1"}) + number("count", batch) +
           node("batch", dequeue, {"queue", "count"}) + node("y", "Neg", {"batch:0"}) +
           node("bucket", "StringToHashBucketFast", {"batch:1"},
                "attr { key: 'num_buckets' value { i: 1000 } }");
  }
};

TEST_F(GraphQueuesTest, LinesOfTheFilesComeInBatches) {
  const std::string a = write("a.csv", "n,word\n1,x\n2,y\n"), b = write("b.csv", "n,word\n,z\n");
  const std::string graph = write("queues.pbtxt", pipeline({a, b}, 4, "QueueDequeueManyV2", "FIFOQueueV2"));
  const auto process =
      run("run", {"graph", "run", graph, "--fetch", "y", "--fetch", "batch", "--fetch", "bucket"});
  EXPECT_EQ(process->wait({}), 0) << process->err();
  // After the last file comes the first again.
  EXPECT_THAT(process->out(),
              AllOf(HasSubstr("y: int32 [4] [-1 -2 -7 -1]"), HasSubstr("batch: int32 [4] [1 2 7 1]"),
                    HasSubstr("bucket: int64 [4] [")));
}

TEST_F(GraphQueuesTest, CheckAgreesWithRun) {
  const std::string a = write("a.csv", "n,word\n1,x\n2,y\n");
  const std::string types =
      "attr { key: 'component_types' value { list { type: DT_INT32 type: DT_STRING } } }";
  const std::string lines = pipeline({a}, 2, "QueueDequeueManyV2", "FIFOQueueV2", "counted");
  const auto good = run("check", {"graph", "check", write("queues.pbtxt", lines)});
  EXPECT_EQ(good->wait({}), 0) << good->err() << good->out();
  EXPECT_THAT(good->out(), AllOf(HasSubstr("all of them can be loaded"),
                                 HasSubstr("nodes of queues and readers: only `braid graph run`")));
  // What is read from a queue whose types are known is checked, too.
  const std::string unknown = pipeline({a}, 2, "QueueDequeueManyV2", "FIFOQueueV2") +
                              node("typed", "QueueDequeueManyV2", {"queue", "count"}, types) +
                              node("bad", "NoSuchOp", {"typed:1"}) +
                              node("wrong", "MatMul", {"typed:1", "typed:1"});
  const auto refused = run("refused", {"graph", "check", write("unknown.pbtxt", unknown)});
  EXPECT_EQ(refused->wait({}), 2);
  EXPECT_THAT(refused->out(), AllOf(HasSubstr("2 of "), HasSubstr("NoSuchOp"), HasSubstr("MatMul")));
  const std::string unfilled =
      write("u.pbtxt", node("queue", "FIFOQueue", {}) + node("y", "QueueDequeue", {"queue"}));
  const auto empty = run("unfilled", {"graph", "check", unfilled});
  EXPECT_EQ(empty->wait({}), 2);
  EXPECT_THAT(empty->out(), HasSubstr("QueueDequeue"));
}

TEST_F(GraphQueuesTest, EpochsEndTheInput) {
  const std::string a = write("a.csv", "n,word\n1,x\n2,y\n");
  const std::string rest =
      write("rest.pbtxt", pipeline({a}, 9, "QueueDequeueUpToV2", "FIFOQueueV2", "counted"));
  const auto upto = run("upto", {"graph", "run", rest, "--fetch", "y"});
  EXPECT_EQ(upto->wait({}), 0) << upto->err();
  EXPECT_THAT(upto->out(), HasSubstr("y: int32 [4] [-1 -2 -1 -2]"));
  const std::string many =
      write("many.pbtxt", pipeline({a}, 9, "QueueDequeueManyV2", "FIFOQueueV2", "counted"));
  const auto process = run("many", {"graph", "run", many, "--fetch", "y"});
  EXPECT_EQ(process->wait({}), 2);
  EXPECT_THAT(
      process->err(),
      HasSubstr("[QueueDequeueManyV2] node 'batch': its input has ended before there was enough of it"));
}

TEST_F(GraphQueuesTest, AShufflingQueueGivesTheSameForASeed) {
  const std::string a = write("a.csv", "n,word\n1,x\n2,y\n3,z\n4,v\n5,w\n6,u\n");
  const std::string graph =
      write("shuffled.pbtxt", pipeline({a}, 6, "QueueDequeueManyV2", "RandomShuffleQueueV2"));
  const auto text = [&](const std::string& seed) {
    const auto process = run("shuffle", {"graph", "run", graph, "--fetch", "y", "--seed", seed});
    EXPECT_EQ(process->wait({}), 0) << process->err();
    return process->out();
  };
  EXPECT_EQ(text("3"), text("3"));
  EXPECT_NE(text("3"), text("4"));
}

TEST_F(GraphQueuesTest, WhatIsWrongNamesTheNode) {
  const std::string unfilled =
      write("unfilled.pbtxt", node("queue", "FIFOQueue", {}) + node("y", "QueueDequeue", {"queue"}));
  const auto process = run("unfilled", {"graph", "run", unfilled, "--fetch", "y"});
  EXPECT_EQ(process->wait({}), 2);
  EXPECT_THAT(process->err(), HasSubstr("[FIFOQueue] node 'queue': nothing fills this queue"));
  const std::string missing =
      write("missing.pbtxt", pipeline({"/nowhere/a.csv"}, 2, "QueueDequeueManyV2", "FIFOQueueV2"));
  const auto absent = run("missing", {"graph", "run", missing, "--fetch", "y"});
  EXPECT_EQ(absent->wait({}), 2);
  EXPECT_THAT(absent->err(), HasSubstr("'/nowhere/a.csv': cannot be opened"));
  const std::string empty = write("empty.csv", "n,word\n");
  const std::string nothing =
      write("nothing.pbtxt", pipeline({empty}, 2, "QueueDequeueManyV2", "FIFOQueueV2"));
  const auto endless = run("empty", {"graph", "run", nothing, "--fetch", "y"});
  EXPECT_EQ(endless->wait({}), 2);
  EXPECT_THAT(endless->err(), HasSubstr("[ReaderReadV2] node 'read': 10000 files in a row have no records"));
}

}  // namespace
}  // namespace braid::integration
