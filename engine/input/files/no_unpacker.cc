// Stand-in where the build lacks zstd or lz4.
#include "base/error.h"
#include "engine/input/files/unpacker.h"

namespace braid {

std::unique_ptr<Unpacker> make_zstd_unpacker() {
  throw InvalidArgument("this build unpacks no zstd: install libzstd-dev and liblz4-dev, and build again");
}
std::unique_ptr<Unpacker> make_lz4_unpacker() {
  throw InvalidArgument("this build unpacks no lz4: install libzstd-dev and liblz4-dev, and build again");
}

}  // namespace braid
