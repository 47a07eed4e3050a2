// What a newcomer types first: `braid init`, `doctor`, `completion`, and the manual pages.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/files.h"
#include "tests/cli/tool_test.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class SetupToolsTest : public ToolTest {
 protected:
  /// A table of clicks: age (numeric), amount (heavy tail, some missing), city (categorical), user_id
  /// (differs in every row), plan (numbers that name things), constant, clicked (0 or 1, by age and city).
  std::string clicks(const std::string& name, char separator = ',', int rows = 600) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    std::string text = "age,amount,city,user_id,plan_code,constant,clicked\n";
    for (int i = 0; i < rows; ++i) {
      const int age = 40 + static_cast<int>(12 * normal(random)), city = i * 7919 % 5;
      const bool clicked = age + 10 * city + 5 * normal(random) > 62;
      text += std::to_string(age) + "," + (i % 10 == 3 ? "?" : std::to_string(std::exp(3 * normal(random)))) +
              ",city" + std::to_string(city) + ",u" + std::to_string(1000 + i) + "," +
              std::to_string(100 + i % 7) + ",x," + (clicked ? "1" : "0") + "\n";
    }
    std::replace(text.begin(), text.end(), ',', separator);
    return write(name, text);
  }
};

TEST_F(SetupToolsTest, AFirstLineWithTheLabelsNameIsAHeader) {
  std::string text = "city,plan,answer\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("city {},{},{}\n", i % 5, i % 3 ? "gold" : "silver", i % 2 ? "yes" : "no");
  const std::string job = path("texts.pbtxt");
  expect_good({"init", write("texts.csv", text), "--label", "answer", "--out", job});
  EXPECT_THAT(read_file(job),
              AllOf(HasSubstr("header: true"), HasSubstr("name: \"answer\" kind: LABEL"),
                    HasSubstr("name: \"city\" kind: CATEGORICAL buckets: 10 }  # 5 different")));
}

TEST_F(SetupToolsTest, InitWritesAJobThatTrains) {
  const std::string data = clicks("clicks.csv"), job = path("clicks.pbtxt");
  const std::string said = expect_good({"init", data, "--out", job});
  const std::string text = read_file(job);
  EXPECT_THAT(text, ContainsRegex("name: \"age\" kind: NUMERIC shift: (39|40|41)[.0-9]* scale: 1[12]"));
  EXPECT_THAT(text, ContainsRegex("name: \"amount\" kind: NUMERIC log1p: true shift: [0-9.]+ scale: [0-9.]+ "
                                  "missing: [0-9.]+ }  # .*missing 60 times"));
  EXPECT_THAT(text, AllOf(HasSubstr("name: \"city\" kind: CATEGORICAL buckets: 10 }  # 5 different values"),
                          HasSubstr("name: \"user_id\" kind: SKIP }  # differs in nearly every row"),
                          HasSubstr("name: \"plan_code\" kind: CATEGORICAL buckets: 20 }"),
                          HasSubstr("name: \"constant\" kind: SKIP }  # one value only"),
                          HasSubstr("name: \"clicked\" kind: LABEL }")));
  EXPECT_THAT(text, HasSubstr("csv { separator: \",\" header: true }"));
  EXPECT_THAT(said, HasSubstr("braid train --job " + job + " --data-dir " + directory().string()));

  const auto process = run("train", {"train", "--job", job, "--data-dir", directory().string(), "--set",
                                     "steps=20", "--set", "checkpoint.directory=" + path("run")});
  ASSERT_EQ(process->wait(kLongRun), 0) << process->err();
  EXPECT_EQ(result_of(*process).steps, 20);
}

