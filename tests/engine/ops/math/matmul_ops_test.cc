// Matrix products against three nested loops in float64, and from several threads at once.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

struct Size {
  std::int64_t m, n, k;
};

// Vectors, remainders of every block size, sizes that are cut into blocks of rows and of columns.
const Size kSizes[] = {{1, 1, 1},     {1, 7, 33},    {9, 1, 130},    {17, 19, 23},    {64, 64, 64},
                       {1, 1500, 70}, {300, 1, 513}, {257, 65, 300}, {60, 1100, 300}, {1030, 70, 200}};

Tensor stored(std::int64_t rows, std::int64_t columns, bool transposed, std::uint64_t seed) {
  return random_f64(transposed ? Shape{columns, rows} : Shape{rows, columns}, seed);
}

std::vector<double> naive_product(const Tensor& a, const Tensor& b, const Size& s, bool ta, bool tb) {
  const auto x = a.data<double>(), y = b.data<double>();
  std::vector<double> c(static_cast<std::size_t>(s.m * s.n));
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t p = 0; p < s.k; ++p)
      for (std::int64_t j = 0; j < s.n; ++j)
        c[static_cast<std::size_t>(i * s.n + j)] +=
            x[static_cast<std::size_t>(ta ? p * s.m + i : i * s.k + p)] *
            y[static_cast<std::size_t>(tb ? j * s.k + p : p * s.n + j)];
  return c;
}

TEST(MatMulOps, EqualsNestedLoopsForAllTransposes) {
  for (const Size& s : kSizes)
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Tensor a = stored(s.m, s.k, ta, 1), b = stored(s.k, s.n, tb, 2);
        const AttrMap attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
        const auto expected = naive_product(a, b, s, ta, tb);
        const auto wide = to_doubles(run_op("MatMul", {a, b}, attrs)[0]);
        const auto narrow = to_doubles(
            run_op("MatMul", {converted(a, DType::Float32), converted(b, DType::Float32)}, attrs)[0]);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(wide[i], expected[i], 1e-12 * static_cast<double>(s.k))
              << s.m << "x" << s.n << "x" << s.k;
          ASSERT_NEAR(narrow[i], expected[i], 2e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6)
              << s.m << "x" << s.n << "x" << s.k << " " << ta << tb;
        }
      }
}

TEST(MatMulOps, BatchEntriesAreMatMulsOfTheirMatrices) {
  const Tensor a = converted(random_f64({4, 1, 5, 7}, 1), DType::Float32);
  const Tensor b = converted(random_f64({3, 7, 6}, 2), DType::Float32);
  const Tensor c = run_op("BatchMatMulV2", {a, b})[0];
  ASSERT_EQ(c.shape(), (Shape{4, 3, 5, 6}));
  const auto entry = [](const Tensor& t, std::int64_t index, Shape shape) {
    Tensor part(DType::Float32, shape);
    const auto from = t.data<float>().subspan(static_cast<std::size_t>(index * part.elements()));
    std::copy_n(from.begin(), part.elements(), part.data<float>().begin());
    return part;
  };
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      const auto expected = to_doubles(run_op("MatMul", {entry(a, i, {5, 7}), entry(b, j, {7, 6})})[0]);
      const auto actual = to_doubles(entry(c, i * 3 + j, {5, 6}));
      for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(actual[k], expected[k], 1e-6);
    }
}

TEST(MatMulOps, ProductsOnManyThreadsAtOnceKeepTheirBits) {
  const Tensor a = converted(random_f64({300, 200}, 1), DType::Float32);
  const Tensor b = converted(random_f64({200, 260}, 2), DType::Float32);
  const auto expected = to_doubles(run_op("MatMul", {a, b})[0]);
  std::vector<std::vector<double>> results(4);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results)
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) result = to_doubles(run_op("MatMul", {a, b})[0]);
      });
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(MatMulOps, InnerSizesThatDifferAreRefused) {
  EXPECT_EQ(refusal("MatMul", {f32({1, 2}, {1, 2}), f32({1, 2}, {1, 2})}),
            "[MatMul] node 'op': inner sizes differ: [1, 2] times [1, 2]");
}

