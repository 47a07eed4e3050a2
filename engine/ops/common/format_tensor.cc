#include "engine/ops/common/format_tensor.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/dispatch.h"

namespace braid {

std::string format_elements(DType dtype, const void* memory, std::int64_t elements, std::int64_t summarize) {
  const std::int64_t shown = summarize < 0 ? elements : std::min(elements, summarize);
  std::string text;
  const auto add = [&](const std::string& element) {
    if (!text.empty()) text += ' ';
    text += element;
  };
  if (dtype == DType::String) {
    const auto* offsets = static_cast<const std::int64_t*>(memory);
    const char* bytes = reinterpret_cast<const char*>(offsets + elements + 1);
    for (std::int64_t i = 0; i < shown; ++i)
      add(std::string(bytes + offsets[i], static_cast<std::size_t>(offsets[i + 1] - offsets[i])));
  } else {
    with_number_or_bool("Print", dtype, [&]<class T>() {
      for (std::int64_t i = 0; i < shown; ++i) {
        const T element = static_cast<const T*>(memory)[i];
        add(std::is_same_v<T, bool> ? fmt::format("{:d}", static_cast<int>(element))
                                    : fmt::format("{}", element));
      }
    });
  }
  return shown < elements ? text + "..." : text;
}

}  // namespace braid
