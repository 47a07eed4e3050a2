#include "engine/input/formats/parquet_column.h"

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/types.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "engine/input/formats/parquet_numbers.h"

namespace braid {
namespace {

using parquet::ConvertedType;
using parquet::Type;

constexpr std::int64_t kBatch = 8192;

[[noreturn]] void ends_early() { throw DataLoss("ends before its rows do"); }

/// Values as they are stored, and what they mean.
template <class DType>
class ColumnOf : public ParquetColumnReader {
 public:
  using T = typename DType::c_type;

  ColumnOf(std::shared_ptr<parquet::ColumnReader> reader, const ParquetLeaf& leaf)
      : reader_(std::move(reader)),
        typed_(static_cast<parquet::TypedColumnReader<DType>&>(*reader_)),
        column_(*reader_->descr()),
        leaf_(leaf),
        max_definition_(column_.max_definition_level()),
        unit_(parquet_unit(column_, leaf)),
        is_half_(is_parquet_half(column_)),
        is_unsigned_(column_.converted_type() == ConvertedType::UINT_8 ||
                     column_.converted_type() == ConvertedType::UINT_16 ||
                     column_.converted_type() == ConvertedType::UINT_32 ||
                     column_.converted_type() == ConvertedType::UINT_64) {}

  void skip(std::int64_t rows) {
    if (leaf_.is_list) {
      for (; rows > 0; rows -= std::min(rows, kBatch)) {
        ParquetValues passed;
        read_list(std::min(rows, kBatch), passed);
      }
    } else if (rows > 0 && typed_.Skip(rows) != rows) {
      ends_early();
    }
  }

  Floats read_floats(std::int64_t rows, float* out, std::int64_t stride) override {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
                  std::is_same_v<T, std::int64_t>) {
      if (leaf_.is_list || max_definition_ > 0 || leaf_.as_seconds || unit_.parts != 1.0 || is_unsigned_)
        return Floats::None;
      stored_.resize(static_cast<std::size_t>(std::min(rows, kBatch)));
      bool finite = true;
      for (std::int64_t done = 0; done < rows;) {
        std::int64_t count = 0;
        const std::int64_t got =
            typed_.ReadBatch(std::min(rows - done, kBatch), nullptr, nullptr, stored_.data(), &count);
        if (got == 0) ends_early();
        const T* const stored = stored_.data();
        if constexpr (std::is_floating_point_v<T>) finite = finite && are_finite(stored, count);
        for (std::int64_t i = 0; i < count; ++i, out += stride) *out = static_cast<float>(stored[i]);
        done += got;
      }
      return finite ? Floats::Finite : Floats::Some;
    }
    return Floats::None;
  }

  void read(std::int64_t rows, ParquetValues& values) override {
    values.kind = leaf_.kind;
    values.by_dictionary = false;
    values.is_unsigned = is_unsigned_;
    values.is_list = leaf_.is_list;
    values.ints.clear();
    values.floats.clear();
    values.texts.clear();
    values.ends.clear();
    values.places.clear();
    values.memory.clear();
    values.blocks.clear();
    if (leaf_.is_list)
      read_list(rows, values);
    else if (reader_->GetExposedEncoding() == parquet::ExposedEncoding::DICTIONARY)
      read_places(rows, values);
    else
      read_flat(rows, values);
  }

 private:
  void read_flat(std::int64_t rows, ParquetValues& values) {
    stored_.resize(static_cast<std::size_t>(std::min(rows, kBatch)));
    definitions_.resize(stored_.size());
    for (std::int64_t done = 0; done < rows;) {
      std::int64_t count = 0;
      const std::int64_t got =
          typed_.ReadBatch(std::min(rows - done, kBatch), max_definition_ > 0 ? definitions_.data() : nullptr,
                           nullptr, stored_.data(), &count);
      if (got == 0) ends_early();
      // Texts are the page's until the next call.
      if constexpr (std::is_same_v<T, parquet::ByteArray> || std::is_same_v<T, parquet::FixedLenByteArray>)
        if (leaf_.kind == ParquetKind::Text)
          keep_texts(std::span(stored_).first(static_cast<std::size_t>(count)));
      add_ends(got, count, done, rows, values);
      for (std::int64_t i = 0; i < count; ++i) add_value(stored_[static_cast<std::size_t>(i)], values);
      if constexpr (std::is_same_v<T, parquet::ByteArray> || std::is_same_v<T, parquet::FixedLenByteArray>)
        if (leaf_.kind == ParquetKind::Text) values.blocks.push_back(std::move(kept_));
      done += got;
    }
  }

  /// Rows without a value, where there are such.
  void add_ends(std::int64_t got, std::int64_t count, std::int64_t done, std::int64_t rows,
                ParquetValues& values) {
    if (count == got && values.ends.empty()) return;
    if (values.ends.empty()) {
      values.ends.reserve(static_cast<std::size_t>(rows));
      for (std::int64_t r = 0; r < done; ++r) values.ends.push_back(static_cast<std::uint32_t>(r + 1));
    }
    std::uint32_t end = values.ends.empty() ? 0 : values.ends.back();
    for (std::int64_t r = 0; r < got; ++r) {
      end += max_definition_ == 0 || definitions_[static_cast<std::size_t>(r)] == max_definition_ ? 1 : 0;
      values.ends.push_back(end);
    }
  }