TEST_F(SetupToolsTest, NumbersThatNameSomethingAreCategories) {
  std::string text = "user,user_age,seller,adults,bought\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{},{},{},{},{}\n", i % 60, 20 + i % 30, i % 9, i % 5, i % 3 == 0 ? 1 : 0);
  const std::string columns = expect_good({"data", "show", "--columns", write("shop.csv", text)});
  EXPECT_THAT(columns, AllOf(HasSubstr("name: \"user\" kind: CATEGORICAL buckets: 200"),
                             HasSubstr("name: \"user_age\" kind: NUMERIC"),
                             HasSubstr("name: \"seller\" kind: CATEGORICAL buckets: 20"),
                             HasSubstr("name: \"adults\" kind: NUMERIC")));
}

/// Other programs write what is missing as a word, and a column of prices would be left out for it.
TEST_F(SetupToolsTest, NumbersAmongOtherTextsAreTold) {
  std::string text = "price,grade,bought\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{},{},{}\n", i % 4 == 0 ? "NA" : fmt::format("{}.5", i), i % 8 == 0 ? "A" : "B",
                        i % 3 == 0 ? 1 : 0);
  const std::string columns = expect_good({"data", "show", "--columns", write("shop.csv", text)});
  EXPECT_THAT(columns, HasSubstr("numbers in 75 %: with empty fields or ? for the others it is a NUMERIC"));
  EXPECT_THAT(columns.substr(columns.find("grade")), Not(HasSubstr("numbers in")));
}

TEST_F(SetupToolsTest, FieldsThatAreListsAreRaggedColumns) {
  std::string text = "tags,genres,comment,pair,price,y\n";
  for (int i = 0; i < 200; ++i) {
    std::string tags = "t" + std::to_string(i % 17), genres = "g" + std::to_string(i % 5);
    for (int k = 0; k < i % 4; ++k) tags += "|t" + std::to_string((i + 3 * k) % 17);
    if (i % 2 == 0) genres += ";g" + std::to_string(i % 3);
    text += fmt::format("{},{},{};{} said {},{},{:.2f},{}\n", i % 20 == 0 ? "" : tags, genres, i * 7, i,
                        i * i, i == 5 ? "a|b" : "c" + std::to_string(i % 4), 0.37 * (i % 90), i % 2);
  }
  const std::string data = write("lists.csv", text), job = path("lists.pbtxt");
  const std::string columns = expect_good({"data", "show", "--columns", data});
  EXPECT_THAT(columns, AllOf(HasSubstr("name: \"tags\" kind: CATEGORICAL buckets: 50 ragged: true }  # lists "
                                       "of 17 different items, missing in 5 %\n"),
                             HasSubstr("name: \"genres\" kind: CATEGORICAL buckets: 10 ragged: true "
                                       "list_separator: \";\" }  # lists of 5 different items"),
                             HasSubstr("name: \"comment\" kind: SKIP }"),
                             HasSubstr("name: \"pair\" kind: CATEGORICAL buckets: 10 }")));
  expect_good({"init", data, "--out", job});
  const auto process = run("train", {"train", "--job", job, "--data-dir", directory().string(), "--set",
                                     "steps=3", "--set", "checkpoint.directory=" + path("run")});
  EXPECT_EQ(process->wait(kLongRun), 0) << process->err();
}

TEST_F(SetupToolsTest, ShowPrintsTheSameColumns) {
  const std::string data = clicks("clicks.tsv", '\t');
  expect_good({"init", data, "--out", path("clicks.pbtxt")});
  const std::string job = read_file(path("clicks.pbtxt"));
  EXPECT_THAT(job, HasSubstr("csv { separator: \"\\t\" header: true }"));
  std::istringstream columns(expect_good({"data", "show", "--columns", data}));
  int lines = 0;
  for (std::string line; std::getline(columns, line); ++lines)
    EXPECT_THAT(job, HasSubstr("  " + line + "\n"));
  EXPECT_EQ(lines, 7);
}

