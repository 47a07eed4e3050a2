#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "engine/input/formats/idx_array.h"
#include "engine/input/formats/readers.h"

namespace braid {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const IdxArray& array, const char* expected) {
  throw DataLoss("'" + file.string() + "': " + std::string(dtype_name(array.dtype)) + " of rank " +
                 std::to_string(array.dims.size()) + " where " + expected +
                 " are expected (byte 0: wrong magic number)");
}

/// One row an item; those of two dimensions get one channel. Bytes stay bytes, scaled when they are read.
TableColumn images_of(const IdxArray& array) {
  std::vector<std::int64_t> dims = array.dims;
  if (dims.size() == 3) dims.push_back(1);
  if (array.dtype == DType::UInt8) {
    Tensor pixels(DType::UInt8, Shape(std::move(dims)));
    std::memcpy(pixels.raw(), array.bytes.data() + array.offset, pixels.bytes());
    return {"image", std::move(pixels), 1.0F / 255.0F};
  }
  Tensor values(DType::Float32, Shape(std::move(dims)));
  auto out = values.data<float>();
  FeatureSet item;
  std::size_t at = 0;
  for (std::int64_t i = 0; i < array.dims[0]; ++i) {
    item.clear();
    array.add_item(i, "image", item);
    const Feature& feature = item.features()[0];
    if (feature.kind == FeatureKind::Float)
      for (const float value : item.floats(feature)) out[at++] = value;
    else
      for (const std::int64_t value : item.ints(feature)) out[at++] = static_cast<float>(value);
  }
  return {"image", std::move(values), 1.0F};
}

TableColumn labels_of(const IdxArray& array) {
  Tensor classes(DType::Int64, Shape{array.dims[0]});
  auto out = classes.data<std::int64_t>();
  FeatureSet item;
  for (std::size_t i = 0; i < out.size(); ++i) {
    item.clear();
    array.add_item(static_cast<std::int64_t>(i), "label", item);
    out[i] = item.ints(item.features()[0])[0];
  }
  return {"label", std::move(classes), 1.0F};
}

std::shared_ptr<Table> read(const std::filesystem::path& images,
                            const std::optional<std::filesystem::path>& labels) {
  const IdxArray image = read_idx_array(images);
  if (image.dims.size() < 2) refuse(images, image, "images");
  auto table = std::make_shared<Table>();
  table->rows = image.dims[0];
  table->columns.push_back(images_of(image));
  if (!labels) {
    table->columns.push_back({"label", Tensor::zeros(DType::Int64, Shape{table->rows}), 1.0F});
    return table;
  }
  const IdxArray label = read_idx_array(*labels);
  if (label.dims.size() != 1 || is_floating(label.dtype))
    refuse(*labels, label, "labels, a list of integers,");
  if (image.dims[0] != label.dims[0])
    throw DataLoss("'" + images.string() + "' has " + std::to_string(image.dims[0]) + " images, '" +
                   labels->string() + "' has " + std::to_string(label.dims[0]) + " labels");
  table->columns.push_back(labels_of(label));
  return table;
}

/// Parts of what is in memory as a whole: a file of images has its sizes in front.
class IdxStream : public RowStream {
 public:
  explicit IdxStream(std::shared_ptr<const Table> table) : table_(std::move(table)) {}

  std::shared_ptr<Table> next(std::int64_t most) override {
    auto part = std::make_shared<Table>();
    part->rows = std::min(most, table_->rows - at_);
    for (const TableColumn& column : table_->columns) {
      Shape shape = column.data.shape();
      shape.set_dim(0, part->rows);
      Tensor data(column.data.dtype(), shape);
      const std::size_t row =
          table_->rows == 0 ? 0 : column.data.bytes() / static_cast<std::size_t>(table_->rows);
      if (data.bytes() > 0)
        std::memcpy(data.raw(), column.data.raw() + static_cast<std::size_t>(at_) * row, data.bytes());
      part->columns.push_back({column.name, std::move(data), column.scale});
    }
    at_ += part->rows;
    return part;
  }

 private:
  const std::shared_ptr<const Table> table_;
  std::int64_t at_ = 0;
};

}  // namespace

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels) {
  return read(images, labels);
}

std::unique_ptr<RowStream> stream_idx(const std::filesystem::path& images,
                                      const std::optional<std::filesystem::path>& labels) {
  return std::make_unique<IdxStream>(read(images, labels));
}

}  // namespace braid
