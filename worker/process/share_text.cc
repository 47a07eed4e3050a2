#include "worker/process/share_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/communicator.h"

namespace braid::worker {

void share_text(std::string& text, comm::Communicator& communicator, const WaitContext& wait, int root) {
  auto bytes = static_cast<std::int64_t>(text.size());
  communicator.broadcast(&bytes, 1, DType::Int64, root, StreamRef::host(), wait);
  if (bytes == 0) return text.clear();
  std::vector<std::int64_t> words(static_cast<std::size_t>(bytes + 7) / 8);
  std::memcpy(words.data(), text.data(), std::min(text.size(), static_cast<std::size_t>(bytes)));
  communicator.broadcast(words.data(), static_cast<std::int64_t>(words.size()), DType::Int64, root,
                         StreamRef::host(), wait);
  text.assign(reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(bytes));
}

}  // namespace braid::worker
