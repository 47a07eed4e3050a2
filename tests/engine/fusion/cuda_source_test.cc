// Sources that are generated for random regions: NVRTC, which needs no GPU, takes all of them. Skipped where
// it is not there.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "engine/compile/compile.h"
#include "engine/device/nvrtc.h"
#include "engine/fusion/cuda_source.h"
#include "engine/program/program.h"
#include "tests/engine/fusion/random_regions.h"
#include "tests/engine/testing/random_graph.h"

namespace braid::testing {
namespace {

std::map<std::string, fusion::CudaSource> sources_of(std::uint64_t seed) {
  const RandomRegions random = make_random_regions(seed);
  CompileOptions options;
  options.fusion = true;
  std::map<std::string, fusion::CudaSource> sources;
  const auto program = compile(random.graph, random.request(), options);
  for (const ProgramOp& op : program->ops) {
    if (op.op != "braid.Fused") continue;
    const auto text = program->graph.node(op.node).attrs.require<std::string>("program");
    const fusion::CudaSource source = fusion::cuda_source(fusion::Region::parse(text));
    sources.emplace(source.text, source);
  }
  return sources;
}

TEST(CudaSourceTest, CompilesForRandomRegions) {
  if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << Nvrtc::get().missing();
  int compiled = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(tries("BRAID_RANDOM_SOURCES", 12, 4));
       ++seed)
    for (const auto& [source, made] : sources_of(seed)) {
      try {
        EXPECT_FALSE(Nvrtc::get().compile(source, "sm_90", made.options()).empty());
        ++compiled;
      } catch (const std::exception& error) {
        FAIL() << "seed " << seed << ": " << error.what() << "\n" << source.substr(source.find("extern"));
      }
    }
  EXPECT_GT(compiled, 10);
}

TEST(CudaSourceTest, CompilesForSumsOfColumns) {
  if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << Nvrtc::get().missing();
  for (const std::int64_t columns : {2, 33, 250, 1030, 8192}) {
    const std::int64_t rows = columns == 33 ? 6000 : columns == 1030 ? 900 : 64;
    const std::string n = std::to_string(rows * columns), c = std::to_string(columns),
                      r = std::to_string(rows);
    const fusion::Region region = fusion::Region::parse(
        "region " + r + " " + c + "\nin float32 full " + n + ":1\nin float64 full " + n +
        ":1\napply float32 full Neg 0\nreduce float32 max 2\ncolumns float32 2\napply float64 full Neg 1\n" +
        "columns float64 5\nout 2 " + r + "," + c + "\nout 3 " + r + "\nout 4 " + c + "\nout 6 " + c + "\n");
    const fusion::CudaSource source = fusion::cuda_source(region);
    EXPECT_GT(source.column_blocks, 0);
    EXPECT_GE(source.scratch_bytes, static_cast<std::size_t>(columns) * 12);
    try {
      EXPECT_FALSE(Nvrtc::get().compile(source.text, "sm_90", source.options()).empty());
    } catch (const std::exception& error) {
      FAIL() << columns << ": " << error.what() << "\n" << source.text.substr(source.text.find("extern"));
    }
  }
}

TEST(CudaSourceTest, CompilesForScans) {
  if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << Nvrtc::get().missing();
  for (const std::int64_t length : {3, 48, 50}) {
    const std::string rows = std::to_string(length * 40), n = std::to_string(length * 40 * 24),
                      l = std::to_string(length);
    const fusion::Region region = fusion::Region::parse(
        "region " + rows + " 24\nin float32 full " + n + ":1\nin float32 full " + rows +
        ":0,24:1\nin float32 row " + rows + ":1\napply float32 full Mul 0 1\nscan float32 sum 3 " + l +
        " reverse\napply float32 full Mul 4 2\n" + "scan float32 prod 5 " + l +
        " reverse exclusive\napply float32 row Neg 2\nscan float32 max 5 " + l + " last\nout 6 " + rows +
        ",24\nout 7 " + rows + "\nout 8 40,24\n");
    const fusion::CudaSource source = fusion::cuda_source(region);
    EXPECT_EQ(source.blocks, (40 * 24 + 127) / 128) << "a thread a column of a piece";
    try {
      EXPECT_FALSE(Nvrtc::get().compile(source.text, "sm_90", source.options()).empty());
    } catch (const std::exception& error) {
      FAIL() << length << ": " << error.what() << "\n" << source.text.substr(source.text.find("extern"));
    }
  }
}

TEST(CudaSourceTest, IsRefusedWithTheCompilersMessage) {
  if (!Nvrtc::get().missing().empty()) GTEST_SKIP() << Nvrtc::get().missing();
  try {
    Nvrtc::get().compile("__global__ void f() { nonsense; }", "sm_90", fusion::CudaSource().options());
    FAIL() << "it compiled";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("nonsense"), std::string::npos) << error.what();
  }
}

TEST(CudaSourceTest, DependsOnTheRegionAlone) {
  const fusion::Region region = fusion::Region::parse(
      "region 10 300\nin float32 full 3000:1\nreduce float32 max 0\napply float32 full Sub 0 1\nout 2 "
      "10,300\n");
  EXPECT_EQ(fusion::cuda_source(region).text, fusion::cuda_source(region).text);
  EXPECT_EQ(fusion::cuda_source(region).blocks, 10) << "a block a row";
}

}  // namespace
}  // namespace braid::testing