TEST_F(SetupToolsTest, ShowPrintsMeanDeviationAndDifferentValues) {
  const std::string csv = write("a.csv", "n,w\n1,a\n2,b\n3,b\n6,b\n");
  EXPECT_THAT(expect_good({"data", "show", csv}),
              AllOf(ContainsRegex("feature +type +present +per record +distinct +min +max +mean +std"),
                    ContainsRegex("\nn +int64 +4 +1 +4 +1 +6 +3 +1\\.870"),
                    ContainsRegex("\nw +bytes +4 +1 +2 "), Not(HasSubstr("sum"))));
  const Json json = Json::parse(expect_good({"data", "show", "--json", csv}));
  EXPECT_EQ(json["features"]["n"]["mean"], 3);
  EXPECT_EQ(json["features"]["w"]["distinct"], 2);
}

TEST_F(SetupToolsTest, ALabelOfTwoTextsCountsTheRarerOne) {
  std::string text = "x,c,income\n";
  for (int i = 0; i < 60; ++i)
    text += std::to_string(i) + ",k" + std::to_string(i % 3) + (i % 4 == 0 ? ",>50K\n" : ",<=50K\n");
  const std::string data = write("adult.csv", text);
  EXPECT_THAT(
      expect_good({"data", "show", "--columns", data}),
      HasSubstr(
          "name: \"income\" kind: LABEL positive: \">50K\" }  # in 25 % of the rows; the other value is "
          "\"<=50K\""));
  expect_good({"init", data, "--label", "c=k1", "--out", path("other.pbtxt")});
  EXPECT_THAT(read_file(path("other.pbtxt")), HasSubstr("name: \"c\" kind: LABEL positive: \"k1\""));
  // Rarer or not, "no" is not what is meant.
  std::string answers = "x,c,y\n";
  for (int r = 0; r < 60; ++r)
    answers += std::to_string(r) + ",k" + std::to_string(r % 3) + (r % 4 == 0 ? ",No\n" : ",Yes\n");
  expect_good({"init", write("answers.csv", answers), "--label", "y", "--out", path("answers.pbtxt")});
  EXPECT_THAT(read_file(path("answers.pbtxt")), HasSubstr("name: \"y\" kind: LABEL positive: \"Yes\""));
}

TEST_F(SetupToolsTest, ATableOfNumbersHasOneColumnAsACategory) {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 80; ++i)
    text += std::to_string(i * 0.37) + "," + std::to_string(i % 4) + "," + std::to_string(i % 2) + "\n";
  const std::string data = write("numbers.csv", text), job = path("numbers.pbtxt");
  expect_good({"init", data, "--out", job, "--model", "deepfm"});
  EXPECT_THAT(read_file(job),
              HasSubstr("name: \"b\" kind: CATEGORICAL buckets: 10 }  # 4 different numbers"));
  const auto process = run("train", {"train", "--job", job, "--data-dir", directory().string(), "--set",
                                     "steps=3", "--set", "checkpoint.directory=" + path("run")});
  EXPECT_EQ(process->wait(kLongRun), 0) << process->err();
}

TEST_F(SetupToolsTest, ATableOfCategoriesAloneTrains) {
  std::string text = "city,plan,clicked\n";
  for (int i = 0; i < 400; ++i)
    text += "c" + std::to_string(i * 7919 % 5) + ",p" + std::to_string(i % 7) + "," +
            std::to_string(i * 7919 % 5 < 2 ? 1 : 0) + "\n";
  const std::string data = write("categories.csv", text);
  for (const std::string model : {"wide_deep", "deepfm", "dcn_v2", "dlrm"}) {
    SCOPED_TRACE(model);
    const std::string job = path(model + ".pbtxt");
    expect_good({"init", data, "--out", job, "--model", model});
    const auto process = run(model, {"train", "--job", job, "--data-dir", directory().string(), "--set",
                                     "steps=5", "--set", "checkpoint.directory=" + path("run_" + model)});
    ASSERT_EQ(process->wait(kLongRun), 0) << process->err();
    EXPECT_EQ(result_of(*process).steps, 5);
  }
}

