// The parts of a batch that a library does not take at once.
#include "engine/ops/nn/batch_parts.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/ir/tensor.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

TEST(BatchPartsTest, PartsFollowEachOtherAndCoverTheBatchOnce) {
  for (const std::int64_t batch : {1, 2, 3, 17, 64, 4096, 4097})
    for (const std::int64_t images : {std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, batch, batch + 3}) {
      std::int64_t next = 0;
      for (const BatchPart& part : batch_parts(batch, images)) {
        EXPECT_EQ(part.first, next);
        EXPECT_GT(part.images, 0);
        EXPECT_LE(part.images, images);
        next += part.images;
        EXPECT_TRUE(part.images == images || next == batch) << "only the last one has fewer";
      }
      EXPECT_EQ(next, batch);
    }
}

TEST(BatchPartsTest, WhatWorksAtOnceIsNotCut) {
  int asked = 0;
  EXPECT_EQ(images_a_part(4096, 1 << 30, [&](std::int64_t) { return ++asked > 0; }), 4096);
  EXPECT_EQ(asked, 1);
}

TEST(BatchPartsTest, TheBatchIsHalvedUntilALibraryTakesIt) {
  const auto at_most = [](std::int64_t limit) {
    return [limit](std::int64_t images) { return images <= limit; };
  };
  EXPECT_EQ(images_a_part(4096, 4096, at_most(1500)), 1024);
  EXPECT_EQ(images_a_part(4096, 4096, at_most(1)), 1);
  EXPECT_EQ(images_a_part(17, 17, at_most(8)), 5) << "17, 9, 5";
  EXPECT_EQ(batch_parts(17, 5).back().images, 2);
}

TEST(BatchPartsTest, NoPartIsLargerThanTensorsMayBe) {
  std::set<std::int64_t> asked;
  EXPECT_EQ(images_a_part(4096, 1000,
                          [&](std::int64_t images) {
                            asked.insert(images);
                            return true;
                          }),
            512);
  EXPECT_EQ(asked, (std::set<std::int64_t>{512})) << "a library is not asked for what cannot be described";
  EXPECT_EQ(images_a_part(4, 0, [](std::int64_t) { return true; }), 0) << "not even one image";
}

TEST(BatchPartsTest, TheLastSmallerPartMustWorkToo) {
  // 10 = 5 + 5 and 3 + 3 + 3 + 1 are out; 2 + 2 + 2 + 2 + 2 is in.
  EXPECT_EQ(images_a_part(10, 5, [](std::int64_t images) { return images == 3 || images == 2; }), 2);
}

TEST(BatchPartsTest, WhatNoLibraryTakesIsSaidAfterOneImage) {
  std::vector<std::int64_t> asked;
  EXPECT_EQ(images_a_part(6, 100,
                          [&](std::int64_t images) {
                            asked.push_back(images);
                            return false;
                          }),
            0);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{6, 3, 2, 1}));
}

Tensor pattern(const Shape& shape, float scale) {
  Tensor t(DType::Float32, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.data<float>()[static_cast<std::size_t>(i)] = scale * static_cast<float>((i * 37) % 101 - 50);
  return t;
}

/// Images [first, first + images) of a tensor.
Tensor images_of(const Tensor& all, const BatchPart& part) {
  std::vector<std::int64_t> dims(all.shape().dims().begin(), all.shape().dims().end());
  const std::int64_t step = all.elements() / dims[0];
  dims[0] = part.images;
  Tensor t(DType::Float32, Shape(dims));
  std::copy_n(all.data<float>().begin() + part.first * step, t.elements(), t.data<float>().begin());
  return t;
}

TEST(BatchPartsTest, AFiltersGradientIsTheSumOfItsPartsAndImagesStandSideBySide) {
  const Tensor x = pattern({7, 6, 6, 3}, 0.01F), dy = pattern({7, 6, 6, 4}, 0.02F),
               filter = pattern({3, 3, 3, 4}, 0.1F);
  const Tensor sizes = Tensor::from<std::int32_t>(Shape{4}, std::vector<std::int32_t>{3, 3, 3, 4});
  const AttrMap attrs{{"padding", "SAME"}};
  const Tensor whole = run_op("Conv2DBackpropFilter", {x, sizes, dy}, attrs)[0];
  const Tensor forward = run_op("Conv2D", {x, filter}, attrs)[0];
  std::vector<float> sum(static_cast<std::size_t>(whole.elements()));
  for (const BatchPart& part : batch_parts(7, 3)) {
    const Tensor its =
        run_op("Conv2DBackpropFilter", {images_of(x, part), sizes, images_of(dy, part)}, attrs)[0];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += its.data<float>()[i];
    const Tensor out = run_op("Conv2D", {images_of(x, part), filter}, attrs)[0];
    const Tensor expected = images_of(forward, part);
    for (std::int64_t i = 0; i < out.elements(); ++i)
      ASSERT_NEAR(out.data<float>()[static_cast<std::size_t>(i)],
                  expected.data<float>()[static_cast<std::size_t>(i)], 1e-5);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], whole.data<float>()[i], 1e-4);
}

}  // namespace
}  // namespace braid::testing
