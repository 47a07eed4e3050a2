#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "engine/input/readers.h"

namespace braid {

std::string read_text_file(const std::filesystem::path& file) {
  // gzread passes plain files through unchanged.
  std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  if (!in) throw InvalidArgument("cannot open '" + file.string() + "': " + std::strerror(errno));
  gzbuffer(in.get(), 1U << 18);
  std::string text;
  std::error_code ignored;
  if (auto size = std::filesystem::file_size(file, ignored); !ignored)
    text.reserve(static_cast<std::size_t>(size));
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  for (;;) {
    const std::size_t used = text.size();
    text.resize(used + kChunk);
    const int got = gzread(in.get(), text.data() + used, kChunk);
    if (got < 0) {
      int code = 0;
      const char* reason = gzerror(in.get(), &code);
      if (code == Z_ERRNO)
        throw InvalidArgument("cannot read '" + file.string() + "': " + std::strerror(errno));
      throw DataLoss("'" + file.string() + "': damaged gzip data after " + std::to_string(used) +
                     " bytes: " + reason);
    }
    text.resize(used + static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  int code = Z_OK;
  const char* reason = gzerror(in.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END)
    throw DataLoss("'" + file.string() + "': gzip data ends early after " + std::to_string(text.size()) +
                   " bytes: " + reason);
  return text;
}

}  // namespace braid