TEST_F(SetupToolsTest, InitKnowsTheCriteoLayout) {
  expect_good({"data", "criteo", "--rows", "300", "--test-rows", "100", "--out", path("criteo")});
  expect_good(
      {"init", path("criteo/train.tsv"), "--test", path("criteo/test.tsv"), "--out", path("criteo.pbtxt")});
  const auto process = run("train", {"train", "--job", path("criteo.pbtxt"), "--data-dir", path("criteo"),
                                     "--set", "steps=3", "--set", "checkpoint.directory=" + path("run")});
  EXPECT_EQ(process->wait(kLongRun), 0) << process->err();
  EXPECT_THAT(read_file(path("criteo.pbtxt")),
              AllOf(HasSubstr("format: CRITEO"), HasSubstr("name: \"dlrm\""),
                    HasSubstr("test_files: \"test.tsv\""), Not(HasSubstr("columns {"))));
}

TEST_F(SetupToolsTest, WhatCannotBecomeAJobIsRefused) {
  const std::string data = clicks("clicks.csv"), job = path("clicks.pbtxt");
  expect_refused({"init"}, HasSubstr("name a data file: braid init FILE"));
  expect_refused({"init", path("none.csv")}, HasSubstr("No such file"));
  expect_refused({"init", data, "--out", job, "--label", "clacked"},
                 HasSubstr("there is no column 'clacked' with values; there are age, amount, city"));
  expect_refused(
      {"init", data, "--out", job, "--label", "city"},
      HasSubstr("column 'city' has 5 different values, and models of tables predict one of two: --label "
                "city=VALUE"));
  expect_refused({"init", data, "--out", job, "--label", "city=Rome"},
                 HasSubstr("no value of column 'city' begins with 'Rome'"));
  expect_refused({"init", data, "--out", job, "--model", "resnet18"},
                 HasSubstr("for tables there are wide_deep"));
  EXPECT_FALSE(std::filesystem::exists(job)) << "nothing is half done";
  expect_good({"init", data, "--out", job});
  expect_refused({"init", data, "--out", job}, HasSubstr("exists; --force replaces it"));
  expect_good({"init", data, "--out", job, "--force"});
  expect_refused({"init", write("text.txt", "some words\nand more\n"), "--out", path("t.pbtxt")},
                 HasSubstr("is plain text, not a table"));
}

TEST_F(SetupToolsTest, DoctorSaysWhatIsThere) {
  const Json report = Json::parse(expect_good({"doctor", "--json", "--directory", directory().string()}));
  EXPECT_TRUE(report["ok"]);
  EXPECT_THAT(report["for"], ::testing::ElementsAre("train"));
  std::map<std::string, Json> checks;
  for (const Json& check : report["checks"]) checks[check["name"]] = check;
  for (const char* name : {"cores", "memory", "cgroup", "disk", "open files", "/dev/shm", "ports", "GPU",
                           "driver", "NCCL", "MPI", "compiler"})
    EXPECT_TRUE(checks.contains(name)) << name;
  EXPECT_EQ(checks["ports"]["state"], "ok");
  EXPECT_THAT(checks["disk"]["found"].get<std::string>(), HasSubstr(directory().string()));
}

TEST_F(SetupToolsTest, DoctorFailsWhenWhatIsAskedForIsMissing) {
  const std::string doctor = "PATH=/nonexistent; exec \"$0\" doctor ";
  Process absent({"/bin/bash", "-c", doctor, BRAID_BINARY}, {}, directory() / "absent");
  EXPECT_EQ(absent.exit_code(), 0) << "training needs no mpirun: " << absent.out();
  EXPECT_THAT(absent.out(), ContainsRegex("absent +MPI +no mpirun on PATH"));
  Process missing({"/bin/bash", "-c", doctor + "--for train,mpi", BRAID_BINARY}, {}, directory() / "missing");
  EXPECT_EQ(missing.exit_code(), 1);
  EXPECT_THAT(missing.out(), ContainsRegex("MISSING +MPI +no mpirun on PATH\n +-> apt install openmpi-bin"));
  expect_refused({"doctor", "--for", "tpu"}, HasSubstr("tpu"));
}

