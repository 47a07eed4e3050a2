#include "tests/worker/strategies/model_rows.h"

#include "engine/input/formats/readers.h"

namespace braid::worker {

std::shared_ptr<const Table> made_images(int rows, std::int64_t side) {
  Tensor image(DType::Float32, Shape{rows, side, side, 1}), label(DType::Int64, Shape{rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t p = 0; p < side * side; ++p)
      image.data<float>()[static_cast<std::size_t>(i * side * side + p)] =
          static_cast<float>((i * 31 + p * (i % 4 + 1) * 7) % 17) / 17;
    label.data<std::int64_t>()[static_cast<std::size_t>(i)] = i % 4;
  }
  return table_of_arrays({{"image", image}, {"label", label}});
}

std::shared_ptr<const Table> made_sequences(int rows) {
  constexpr std::int64_t kLength = 6;
  Tensor tokens(DType::Int64, Shape{rows, kLength}), label(DType::Int64, Shape{rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t t = 0; t < kLength; ++t)
      tokens.data<std::int64_t>()[static_cast<std::size_t>(i * kLength + t)] = (i * 5 + t * t) % 12;
    label.data<std::int64_t>()[static_cast<std::size_t>(i)] = (i * 5) % 3;
  }
  return table_of_arrays({{"tokens", tokens}, {"label", label}});
}

std::shared_ptr<const Table> made_histories(int rows) {
  constexpr std::int64_t kLength = 4;
  Tensor history(DType::Int64, Shape{rows, kLength}), item(DType::Int64, Shape{rows}),
      sparse(DType::Int64, Shape{rows, 2}), dense(DType::Float32, Shape{rows, 2}),
      label(DType::Float32, Shape{rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::int64_t t = 0; t < kLength; ++t)
      history.data<std::int64_t>()[static_cast<std::size_t>(i * kLength + t)] = (i + t * 3) % 9;
    item.data<std::int64_t>()[at] = i % 9;
    for (std::size_t c = 0; c < 2; ++c) {
      sparse.data<std::int64_t>()[2 * at + c] = (i * (3 + static_cast<std::int64_t>(c))) % 7;
      dense.data<float>()[2 * at + c] = static_cast<float>((i + static_cast<std::int64_t>(c)) % 5) / 5;
    }
    label.data<float>()[at] = i % 3 == 0 ? 1.0F : 0.0F;
  }
  return table_of_arrays(
      {{"history", history}, {"item", item}, {"sparse", sparse}, {"dense", dense}, {"label", label}});
}

}  // namespace braid::worker
