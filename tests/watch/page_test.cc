#include "watch/page.h"

#include <gmock/gmock.h>

#include <regex>
#include <set>
#include <string>

namespace braid::watch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PageTest, LoadsNothingFromOutsideAndNothingThatIsNotThere) {
  std::set<std::string> paths;
  for (const PageFile& file : page_files()) paths.insert(std::string(file.path));
  for (const PageFile& file : page_files()) {
    const std::string text(file.body);
    EXPECT_FALSE(text.empty()) << file.path;
    // Names of namespaces are no addresses to load from.
    const std::string loads = std::regex_replace(
        text, std::regex("http://www\\.w3\\.org/2000/svg|'http://' \\+ peer\\.address"), "");
    EXPECT_FALSE(std::regex_search(loads, std::regex("https?://|//cdn|@import|url\\("))) << file.path;
    const std::regex links("(?:src|href)=\"(/[^\"]*)\"");
    for (std::sregex_iterator at(text.begin(), text.end(), links), end; at != end; ++at)
      EXPECT_TRUE(paths.contains((*at)[1])) << (*at)[1];
    if (file.path == "/") {
      EXPECT_THAT(text, Not(HasSubstr("<style"))) << "the policy of the page forbids it";
      EXPECT_THAT(text, Not(HasSubstr("onclick="))) << "the same";
    }
  }
  EXPECT_TRUE(paths.contains("/"));
}

}  // namespace
}  // namespace braid::watch