TEST_F(SetupToolsTest, DoctorSeesLimits) {
  Process limited({"bash", "-c", "ulimit -n 100; \"$0\" doctor", BRAID_BINARY}, {}, directory() / "limits");
  EXPECT_EQ(limited.exit_code(), 0);
  EXPECT_THAT(limited.out(), ContainsRegex("low +open files +100; each connection takes one\n +-> "));
}

class CompletionTest : public ToolTest {
 protected:
  /// What bash offers for the last of these words.
  std::string offers(const std::string& words) {
    const std::string script = path("braid.bash");
    if (!std::filesystem::exists(script)) write("braid.bash", expect_good({"completion", "bash"}));
    Process bash(
        {"bash", "-c",
         "source " + script + "; COMP_WORDS=(" + words +
             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _braid 2>/dev/null; echo \"${COMPREPLY[*]}\""},
        {}, directory() / "bash");
    EXPECT_EQ(bash.exit_code(), 0) << bash.err();
    return bash.out();
  }
};

TEST_F(CompletionTest, BashCompletesCommandsOptionsAndValues) {
  EXPECT_EQ(offers("braid tr"), "train trace\n");
  EXPECT_THAT(offers("braid graph ''"), AllOf(HasSubstr("check"), HasSubstr("plan"), HasSubstr("run")));
  EXPECT_EQ(offers("braid train --print-j"), "--print-job\n");
  EXPECT_EQ(offers("braid train --device c"), "cuda cpu\n");
  EXPECT_EQ(offers("braid data criteo --format ''"), "tsv tfrecord\n");
  EXPECT_EQ(offers("braid completion --"), "--help\n") << "man is for the build and not offered";
  EXPECT_EQ(offers("braid ''").find("man "), std::string::npos);
  EXPECT_EQ(offers("braid launch --workers 2 -- train --resu"), "--resume\n")
      << "what is launched is completed, too";
}

TEST_F(CompletionTest, ZshHasTheSameCommands) {
  const std::string script = expect_good({"completion", "zsh"});
  EXPECT_THAT(script, AllOf(::testing::StartsWith("#compdef braid\n"), HasSubstr("'train:"),
                            HasSubstr("'--print-job:")));
  Process check({"bash", "-c", "command -v zsh >/dev/null || exit 0; zsh -n \"$0\"", write("_braid", script)},
                {}, directory() / "zsh");
  EXPECT_EQ(check.exit_code(), 0) << check.err();
}

TEST_F(SetupToolsTest, ManualPagesSayWhatHelpSays) {
  expect_good({"man", "--out", path("man")});
  EXPECT_TRUE(std::filesystem::exists(path("man/braid-init.1")));
  EXPECT_FALSE(std::filesystem::exists(path("man/braid-man.1")));
  const std::string page = read_file(path("man/braid-train.1"));
  EXPECT_THAT(page,
              AllOf(HasSubstr(".SH NAME\nbraid\\-train \\- Train a model"), HasSubstr("\\fB\\-\\-resume\\fR"),
                    HasSubstr("cuda|cpu|auto"), HasSubstr(".SH EXIT STATUS")));
  Process check(
      {"bash", "-c",
       "command -v man >/dev/null || exit 0; man --warnings -E UTF-8 -l -Tutf8 -Z \"$0\" 2>&1 >/dev/null",
       path("man/braid-graph.1")},
      {}, directory() / "groff");
  EXPECT_EQ(check.exit_code(), 0);
  EXPECT_EQ(check.out(), "");
}

TEST_F(SetupToolsTest, VersionIsPrinted) {
  EXPECT_THAT(expect_good({"--version"}), ContainsRegex("^braid [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
}

}  // namespace
}  // namespace braid::integration