  void read_places(std::int64_t rows, ParquetValues& values) {
    values.by_dictionary = true;
    places_.resize(static_cast<std::size_t>(std::min(rows, kBatch)));
    definitions_.resize(places_.size());
    for (std::int64_t done = 0; done < rows;) {
      std::int64_t count = 0;
      const T* dictionary = nullptr;
      std::int32_t size = 0;
      const std::int64_t got = typed_.ReadBatchWithDictionary(
          std::min(rows - done, kBatch), max_definition_ > 0 ? definitions_.data() : nullptr, nullptr,
          places_.data(), &count, &dictionary, &size);
      if (got == 0) ends_early();
      if (dictionary) {
        dictionary_ = dictionary;
        size_ = size;
      }
      add_ends(got, count, done, rows, values);
      values.places.insert(values.places.end(), places_.begin(), places_.begin() + count);
      done += got;
    }
    for (std::int32_t i = 0; i < size_; ++i) add_value(dictionary_[i], values);
    for (const std::int64_t place : values.places)
      if (place < 0 || place >= size_) throw DataLoss("has a value outside of its dictionary");
  }

  void read_list(std::int64_t rows, ParquetValues& values) {
    values.kind = leaf_.kind;
    std::uint32_t end = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      if (!more_levels()) ends_early();
      do {
        if (definitions_[level_] == max_definition_) {
          add_list_value(values);
          ++end;
        } else if (leaf_.keeps_nulls && is_null_item(definitions_[level_])) {
          values.floats.push_back(std::numeric_limits<double>::quiet_NaN());
          ++end;
        }
        ++level_;
      } while (more_levels() && repetitions_[level_] > 0);
      values.ends.push_back(end);
    }
    if (leaf_.kind == ParquetKind::Text) {
      values.texts.clear();
      for (const std::string& text : values.memory) values.texts.push_back(text);
    }
  }
  /// One level below a value: the list has it, and it is null.
  bool is_null_item(std::int16_t definition) const {
    return definition == max_definition_ - 1 && column_.schema_node()->is_optional();
  }
  void add_list_value(ParquetValues& values) {
    const T& value = stored_[value_++];
    if constexpr (std::is_same_v<T, parquet::ByteArray> || std::is_same_v<T, parquet::FixedLenByteArray>) {
      if (leaf_.kind == ParquetKind::Text) {
        values.memory.emplace_back(reinterpret_cast<const char*>(value.ptr), length_of(value));
        return;
      }
    }
    add_value(value, values);
  }

  /// Whether there is a level at level_, of this batch or the next.
  bool more_levels() {
    if (level_ < levels_) return true;
    stored_.resize(static_cast<std::size_t>(kBatch));
    definitions_.resize(stored_.size());
    repetitions_.resize(stored_.size());
    if (!reader_->HasNext()) return false;
    std::int64_t count = 0;
    levels_ = static_cast<std::size_t>(
        typed_.ReadBatch(kBatch, definitions_.data(), repetitions_.data(), stored_.data(), &count));
    level_ = value_ = 0;
    return levels_ > 0;
  }

  std::size_t length_of(const T& value) const {
    if constexpr (std::is_same_v<T, parquet::ByteArray>) return value.len;
    if constexpr (std::is_same_v<T, parquet::FixedLenByteArray>)
      return static_cast<std::size_t>(column_.type_length());
    return 0;
  }

  void keep_texts(std::span<T> values) {
    std::size_t bytes = 0;
    for (const T& value : values) bytes += length_of(value);
    kept_.clear();
    kept_.reserve(bytes);
    if constexpr (std::is_same_v<T, parquet::ByteArray> || std::is_same_v<T, parquet::FixedLenByteArray>)
      for (T& value : values) {
        const std::size_t length = length_of(value);
        const char* to = kept_.data() + kept_.size();
        kept_.insert(kept_.end(), value.ptr, value.ptr + length);
        value.ptr = reinterpret_cast<const std::uint8_t*>(to);
      }
  }

  double number_of(const T& value) const {
    if constexpr (std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t>)
      return is_unsigned_ ? static_cast<double>(static_cast<std::make_unsigned_t<T>>(value))
                          : static_cast<double>(value);
    if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(value);
    return 0;
  }