std::string einsum_refusal(const char* equation, std::vector<Tensor> inputs) {
  return refusal("Einsum", std::move(inputs), {{"equation", equation}});
}

TEST(EinsumTest, AttentionEqualsItsDefinition) {
  constexpr std::int64_t kB = 2, kH = 3, kQ = 4, kK = 5, kD = 6;
  const Tensor q = random_f64({kB, kQ, kH, kD}, 1), k = random_f64({kB, kK, kH, kD}, 2);
  const Tensor y = run_op("Einsum", {q, k}, {{"equation", "bqhd,bkhd->bhqk"}})[0];
  ASSERT_EQ(y.shape(), (Shape{kB, kH, kQ, kK}));
  std::size_t at = 0;
  for (std::int64_t b = 0; b < kB; ++b)
    for (std::int64_t h = 0; h < kH; ++h)
      for (std::int64_t i = 0; i < kQ; ++i)
        for (std::int64_t j = 0; j < kK; ++j) {
          double sum = 0;
          for (std::int64_t d = 0; d < kD; ++d)
            sum += q.data<double>()[static_cast<std::size_t>(((b * kQ + i) * kH + h) * kD + d)] *
                   k.data<double>()[static_cast<std::size_t>(((b * kK + j) * kH + h) * kD + d)];
          ASSERT_NEAR(y.data<double>()[at++], sum, 1e-12);
        }
}

TEST(EinsumTest, ImplicitOutputsAndSumsOfOneOperand) {
  const Tensor x = i32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(to_doubles(run_op("Einsum", {x}, {{"equation", "ba"}})[0]),
            (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(to_doubles(run_op("Einsum", {x}, {{"equation", "ij->i"}})[0]), (std::vector<double>{6, 15}));
  EXPECT_EQ(to_doubles(run_op("Einsum", {x, x}, {{"equation", "ij,ij"}})[0]), (std::vector<double>{91}));
}

TEST(EinsumTest, DiagonalsAndWhatOneOperandAloneSums) {
  const Tensor x = i32({2, 2}, {1, 2, 3, 4}), y = i32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(to_doubles(run_op("Einsum", {x}, {{"equation", "ii->i"}})[0]), (std::vector<double>{1, 4}));
  EXPECT_EQ(to_doubles(run_op("Einsum", {x}, {{"equation", "ii"}})[0]), (std::vector<double>{5}));
  EXPECT_EQ(to_doubles(run_op("Einsum", {x, y}, {{"equation", "ij,kl->ik"}})[0]),
            (std::vector<double>{18, 45, 42, 105}));
  EXPECT_EQ(to_doubles(run_op("Einsum", {x, y}, {{"equation", "ii,il->l"}})[0]),
            (std::vector<double>{17, 22, 27}));
}

TEST(EinsumTest, WhatIsNoEquationIsRefused) {
  const Tensor x = random_f64({2, 2}, 1);
  EXPECT_EQ(einsum_refusal("ij->ii", {x}), "[Einsum] node 'op': label 'i' is twice in the output 'ii'");
  EXPECT_EQ(einsum_refusal("ii->i", {random_f64({2, 3}, 1)}), "[Einsum] node 'op': 'i' has sizes 2 and 3");
  EXPECT_EQ(einsum_refusal("ijk,jk->i", {x, x}),
            "[Einsum] node 'op': 'ijk' does not fit an operand of rank 2");
  EXPECT_EQ(einsum_refusal("ij->i", {x, x}),
            "[Einsum] node 'op': equation 'ij->i' has 1 operands, the node 2");
}

}  // namespace
}  // namespace braid::testing
