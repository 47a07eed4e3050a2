// A model on a ragged column loses what PyTorch loses with an EmbeddingBag in the place of its table
// (golden/make_ragged.py), whatever the pooling, with a bag of none and one of 10,000 ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/exec/runtime.h"
#include "engine/input/formats/readers.h"
#include "launch/cluster_spec.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/evaluation/model_runner.h"
#include "worker/job/job.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/roles.h"
#include "worker/run/fed_steps.h"
#include "worker/run/hooks.h"

namespace braid::worker {
namespace {

using testing::HasSubstr;

/// Numbers that any language makes alike.
class EqualDraws {
 public:
  explicit EqualDraws(std::uint64_t state) : state_(state % (1ULL << 31)) {}
  std::uint64_t below(std::uint64_t n) {
    state_ = (state_ * 1103515245 + 12345) % (1ULL << 31);
    return (state_ >> 8) % n;
  }

 private:
  std::uint64_t state_;
};

std::string lines(std::uint64_t longest) {
  EqualDraws draws(17);
  std::string text = "x,city,tags,weights,y\n";
  for (int r = 0; r < 96; ++r) {
    const double x = static_cast<double>(draws.below(1000)) / 500 - 1;
    const std::uint64_t city = draws.below(5);
    const std::uint64_t count = r == 5 ? 0 : r == 7 ? longest : draws.below(6);
    std::string tags, weights;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t tag = draws.below(30), weight = 1 + draws.below(8);
      tags += (i == 0 ? "t" : "|t") + std::to_string(tag);
      weights += (i == 0 ? "" : "|") + std::to_string(static_cast<double>(weight) / 4);
    }
    text += std::to_string(x) + ",c" + std::to_string(city) + "," + tags + "," + weights + "," +
            std::to_string(draws.below(2)) + "\n";
  }
  return text;
}

Tensor initial(const std::string& name, const Shape& shape, double of_tables = 0.003) {
  std::uint64_t state = 0;
  for (std::size_t i = 0; i < name.size(); ++i) state += (i + 1) * static_cast<unsigned char>(name[i]);
  EqualDraws draws(state);
  Tensor value(DType::Float32, shape);
  const double scale = name.ends_with("/table") ? of_tables : 0.2;
  for (float& v : value.data<float>())
    v = static_cast<float>((static_cast<double>(draws.below(2001)) / 1000 - 1) * scale);
  return value;
}

std::string words(const char* prefix, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += " vocabulary: '" + std::string(prefix) + std::to_string(i) + "'";
  return text;
}

class RaggedLossesTest : public testing::Test {
 protected:
  void SetUp() override { write(10000); }
  void write(std::uint64_t longest) const { std::ofstream(dir_.path() / "rows.csv") << lines(longest); }

  /// `tags`: further settings of the ragged column.
  proto::Job job(const std::string& tags, bool weighted, const std::string& more = {}) {
    const std::string weights = weighted ? "NUMERIC ragged: true" : "SKIP";
    return load_job_text(
        R"(model { name: "dcn_v2" embedding_dim: 4 hidden: 8 sparse_tables: true } steps: 30
           optimizer { kind: SGD learning_rate: 0.2 }
           input { format: CSV train_files: "rows.csv" test_files: "rows.csv" global_batch_size: 32 shuffle: false
             csv { header: true }
             columns { name: "x" kind: NUMERIC } columns { name: "city" kind: CATEGORICAL)" +
            words("c", 5) + R"( } columns { name: "tags" kind: CATEGORICAL ragged: true)" + words("t", 30) +
            " " + tags + (weighted ? " weights: 'weights'" : "") + R"( } columns { name: "weights" kind: )" +
            weights +
            R"( } columns { name: "y" kind: LABEL } }
           runtime { device: CPU intra_op_threads: 1 } evaluation { enabled: false } )" +
            more,
        "test", {});
  }

  struct Ran {
    std::vector<double> losses;
    std::map<std::string, Tensor> values;
  };
  Ran run(const proto::Job& job, std::map<std::string, Tensor> initial = {}) {
    Ran ran;
    RunHooks hooks{.initial = std::move(initial)};
    hooks.step = [&](const StepOutcome& step) { ran.losses.push_back(step.loss); };
    hooks.ended = [&](const TrainResult&, const VariableStore& store) { ran.values = copy_values(store); };
    RoleOptions role;
    role.data_dir = dir_.path();
    role.hooks = &hooks;
    run_role(job, role, std::make_shared<StopFlag>());
    return ran;
  }