  void add_value(const T& value, ParquetValues& values) const {
    if constexpr (std::is_same_v<T, parquet::ByteArray> || std::is_same_v<T, parquet::FixedLenByteArray>) {
      const auto length = length_of(value);
      if (leaf_.kind == ParquetKind::Text)
        values.texts.emplace_back(reinterpret_cast<const char*>(value.ptr), length);
      else if (is_half_)
        values.floats.push_back(half_to_float(value.ptr));
      else
        values.floats.push_back(decimal_of_bytes(value.ptr, static_cast<std::int64_t>(length)) / unit_.parts);
    } else if constexpr (std::is_same_v<T, parquet::Int96>) {
      // Nanoseconds of the day, and the Julian day: as nanoseconds since 1970.
      constexpr std::int64_t kEpochDay = 2440588, kDay = 86'400'000'000'000;
      std::int64_t nanoseconds = 0;
      std::memcpy(&nanoseconds, &value.value[0], sizeof(nanoseconds));
      const std::int64_t since = (static_cast<std::int64_t>(value.value[2]) - kEpochDay) * kDay + nanoseconds;
      if (leaf_.as_seconds)
        values.floats.push_back(static_cast<double>(since) / unit_.parts);
      else
        values.ints.push_back(since);
    } else if (leaf_.kind == ParquetKind::Float) {
      values.floats.push_back(number_of(value) * unit_.times / unit_.parts);
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      values.ints.push_back(is_unsigned_ ? static_cast<std::int64_t>(static_cast<std::uint32_t>(value))
                                         : value);
    } else {
      values.ints.push_back(static_cast<std::int64_t>(value));
    }
  }

  // Set once.
  const std::shared_ptr<parquet::ColumnReader> reader_;
  parquet::TypedColumnReader<DType>& typed_;
  const parquet::ColumnDescriptor& column_;
  const ParquetLeaf leaf_;
  const std::int16_t max_definition_;
  const ParquetUnit unit_;
  const bool is_half_, is_unsigned_;

  struct Plain {  // std::vector<bool> has no data()
    std::unique_ptr<T[]> data_;
    std::size_t size_ = 0;
    void resize(std::size_t size) {
      if (size > size_) data_.reset(new T[size_ = size]());
    }
    T* data() { return data_.get(); }
    std::size_t size() const { return size_; }
    T* begin() { return data_.get(); }
    T* end() { return data_.get() + size_; }
    T& operator[](std::size_t i) { return data_[i]; }
  };
  Plain stored_;
  std::vector<char> kept_;  // texts of a batch
  std::vector<std::int16_t> definitions_, repetitions_;
  std::vector<std::int32_t> places_;
  const T* dictionary_ = nullptr;
  std::int32_t size_ = 0;                           // of the dictionary
  std::size_t level_ = 0, levels_ = 0, value_ = 0;  // of a list's batch
};

template <class DType>
std::unique_ptr<ParquetColumnReader> open_as(parquet::RowGroupReader& group, const ParquetLeaf& leaf,
                                             std::int64_t skip, bool dictionary) {
  std::shared_ptr<parquet::ColumnReader> reader;
  struct Passed {
    std::int64_t rows = 0;
    bool there = false;
  };
  const auto passed = std::make_shared<Passed>();
  if (skip == 0) {
    reader = dictionary ? group.ColumnWithExposeEncoding(leaf.column, parquet::ExposedEncoding::DICTIONARY)
                        : group.Column(leaf.column);
  } else {
    std::unique_ptr<parquet::PageReader> pages = group.GetColumnPageReader(leaf.column);
    // Whole pages before the first row are not unpacked. Of lists pages do not say how many rows they have.
    if (!leaf.is_list)
      pages->set_data_page_filter([passed, skip](const parquet::DataPageStats& page) {
        passed->there = passed->there || passed->rows + page.num_values > skip;
        if (!passed->there) passed->rows += page.num_values;
        return !passed->there;
      });
    reader = parquet::ColumnReader::Make(group.metadata()->schema()->Column(leaf.column), std::move(pages));
  }
  auto column = std::make_unique<ColumnOf<DType>>(reader, leaf);
  if (skip > 0) {
    if (!leaf.is_list && !reader->HasNext()) ends_early();  // the first page that is not passed over
    column->skip(skip - passed->rows);
  }
  return column;
}

}  // namespace

std::unique_ptr<ParquetColumnReader> ParquetColumnReader::open(parquet::RowGroupReader& group,
                                                               const ParquetLeaf& leaf, std::int64_t skip,
                                                               bool dictionary) {
  const bool places = dictionary && !leaf.is_list;
  switch (group.metadata()->schema()->Column(leaf.column)->physical_type()) {
    case Type::BOOLEAN:
      return open_as<parquet::BooleanType>(group, leaf, skip, false);
    case Type::INT32:
      return open_as<parquet::Int32Type>(group, leaf, skip, places);
    case Type::INT64:
      return open_as<parquet::Int64Type>(group, leaf, skip, places);
    case Type::INT96:
      return open_as<parquet::Int96Type>(group, leaf, skip, false);
    case Type::FLOAT:
      return open_as<parquet::FloatType>(group, leaf, skip, false);
    case Type::DOUBLE:
      return open_as<parquet::DoubleType>(group, leaf, skip, false);
    case Type::BYTE_ARRAY:
      return open_as<parquet::ByteArrayType>(group, leaf, skip, places);
    default:
      return open_as<parquet::FLBAType>(group, leaf, skip, places);
  }
}

}  // namespace braid
