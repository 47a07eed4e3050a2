// The files of the page that every process with an HTTP address serves (watch/page/), which are inside the
// binary. Thread rule: constants.
#pragma once

#include <string_view>
#include <vector>

namespace braid::watch {

struct PageFile {
  std::string_view path;  // "/", "/page/braid.js"
  std::string_view content_type;
  std::string_view body;
};
const std::vector<PageFile>& page_files();

}  // namespace braid::watch
