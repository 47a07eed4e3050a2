// The further ids of a row of MLPerf's DLRM-v2: of a column's first id they are a row of a fixed table of
// random ids, the one that the reference draws (numpy.random.seed(0), then randint(0, rows, (rows, ids - 1))
// for one column after the other). Tables are files, 24 GB for all of the benchmark, which are mapped into
// memory: the kernel keeps of them what is used. Thread rule: make_bag_tables() one thread; BagTable any
// number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace braid {

/// numpy.random.RandomState.randint(0, rows) for rows below 2^32.
std::uint32_t numpy_randint(std::mt19937& engine, std::uint32_t rows);

/// Of column c a table of rows[c] x (ids[c] - 1), in `directory`; those that an earlier call has finished
/// there are kept. Result: their files. `made`: called for each column. Throws: Unavailable (disk), DataLoss.
std::vector<std::filesystem::path> make_bag_tables(const std::filesystem::path& directory,
                                                   std::span<const std::int64_t> rows,
                                                   std::span<const std::int64_t> ids,
                                                   const std::function<void(std::size_t)>& made);

class BagTable {
 public:
  /// Throws: InvalidArgument, DataLoss (another size).
  BagTable(const std::filesystem::path& file, std::int64_t rows, std::int64_t width);
  ~BagTable();
  BagTable(BagTable&& other) noexcept;
  BagTable& operator=(BagTable&&) = delete;

  std::span<const std::int32_t> row(std::int64_t r) const {
    return {data_ + r * width_, static_cast<std::size_t>(width_)};
  }

 private:
  const std::int32_t* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t width_ = 0;
};

}  // namespace braid
