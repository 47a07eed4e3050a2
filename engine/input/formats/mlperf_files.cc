#include "engine/input/formats/mlperf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "engine/input/files/data_file.h"

namespace braid {
namespace {

constexpr std::string_view kLabels = "_labels.npy", kDense = "_dense.npy", kIds = "_sparse_multi_hot.npz";

std::optional<std::string> stem_of(const std::filesystem::path& file) {
  const std::string& name = file.native();
  for (const std::string_view ending : {kLabels, kDense, kIds})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return std::nullopt;
}

class BinaryRows : public MlperfFile {
 public:
  explicit BinaryRows(const std::filesystem::path& path) : file_(open_data_file(path)) {
    if (file_->size() % kMlperfRowBytes != 0)
      throw DataLoss(
          fmt::format("{}: {} bytes are no whole number of rows of {} bytes: it is cut behind row {}",
                      path.string(), file_->size(), kMlperfRowBytes, file_->size() / kMlperfRowBytes));
  }
  std::int64_t rows() const override { return static_cast<std::int64_t>(file_->size() / kMlperfRowBytes); }
  void read(std::int64_t first, std::span<MlperfRow> rows) const override {
    file_->read_at(static_cast<std::uint64_t>(first * kMlperfRowBytes), std::as_writable_bytes(rows));
  }
  void advise_sequential() const override { file_->advise_sequential(); }

 private:
  const std::shared_ptr<DataFile> file_;
};

/// [rows, width] of four bytes each, somewhere in a file.
struct Array {
  std::shared_ptr<DataFile> file;
  std::uint64_t begin = 0;
  std::int64_t rows = 0, width = 1;

  template <class T>
  void read(std::int64_t first, std::int64_t count, std::vector<T>& to) const {
    to.resize(static_cast<std::size_t>(count * width));
    file->read_at(begin + static_cast<std::uint64_t>(first * width) * sizeof(T),
                  std::as_writable_bytes(std::span(to)));
  }
};

/// The array at `at`, of no more than `bytes`. Throws: InvalidArgument, DataLoss.
Array array_at(std::shared_ptr<DataFile> file, std::uint64_t at, std::uint64_t bytes, const std::string& name,
               DType dtype, std::int64_t width) {
  constexpr std::uint64_t kFront = std::uint64_t{64} << 10;
  std::vector<std::byte> front(std::min(kFront, bytes));
  file->read_at(at, front);
  const NpyLayout layout = npy_layout(front, name);
  const std::size_t rank = layout.shape.size();
  const bool fits = rank == 2 ? layout.shape[1] == width : rank == 1 && width == 1;
  if (layout.dtype != dtype || !fits || !layout.as_it_lies)
    throw InvalidArgument(fmt::format("{}: expected {} [rows, {}] as it lies in memory, got {} [{}]", name,
                                      dtype_name(dtype), width, dtype_name(layout.dtype),
                                      fmt::join(layout.shape, ", ")));
  Array array{std::move(file), at + layout.data_at, layout.shape[0], width};
  const auto needed = static_cast<std::uint64_t>(array.rows * width) * sizeof(float);
  if (bytes - layout.data_at < needed)
    throw DataLoss(
        fmt::format("{}: truncated: {} of {} bytes of elements", name, bytes - layout.data_at, needed));
  return array;
}

class ArrayRows : public MlperfFile {
 public:
  explicit ArrayRows(const std::string& stem) {
    labels_ = whole(stem + std::string(kLabels), DType::Int32, 1);
    dense_ = whole(stem + std::string(kDense), DType::Float32, kMlperfDense);
    const std::string archive = stem + std::string(kIds);
    const std::shared_ptr<DataFile> file = open_data_file(archive);
    const ZipReader zip(archive);
    for (std::size_t c = 0; c < kMlperfColumns; ++c) {
      const std::string name = std::to_string(c) + ".npy";
      const auto entry = std::ranges::find(zip.entries(), name, &ZipEntry::name);
      if (entry == zip.entries().end())
        throw InvalidArgument(fmt::format("{}: has no array '{}'", archive, name));
      ids_[c] = array_at(file, zip.stored_at(*entry), entry->bytes, fmt::format("{} '{}'", archive, name),
                         DType::Int32, kMlperfHots[c]);
      require_rows(ids_[c], fmt::format("{} '{}'", archive, name));
    }
    require_rows(dense_, stem + std::string(kDense));
  }

  std::int64_t rows() const override { return labels_.rows; }
  void read(std::int64_t first, std::span<MlperfRow> rows) const override {
    thread_local std::vector<std::int32_t> ints;
    thread_local std::vector<float> floats;
    const std::int64_t count = std::ssize(rows);
    labels_.read(first, count, ints);
    dense_.read(first, count, floats);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      rows[r].label = ints[r];
      std::copy_n(floats.data() + r * kMlperfDense, kMlperfDense, rows[r].dense);
    }
    std::int64_t at = 0;
    for (const Array& column : ids_) {
      column.read(first, count, ints);
      const std::int32_t* from = ints.data();
      for (MlperfRow& row : rows) {
        std::copy_n(from, column.width, row.ids + at);
        from += column.width;
      }
      at += column.width;
    }
  }

 private:
  static Array whole(const std::string& name, DType dtype, std::int64_t width) {
    std::shared_ptr<DataFile> file = open_data_file(name);
    const std::uint64_t bytes = file->size();
    return array_at(std::move(file), 0, bytes, name, dtype, width);
  }
  void require_rows(const Array& array, const std::string& name) const {
    if (array.rows != labels_.rows)
      throw DataLoss(fmt::format("{}: {} rows, where the labels have {}", name, array.rows, labels_.rows));
  }

  Array labels_, dense_;
  std::array<Array, kMlperfColumns> ids_;
};

}  // namespace

bool is_mlperf_array(const std::filesystem::path& file) { return stem_of(file).has_value(); }

std::vector<std::filesystem::path> one_of_each_stem(const std::vector<std::filesystem::path>& files) {
  std::set<std::string> seen;
  std::vector<std::filesystem::path> kept;
  for (const std::filesystem::path& file : files)
    if (const auto stem = stem_of(file); !stem || seen.insert(*stem).second) kept.push_back(file);
  return kept;
}

std::shared_ptr<MlperfFile> open_mlperf_file(const std::filesystem::path& file) {
  if (const auto stem = stem_of(file)) return std::make_shared<ArrayRows>(*stem);
  return std::make_shared<BinaryRows>(file);
}

}  // namespace braid
