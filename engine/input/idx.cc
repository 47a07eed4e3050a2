// IDX: big-endian magic 0x00 0x00 <type> <rank>, then one 32-bit size a dimension, then the elements. Format:
// LeCun, Cortes, Burges, "The MNIST database".
#include <cstring>

#include "base/error.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

struct Idx {
  std::vector<std::int64_t> dims;
  std::string bytes;
  std::size_t offset = 0;
};

Idx parse(const std::filesystem::path& file, int rank) {
  Idx idx{{}, read_text_file(file), 0};
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(idx.bytes[i]); };
  idx.offset = 4 + 4 * static_cast<std::size_t>(rank);
  if (idx.bytes.size() < idx.offset)
    throw DataLoss("'" + file.string() + "': " + std::to_string(idx.bytes.size()) +
                   " bytes are too few for an IDX header of rank " + std::to_string(rank));
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != 0x08 || byte(3) != rank)
    throw DataLoss("'" + file.string() + "': not an IDX file of unsigned bytes with rank " +
                   std::to_string(rank) + " (byte 0: wrong magic number)");
  std::int64_t total = 1;
  for (int d = 0; d < rank; ++d) {
    const std::size_t at = 4 + 4 * static_cast<std::size_t>(d);
    const std::int64_t size =
        (std::int64_t{byte(at)} << 24) | (byte(at + 1) << 16) | (byte(at + 2) << 8) | byte(at + 3);
    idx.dims.push_back(size);
    total *= size;
  }
  if (static_cast<std::int64_t>(idx.bytes.size() - idx.offset) != total)
    throw DataLoss("'" + file.string() + "': the header promises " + std::to_string(total) +
                   " elements, the file has " + std::to_string(idx.bytes.size() - idx.offset));
  return idx;
}

}  // namespace

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels) {
  const Idx image = parse(images, 3);
  const Idx label = parse(labels, 1);
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
