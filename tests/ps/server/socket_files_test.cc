// Files of Unix sockets that live, dead and strange processes have left in a directory.
#include "ps/server/socket_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "launch/file_descriptor.h"
#include "tests/support/temp_dir.h"

namespace braid::ps {
namespace {

using launch::FileDescriptor;
using ::testing::UnorderedElementsAre;

class SocketFilesTest : public testing::Test {
 protected:
  /// A bound socket whose file was made an hour ago.
  FileDescriptor bind_at(const std::string& name, bool listens, bool old = true) const {
    const std::string path = directory_.path() / name;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    if (listens) {
      EXPECT_EQ(::listen(socket.get(), 0), 0);
    }
    if (old) make_old(name);
    return socket;
  }
  void make_old(const std::string& name) const {
    const timespec an_hour_ago{std::time(nullptr) - 3600, 0};
    const timespec times[] = {an_hour_ago, an_hour_ago};
    ::utimensat(AT_FDCWD, (directory_.path() / name).c_str(), times, 0);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      all.push_back(entry.path().filename());
    return all;
  }
  TempDir directory_;
};

TEST_F(SocketFilesTest, OnlyWhatNobodyListensOnGoes) {
  const FileDescriptor live = bind_at("braid-ps-1-0.sock", true);
  const FileDescriptor fresh = bind_at("braid-ps-2-0.sock", false, false);
  bind_at("braid-ps-3-0.sock", true).reset();
  bind_at("other.sock", true).reset();
  std::ofstream(directory_.path() / "braid-ps-4-0.sock") << "a file";
  make_old("braid-ps-4-0.sock");
  remove_dead_sockets(directory_.path());
  EXPECT_THAT(names(), UnorderedElementsAre("braid-ps-1-0.sock", "braid-ps-2-0.sock", "other.sock",
                                            "braid-ps-4-0.sock"));
}

TEST_F(SocketFilesTest, ALiveOneWhoseQueueIsFullStays) {
  const FileDescriptor live = bind_at("braid-ps-1-0.sock", true);
  for (int i = 0; i < 3; ++i) remove_dead_sockets(directory_.path());
  EXPECT_THAT(names(), UnorderedElementsAre("braid-ps-1-0.sock"));
}

TEST_F(SocketFilesTest, ADirectoryThatIsNotThereIsNoError) {
  EXPECT_NO_THROW(remove_dead_sockets(directory_.path() / "none"));
}

TEST_F(SocketFilesTest, NewNamesDiffer) {
  EXPECT_NE(new_socket_file(0), new_socket_file(0));
  EXPECT_TRUE(new_socket_file(3).ends_with("-3.sock"));
}

}  // namespace
}  // namespace braid::ps
