#include <cstring>

#include "base/error.h"
#include "engine/input/idx_array.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

IdxArray read_bytes(const std::filesystem::path& file, std::size_t rank) {
  IdxArray array = read_idx_array(file);
  if (array.dtype != DType::UInt8 || array.dims.size() != rank)
    throw DataLoss("'" + file.string() + "': not an IDX file of unsigned bytes with rank " +
                   std::to_string(rank) + " (byte 0: wrong magic number)");
  return array;
}

}  // namespace

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels) {
  const IdxArray image = read_bytes(images, 3);
  const IdxArray label = read_bytes(labels, 1);
  if (image.dims[0] != label.dims[0])
    throw DataLoss("'" + images.string() + "' has " + std::to_string(image.dims[0]) + " images, '" +
                   labels.string() + "' has " + std::to_string(label.dims[0]) + " labels");
  auto table = std::make_shared<Table>();
  table->rows = image.dims[0];
  Tensor pixels(DType::UInt8, Shape{image.dims[0], image.dims[1], image.dims[2], 1});
  std::memcpy(pixels.raw(), image.bytes.data() + image.offset, pixels.bytes());
  Tensor classes(DType::Int64, Shape{label.dims[0]});
  auto out = classes.data<std::int64_t>();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<unsigned char>(label.bytes[label.offset + i]);
  table->columns.push_back({"image", std::move(pixels), 1.0F / 255.0F});
  table->columns.push_back({"label", std::move(classes), 1.0F});
  return table;
}

}  // namespace braid
