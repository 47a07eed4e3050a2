// T1: nested structures go through a stage and come out as they were; and blocks of packed batches.
#include "engine/staging/nested.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/staging/block_pool.h"
#include "tests/engine/staging/stage_test_util.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

Tensor ints(std::vector<std::int64_t> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return Tensor::from<std::int64_t>({n}, values);
}

/// Another one for each ticket: the sizes of strings and of sparse and ragged parts change.
Nested<Tensor> features(std::uint64_t ticket) {
  const auto t = static_cast<std::int64_t>(ticket);
  const std::vector<std::string> words{std::string(ticket % 7, 'x'), "", "\u00e4 word\n",
                                       std::string("\0z", 2)};
  std::vector<std::int64_t> values, indices, splits{0};
  for (std::int64_t i = 0; i < t % 5; ++i) {
    values.push_back(t + i);
    indices.insert(indices.end(), {i, 2 * i});
    splits.push_back(i + 1);
  }
  const Shape pairs{t % 5, 2};
  using N = Nested<Tensor>;
  return N::dict(
      {{"words", Tensor::strings({2, 2}, words)},
       {"absent", N()},
       {"list", N::list({Tensor::scalar<float>(0.5F * static_cast<float>(t)), N(), N::list({ints({t})})})},
       {"sparse", N::sparse(Tensor::from<std::int64_t>(pairs, indices), ints(values), ints({8, 16}))},
       {"ragged", N::ragged(ints(values), ints(splits))},
       {"empty", Tensor::from<float>({0, 3}, {})}});
}

TEST(NestedTest, T1_StructuresWithStringsSparseRaggedAndAbsentEntriesComeOutOfAStageAsTheyWere) {
  const auto pool = BlockPool::make();
  Stage stage({.name = "s", .capacity = 3, .num_threads = 3}, [&](std::uint64_t ticket) {
    random_delay(ticket, 200);
    return pack_batch(features(ticket).flatten(), *pool);
  });
  stage.start();
  const std::string structure = features(0).to_string();
  EXPECT_EQ(structure,
            "{absent: none, empty: *, list: [*, none, [*]], ragged: ragged, sparse: sparse, words: *}");
  for (std::uint64_t t = 0; t < 100; ++t) {
    const Batch batch = stage.take(soon());
    const Nested<Tensor> want = features(t);
    const Nested<Tensor> got = want.with_leaves<Tensor>(batch.tensors);
    EXPECT_EQ(got.to_string(), structure);
    const auto want_leaves = want.flatten(), got_leaves = got.flatten();
    ASSERT_EQ(got_leaves.size(), 9U);
    for (std::size_t i = 0; i < want_leaves.size(); ++i)
      ASSERT_TRUE(same(got_leaves[i], want_leaves[i])) << "leaf " << i << " of record " << t;
    EXPECT_TRUE(got["absent"].absent());
    EXPECT_EQ(got["words"].leaf().string_at(3), std::string_view("\0z", 2));
    EXPECT_EQ(got["list"][2][0].leaf().data<std::int64_t>()[0], static_cast<std::int64_t>(t));
  }
  EXPECT_LE(pool->blocks_made(), 60U) << "blocks are used again; they grow a few times";
}

TEST(NestedTest, MisuseIsNamed) {
  using N = Nested<int>;
  const N dict = N::dict({{"b", N::list({1, 2})}, {"a", 3}});
  EXPECT_EQ(dict.flatten(), (std::vector<int>{3, 1, 2})) << "by key";
  EXPECT_THAT(message_of<InvalidArgument>([&] { dict["c"]; }),
              HasSubstr("no entry 'c' in {a: *, b: [*, *]}"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { dict["b"][2]; }), HasSubstr("no entry 2 in [*, *]"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { dict["b"].leaf(); }), HasSubstr("not a tensor but [*, *]"));
  const std::vector<int> two{1, 2};
  EXPECT_THAT(message_of<InvalidArgument>([&] { dict.with_leaves<int>(two); }),
              HasSubstr("takes 3 tensors, got 2"));
}

TEST(BlockPoolTest, ABatchIsOneBlockAndTheBlockComesBack) {
  std::size_t allocations = 0;
  const auto pool = BlockPool::make([&](std::size_t bytes) {
    ++allocations;
    return allocate_aligned(bytes);
  });
  for (int i = 0; i < 10; ++i) {
    const Batch batch = pack_batch({ints({1, 2, 3}), Tensor(), ints({4})}, *pool);
    EXPECT_EQ(batch.block_bytes, 2 * BlockPool::kAlignment);
    const auto* begin = static_cast<const std::byte*>(batch.block.get());
    EXPECT_EQ(batch.tensors[0].raw(), begin);
    EXPECT_FALSE(batch.tensors[1].defined());
    EXPECT_EQ(batch.tensors[2].raw(), begin + BlockPool::kAlignment);
    EXPECT_EQ(batch.tensors[2].data<std::int64_t>()[0], 4);
  }
  EXPECT_EQ(allocations, 1U);
  const Tensor there(DType::Int64, {3}, ints({1, 2, 3}).memory(), Domain::Device);
  const Batch mixed = pack_batch({there, ints({4})}, *pool);
  EXPECT_EQ(mixed.tensors[0].raw(), there.raw()) << "what is on a device stays there";
  EXPECT_EQ(mixed.tensors[0].domain(), Domain::Device);
  EXPECT_EQ(mixed.block_bytes, BlockPool::kAlignment);
  const Batch held = pack_batch({ints({1})}, *pool);
  const Batch other = pack_batch({ints({1})}, *pool);
  EXPECT_NE(held.block, other.block);
  Tensor outlives;
  {
    outlives = pack_batch({ints({7})}, *pool).tensors[0];
    const Batch next = pack_batch({ints({8})}, *pool);
    EXPECT_NE(next.tensors[0].raw(), outlives.raw()) << "a tensor keeps its block";
  }
  EXPECT_EQ(outlives.data<std::int64_t>()[0], 7);
}

}  // namespace
}  // namespace braid::testing
