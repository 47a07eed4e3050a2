#include "engine/input/convert/bag_tables.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace braid {

std::uint32_t numpy_randint(std::mt19937& engine, std::uint32_t rows) {
  if (rows <= 1) return 0;  // takes no random number
  const std::uint32_t mask = std::bit_ceil(rows) - 1;
  std::uint32_t value = 0;
  do value = static_cast<std::uint32_t>(engine()) & mask;
  while (value >= rows);
  return value;
}

namespace {

constexpr std::uint32_t kSeed = 0;

/// One column's table; where `engine` is afterwards becomes a file beside it, for who goes on behind it.
void make_table(const std::filesystem::path& file, std::int64_t rows, std::int64_t width,
                std::mt19937& engine) {
  const std::filesystem::path part = file.string() + ".part";
  File out = File::create(part);
  constexpr std::int64_t kIds = std::int64_t{1} << 20;
  std::vector<std::int32_t> ids;
  for (std::int64_t left = rows * width; left > 0; left -= std::ssize(ids)) {
    ids.resize(static_cast<std::size_t>(std::min(left, kIds)));
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(numpy_randint(engine, static_cast<std::uint32_t>(rows)));
    out.write(std::as_bytes(std::span(ids)));
  }
  out.close();
  std::ostringstream state;
  state << engine;
  write_file_atomically(file.string() + ".state", state.str());
  rename_path(part, file);
}

}  // namespace

std::vector<std::filesystem::path> make_bag_tables(const std::filesystem::path& directory,
                                                   std::span<const std::int64_t> rows,
                                                   std::span<const std::int64_t> ids,
                                                   const std::function<void(std::size_t)>& made) {
  std::vector<std::filesystem::path> files;
  std::mt19937 engine(kSeed);
  bool kept = true;  // all before this one
  for (std::size_t c = 0; c < rows.size(); ++c) {
    const std::filesystem::path file = directory / fmt::format("bags_{:02}", c);
    std::error_code missing;
    const std::uintmax_t size = std::filesystem::file_size(file, missing);
    kept = kept && !missing &&
           size == static_cast<std::uintmax_t>(rows[c] * (ids[c] - 1)) * sizeof(std::int32_t);
    if (kept) {
      std::istringstream state(read_file(file.string() + ".state"));
      state >> engine;
      if (!state)
        throw DataLoss("'" + file.string() + ".state' is damaged; remove it and '" + file.string() + "'");
    } else {
      make_table(file, rows[c], ids[c] - 1, engine);
    }
    files.push_back(file);
    if (made) made(c);
  }
  return files;
}

BagTable::BagTable(const std::filesystem::path& file, std::int64_t rows, std::int64_t width)
    : bytes_(static_cast<std::size_t>(rows * width) * sizeof(std::int32_t)), width_(width) {
  const File opened = File::open(file);  // which says what is wrong
  if (opened.size() != bytes_)
    throw DataLoss(fmt::format("'{}': {} bytes, expected {}", file.string(), opened.size(), bytes_));
  if (bytes_ == 0) return;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  void* const at =
      descriptor < 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  const int problem = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (at == MAP_FAILED)
    throw Unavailable(fmt::format("cannot map '{}': {}", file.string(), std::strerror(problem)));
  data_ = static_cast<const std::int32_t*>(at);
}

BagTable::BagTable(BagTable&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), width_(other.width_) {}

BagTable::~BagTable() {
  if (data_) ::munmap(const_cast<std::int32_t*>(data_), bytes_);
}

}  // namespace braid