  std::map<std::string, Tensor> values_of(const proto::Job& job, double of_tables = 0.003) {
    proto::Job one = job;
    one.set_steps(1);
    std::map<std::string, Tensor> values = run(one).values;
    for (auto& [name, value] : values) value = initial(name, value.shape(), of_tables);
    return values;
  }

  TempDir dir_;
};

TEST_F(RaggedLossesTest, AreThoseOfPyTorchsEmbeddingBag) {
  const auto file = nlohmann::json::parse(
      std::ifstream(std::filesystem::path(BRAID_SOURCE_DIR) / "tests/worker/run/golden/ragged.json"));
  ASSERT_EQ(file["cases"].size(), 9U);
  for (const auto& each : file["cases"]) {
    std::string pooling = each["pooling"];
    std::ranges::transform(pooling, pooling.begin(),
                           [](char c) { return static_cast<char>(std::toupper(c)); });
    SCOPED_TRACE(pooling + (each["weighted"] ? ", weighted" : ""));
    write(each["longest"]);
    proto::Job its = job("pooling: " + pooling, each["weighted"]);
    its.mutable_optimizer()->set_learning_rate(each["rate"]);
    const std::vector<double> losses = run(its, values_of(its)).losses, expected = each["losses"];
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << "step " << i;
  }
}

/// Softmax of the rows' products with a learned query, or with another column's row; of ragged columns, with
/// a bag of none and one of 10,000, and of lists that 0 fills.
TEST_F(RaggedLossesTest, OfAttentionAreThoseOfPyTorch) {
  const auto file = nlohmann::json::parse(
      std::ifstream(std::filesystem::path(BRAID_SOURCE_DIR) / "tests/worker/run/golden/attention.json"));
  ASSERT_EQ(file["cases"].size(), 4U);
  for (const auto& each : file["cases"]) {
    const std::string query = each["query"];
    const bool list = each["list"];
    SCOPED_TRACE((list ? "list, query " : "ragged, query ") + query);
    write(each["longest"]);
    proto::Job its = job("pooling: ATTENTION" + (query.empty() ? "" : " query: '" + query + "'"), false);
    if (list) {
      its.mutable_input()->mutable_columns(2)->clear_ragged();
      its.mutable_input()->mutable_columns(2)->set_length(6);
    }
    its.mutable_optimizer()->set_learning_rate(each["rate"]);
    const std::map<std::string, Tensor> first = values_of(its, each["tables"]);
    EXPECT_EQ(first.contains("tags/query"), query.empty());
    EXPECT_EQ(first.at("tags/table").shape(), (Shape{list ? 31 : 30, 4}));
    const std::vector<double> losses = run(its, first).losses, expected = each["losses"];
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << "step " << i;
  }
}

TEST_F(RaggedLossesTest, AllModelsOfTablesPoolByAttention) {
  write(10);
  for (const char* model : {"wide_deep", "deepfm", "dcn_v2", "dlrm", "dlrm_v2", "mmoe"}) {
    SCOPED_TRACE(model);
    for (const char* query : {"", " query: 'city'"}) {
      proto::Job its = job(std::string("pooling: ATTENTION") + query, false);
      its.mutable_model()->set_name(model);
      its.set_steps(3);
      if (its.model().name() == "mmoe") {  // of two labels
        proto::Column second = its.input().columns(4);
        its.mutable_input()->mutable_columns(4)->set_output("click");
        second.set_name("x");
        second.set_positive("0.");
        second.set_output("purchase");
        *its.mutable_input()->mutable_columns(0) = second;
      }
      const Ran ran = run(its);
      ASSERT_EQ(ran.losses.size(), 3U);
      for (const double loss : ran.losses) EXPECT_TRUE(std::isfinite(loss));
    }
  }
}

TEST_F(RaggedLossesTest, AttentionWithoutItsQueryIsRefusedByName) {
  write(10);
  const auto refusal = [&](const char* tags, bool weighted = false) {
    return message_of([&] { run(job(std::string("pooling: ATTENTION ") + tags, weighted)); });
  };
  EXPECT_THAT(refusal("query: 'town'"),
              HasSubstr("column 'tags': pooling ATTENTION has query 'town', but beside it model 'dcn_v2'"));
  EXPECT_THAT(refusal("query: 'tags'"), HasSubstr("which is a list"));
  EXPECT_THAT(refusal("", true), HasSubstr("column 'tags': pooling ATTENTION has no weights"));
  EXPECT_THAT(refusal("query: 'city' embedding_dim: 3"), HasSubstr("of another embedding_dim"));
}

TEST_F(RaggedLossesTest, DependNeitherOnRoomNorOnThreadsNorOnStreaming) {
  const std::vector<double> losses = run(job("", true)).losses;
  EXPECT_EQ(run(job("batch_ids: 123456", true)).losses, losses);
  EXPECT_EQ(run(job("", true, "staging { num_threads: 3 capacity: 4 }")).losses, losses);
  proto::Job streamed = job("batch_ids: 20000", true);
  streamed.mutable_input()->set_read(proto::Input::STREAM);
  streamed.mutable_input()->mutable_stream()->set_block_bytes(2000);
  EXPECT_EQ(run(streamed).losses, losses) << "rows that are not shuffled come in the order of the file";
}

TEST_F(RaggedLossesTest, ABatchWithMoreIdsThanThereIsRoomForIsRefusedByColumnAndRow) {
  EXPECT_THAT(message_of([&] { run(job("batch_ids: 5000", false)); }),
              testing::AllOf(HasSubstr("column 'tags': batch 0 has 100"),
                             HasSubstr("more than the 5000 that a step has room for (row 8 alone has 10000)"),
                             HasSubstr("batch_ids")));
}

/// Blocks whose first ones, which rooms are guessed from, have few ids, and later ones many.
TEST_F(RaggedLossesTest, RoomOfStreamedRowsGrowsAndKeepsTheBits) {
  std::string text = "x,city,tags,weights,y\n";
  EqualDraws draws(5);
  for (int r = 0; r < 2400; ++r) {
    const bool first = (r / 100) % 3 == 0;
    const std::uint64_t count = r == 160   ? 3000
                                : r == 161 ? 7000
                                : first    ? draws.below(3)
                                           : 6 + draws.below(30);
    text += std::to_string(draws.below(9)) + ",c" + std::to_string(draws.below(5)) + ",";
    for (std::uint64_t i = 0; i < count; ++i) text += (i == 0 ? "t" : "|t") + std::to_string(draws.below(30));
    text += ",," + std::to_string(draws.below(2)) + "\n";
  }
  std::ofstream(dir_.path() / "rows.csv") << text;
  const auto streamed = [&](const std::string& tags, const std::string& more) {
    proto::Job its = job(tags, false, more);
    its.mutable_input()->set_read(proto::Input::STREAM);
    its.mutable_input()->mutable_stream()->set_block_bytes(2000);
    its.mutable_optimizer()->set_kind(proto::Optimizer::ADAM);
    its.mutable_optimizer()->set_learning_rate(0.01);
    return its;
  };
  for (const char* strategy : {"", "strategy { kind: ALLREDUCE }"}) {
    const Ran roomy = run(streamed("batch_ids: 20000", strategy));
    ASSERT_EQ(roomy.losses.size(), 30U);
    for (const char* setting : {"staging { enabled: false }", "staging { num_threads: 3 capacity: 4 }",
                                "staging { auto_stage: true }", "streams { policy: AUTO }"}) {
      SCOPED_TRACE(std::string(strategy) + setting);
      testing::internal::CaptureStderr();
      const Ran grown = run(streamed("", std::string(strategy) + setting));
      const std::string log = testing::internal::GetCapturedStderr();
      EXPECT_THAT(log, HasSubstr("prepared for more: 'tags' from "));
      EXPECT_EQ(grown.losses, roomy.losses);
      ASSERT_EQ(grown.values.size(), roomy.values.size());
      for (const auto& [name, value] : roomy.values)
        EXPECT_EQ(std::memcmp(value.raw(), grown.values.at(name).raw(), value.bytes()), 0) << name;
    }
  }
}

TEST_F(RaggedLossesTest, WhatIsNotThereIsRefusedWithItsReason) {
  proto::Job parted = job("", false);
  parted.mutable_optimizer()->set_accumulate_steps(2);
  EXPECT_THAT(message_of([&] { run(parted); }), HasSubstr("ragged columns"));
  EXPECT_THAT(message_of([&] { run(job("pooling: MAX", true)); }), HasSubstr("pooling MAX has no weights"));
}

}  // namespace
}  // namespace braid::worker
