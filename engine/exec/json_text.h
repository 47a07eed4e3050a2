// Text in JSON, for what the engine writes without a library. Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

namespace braid {

/// With its quotes; quotes, backslashes and control characters are escaped. The text is UTF-8.
std::string json_text(std::string_view text);

}  // namespace braid
