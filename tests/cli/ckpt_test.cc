// `braid ckpt` on checkpoints of real runs: compared, exported to NumPy and TensorFlow, imported, and resumed
// from.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "base/formats/npy.h"
#include "base/formats/tensor_bundle.h"
#include "base/formats/zip.h"
#include "tests/integration/checkpoints.h"

namespace braid::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CkptToolsTest : public IntegrationTest {
 protected:
  std::string tool(std::vector<std::string> arguments, int expected = 0) {
    const std::string shown = ::testing::PrintToString(arguments);
    const auto process = run("tool", std::move(arguments));
    EXPECT_EQ(process->wait({}), expected) << shown << process->err();
    return process->out() + process->err();
  }
  /// The regression, whose model has momentum slots, up to `steps`.
  Job job(const std::string& root, int steps, int every = 10) const {
    return linear_regression()
        .with({"steps=" + std::to_string(steps), "optimizer.kind=MOMENTUM"})
        .with(checkpoints_in(directory() / root, every));
  }
  static std::string step(const std::string& root, int step) {
    char name[32];
    std::snprintf(name, sizeof(name), "/step-%012d", step);
    return root + name;
  }
};

std::map<std::string, std::vector<float>> floats_in(const Path& npz) {
  std::map<std::string, std::vector<float>> values;
  const ZipReader zip(npz);
  for (const ZipEntry& entry : zip.entries()) {
    const NpyArray array = parse_npy(zip.read(entry), entry.name);
    auto& floats = values[entry.name.substr(0, entry.name.size() - 4)];
    floats.resize(array.data.size() / sizeof(float));
    std::memcpy(floats.data(), array.data.data(), array.data.size());
  }
  return values;
}

TEST_F(CkptToolsTest, DifferencesAreToldAndMeasured) {
  train("run", job("run-ckpt", 20));
  const std::string root = path("run-ckpt");
  EXPECT_THAT(tool({"ckpt", "diff", step(root, 20), root}), HasSubstr("0 different"));
  EXPECT_THAT(tool({"ckpt", "diff", step(root, 10), step(root, 20)}, 1),
              AllOf(HasSubstr("elements differ, by at most"), HasSubstr("0 the same to the bit")));
  EXPECT_THAT(tool({"ckpt", "diff", "--tolerance", "1e6", step(root, 10), step(root, 20)}),
              HasSubstr("0 different"));
  EXPECT_THAT(tool({"ckpt", "show", "--verify", step(root, 20)}), HasSubstr("every block matches its CRC"));
  EXPECT_THAT(tool({"ckpt", "show", root}), HasSubstr(step(root, 20)));  // the newest
}

TEST_F(CkptToolsTest, DifferencesOfEveryTypeAreMeasuredByTheirValues) {
  const auto bundle = [&](const std::string& name, DType dtype, const auto& values) {
    TensorBundleWriter out(path(name));
    const std::int64_t shape[]{static_cast<std::int64_t>(values.size())};
    out.add("x", dtype, shape, std::as_bytes(std::span(values)));
    out.finish();
  };
  const auto expect = [&](DType dtype, const auto& a, const auto& b, const char* says) {
    bundle("a", dtype, a);
    bundle("b", dtype, b);
    EXPECT_THAT(tool({"ckpt", "diff", path("a"), path("b")}, 1), HasSubstr(says));
  };
  using std::vector;
  expect(DType::Float16, vector<std::uint16_t>{0x3C00, 0x3C00}, vector<std::uint16_t>{0x4200, 0x3C00},
         "1 elements differ, by at most 2");
  expect(DType::BFloat16, vector<std::uint16_t>{0x3F80}, vector<std::uint16_t>{0xBF80}, "by at most 2");
  expect(DType::Int8, vector<std::int8_t>{-128}, vector<std::int8_t>{127}, "by at most 255");
  expect(DType::UInt32, vector<std::uint32_t>{0}, vector<std::uint32_t>{4000000000U}, "by at most 4e+09");
  expect(DType::Int64, vector<std::int64_t>{std::int64_t{1} << 60},
         vector<std::int64_t>{(std::int64_t{1} << 60) + 1}, "1 elements differ, by at most 1");
}

TEST_F(CkptToolsTest, ValuesOfOtherProgramsAreVerifiedToo) {
  TensorBundleWriter out(path("model"));
  const std::vector<float> values(100, 1.5F);
  const std::int64_t shape[]{100};
  out.add("w", DType::Float32, shape, std::as_bytes(std::span(values)));
  out.finish();
  EXPECT_THAT(tool({"ckpt", "show", "--verify", path("model")}), HasSubstr("1 arrays, each matches its CRC"));
  std::fstream data(path("model.data-00000-of-00001"), std::ios::in | std::ios::out | std::ios::binary);
  data.seekp(50);
  data.put('x');
  data.close();
  EXPECT_THAT(tool({"ckpt", "show", "--verify", path("model")}, 2), HasSubstr("do not match their CRC"));
}

TEST_F(CkptToolsTest, WhatIsExportedIsTheCheckpointAndComesBack) {
  train("run", job("run-ckpt", 20));
  const std::string root = path("run-ckpt");
  tool({"ckpt", "export", root, "--out", path("vars.npz")});
  tool({"ckpt", "export", root, "--slots", "--out", path("all.npz")});
  tool({"ckpt", "export", root, "--slots", "--out", path("model"), "--format", "tensorflow"});
  const Values values = values_of_newest(directory() / "run-ckpt");
  EXPECT_EQ(floats_in(path("all.npz")), values);
  for (const auto& [name, floats] : floats_in(path("vars.npz"))) {
    EXPECT_THAT(name, Not(::testing::EndsWith("/momentum")));
    EXPECT_EQ(floats, values.at(name));
  }
  EXPECT_EQ(TensorBundleReader(path("model")).entries().size(), values.size());
  for (const char* source : {"all.npz", "model"}) {
    const std::string back = path(std::string(source) + "-back");
    tool({"ckpt", "import", path(source), "--step", "20", "--out", back});
    EXPECT_THAT(tool({"ckpt", "diff", root, back}), HasSubstr("0 different"));
  }
}

TEST_F(CkptToolsTest, AnImportedCheckpointIsResumedWithTheSameBits) {
  const std::vector<float> base = train("base", job("base-ckpt", 30));
  tool({"ckpt", "export", step(path("base-ckpt"), 20), "--slots", "--out", path("model"), "--format",
        "tensorflow"});
  tool({"ckpt", "import", path("model"), "--step", "20", "--out", path("imported")});
  Cluster resumed(directory() / "resumed", job("imported", 30), {}, {"--resume"});
  resumed.expect_success();
  EXPECT_EQ(losses_of(resumed.steps_file(0), 20), std::vector<float>(base.begin() + 20, base.end()));
  EXPECT_EQ(values_of_newest(directory() / "imported"), values_of_newest(directory() / "base-ckpt"));
}

TEST_F(CkptToolsTest, CheckpointsOfServersAreExportedWithShapesWhicheverTheirNumber) {
  std::string exported[2];
  for (const int servers : {1, 2}) {
    const std::string root = "ckpt-" + std::to_string(servers);
    const Job ps =
        wide_deep().with({"steps=10", "strategy.kind=PS"}).with(checkpoints_in(directory() / root, 10));
    Cluster cluster(directory() / ("job-" + std::to_string(servers)), ps, {1, servers});
    cluster.expect_success();
    exported[servers - 1] = path(root);
    tool({"ckpt", "export", path(root), "--out", path(root + ".npz")});
  }
  EXPECT_THAT(tool({"ckpt", "diff", exported[0], exported[1]}), HasSubstr("0 different"));
  const std::string shown = tool({"ckpt", "show", exported[1] + ".npz"});
  EXPECT_THAT(shown, AllOf(HasSubstr("@keys"), HasSubstr("@rows"),
                           ::testing::ContainsRegex("kernel +float32 +\\[[0-9]+, [0-9]+\\]")));
}

TEST_F(CkptToolsTest, TensorFlowNamesAndStepsAreTaken) {
  const Path golden = Path(BRAID_SOURCE_DIR) / "tests/base/formats/golden";
  const std::string objects =
      tool({"ckpt", "import", (golden / "object.ckpt.index").string(), "--out", path("objects")});
  EXPECT_THAT(objects,
              AllOf(HasSubstr("layer/kernel  "), HasSubstr("layer/kernel/m "), HasSubstr("layer/kernel/v "),
                    HasSubstr("step 1"), Not(HasSubstr("_CHECKPOINTABLE"))));
  const std::string some =
      tool({"ckpt", "import", (golden / "graph.ckpt").string(), "--out", path("some"), "--only", "net/",
            "--rename", "^dense/=net/dense/", "--rename", "^many/variable_1$=net/one", "--step", "7"});
  EXPECT_THAT(some,
              AllOf(HasSubstr("net/dense/kernel"), HasSubstr("net/one"), HasSubstr("2 arrays, step 7")));
}

TEST_F(CkptToolsTest, SlotsOfKerasAreThoseOfItsVariablesAndIteratorsAreLeftOut) {
  const Path golden = Path(BRAID_SOURCE_DIR) / "tests/base/formats/golden";
  const std::string imported =
      tool({"ckpt", "import", (golden / "keras.ckpt").string(), "--out", path("keras")});
  EXPECT_THAT(imported,
              AllOf(HasSubstr("dense/kernel  "), HasSubstr("dense/kernel/m "), HasSubstr("dense/bias/v "),
                    HasSubstr("is skipped: type variant is not supported")));
  tool({"ckpt", "export", (golden / "keras.ckpt").string(), "--out", path("keras.npz")});
  const std::string keras_3 =
      tool({"ckpt", "import", (golden / "keras3.ckpt").string(), "--out", path("keras3")});
  EXPECT_THAT(keras_3, AllOf(HasSubstr("net/dense/kernel  "), HasSubstr("net/dense/kernel/m "),
                             HasSubstr("net/dense/bias/v "), Not(HasSubstr("velocity"))));
}

TEST_F(CkptToolsTest, DirectoriesOfTensorFlowAreFollowed) {
  const Path golden = Path(BRAID_SOURCE_DIR) / "tests/base/formats/golden";
  const auto copy = [&](const Path& prefix) {
    std::filesystem::create_directories(prefix.parent_path());
    for (const char* ending : {".index", ".data-00000-of-00001"})
      std::filesystem::copy_file(golden / (std::string("graph.ckpt") + ending), prefix.string() + ending);
  };
  copy(path("saver/model.ckpt-120"));
  std::ofstream(path("saver/checkpoint")) << "model_checkpoint_path: \"/moved/away/model.ckpt-120\"\n";
  EXPECT_THAT(tool({"ckpt", "import", path("saver"), "--out", path("a")}), HasSubstr("48 arrays, step 120"));
  EXPECT_THAT(tool({"ckpt", "show", "--verify", path("saver")}),
              HasSubstr("48 arrays, each matches its CRC"));
  copy(path("saved/variables/variables"));
  EXPECT_THAT(tool({"ckpt", "diff", path("saved"), path("saver")}), HasSubstr("48 the same to the bit"));
  std::ofstream(path("saver/checkpoint")) << "nothing\n";
  EXPECT_THAT(tool({"ckpt", "show", path("saver/none")}, 2), HasSubstr("none' is neither"));
  EXPECT_THAT(tool({"ckpt", "import", path("saver"), "--out", path("b")}, 2),
              HasSubstr("names no model_checkpoint_path"));
}

TEST_F(CkptToolsTest, WhatCannotBeReadOrWrittenIsRefused) {
  const Path golden = Path(BRAID_SOURCE_DIR) / "tests/base/formats/golden";
  const std::string npz = (golden / "stored.npz").string();
  EXPECT_THAT(tool({"ckpt", "export", path("none"), "--out", path("a.npz")}, 2),
              HasSubstr("none' is neither"));
  EXPECT_THAT(tool({"ckpt", "export", npz, "--out", path("a")}, 2), HasSubstr("does not end in .npz"));
  EXPECT_THAT(tool({"ckpt", "export", npz, "--out", path("none/a.npz")}, 2), HasSubstr("--out '"));
  EXPECT_THAT(tool({"ckpt", "import", npz, "--out", path("a"), "--rename", "(=x"}, 2),
              HasSubstr("--rename (=x"));
  EXPECT_THAT(tool({"ckpt", "import", npz, "--out", path("a"), "--rename", "^.*$=x"}, 2),
              HasSubstr("would both become 'x'"));
  EXPECT_THAT(tool({"ckpt", "import", npz, "--out", path("a"), "--only", "zz"}, 2),
              HasSubstr("nothing to import"));
  tool({"ckpt", "import", npz, "--out", path("a")});
  EXPECT_THAT(tool({"ckpt", "import", npz, "--out", path("a")}, 2), HasSubstr("is there already; --step"));
  std::filesystem::create_directory(path("empty"));
  EXPECT_THAT(tool({"ckpt", "diff", path("empty"), npz}, 2),
              HasSubstr("has no MANIFEST and holds no complete checkpoint"));
}

}  // namespace
}  // namespace braid::integration
