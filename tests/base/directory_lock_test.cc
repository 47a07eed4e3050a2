#include "base/directory_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

/// Whether another process gets it.
bool others_get(const std::filesystem::path& directory) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string script = "flock --nonblock '" + (directory / ".lock").string() + "' true";
    ::execlp("bash", "bash", "-c", script.c_str(), nullptr);
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(DirectoryLockTest, KeepsOthersOutUntilItGoes) {
  const TempDir directory;
  DirectoryLock moved;
  {
    DirectoryLock lock;
    ASSERT_TRUE(lock.take(directory.path()));
    EXPECT_FALSE(others_get(directory.path()));
    DirectoryLock again;
    EXPECT_TRUE(again.take(directory.path())) << "of the same process";
    moved = std::move(lock);
  }
  EXPECT_FALSE(others_get(directory.path())) << "moved";
  moved = DirectoryLock();
  EXPECT_TRUE(others_get(directory.path()));
}

TEST(DirectoryLockTest, AnotherProcessIsNamed) {
  const TempDir directory;
  int ready[2], over[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(over), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(over[1]);
    DirectoryLock lock;
    char byte = lock.take(directory.path()) ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::_exit(::read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  char taken = 0;
  ASSERT_EQ(::read(ready[0], &taken, 1), 1);
  ASSERT_EQ(taken, 'y');
  DirectoryLock lock;
  EXPECT_FALSE(lock.take(directory.path()));
  EXPECT_EQ(lock.holder().find("process " + std::to_string(child) + " on "), 0U) << lock.holder();
  ::close(over[1]);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(lock.take(directory.path())) << "its lock has ended with it";
}

/// Loaders of data fork the process that trains, and live on.
TEST(DirectoryLockTest, AForkNeitherEndsNorKeepsIt) {
  const TempDir directory;
  auto lock = std::make_unique<DirectoryLock>();
  ASSERT_TRUE(lock->take(directory.path()));
  int dropped[2], over[2];
  ASSERT_EQ(::pipe(dropped), 0);
  ASSERT_EQ(::pipe(over), 0);
  const auto fork_it = [&](bool drops) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(over[1]);
      if (drops) lock.reset();
      char byte = 'd';
      if (::write(dropped[1], &byte, 1) != 1) ::_exit(1);
      ::_exit(::read(over[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte = 0;
    EXPECT_EQ(::read(dropped[0], &byte, 1), 1);
    return child;
  };
  const pid_t drops = fork_it(true), keeps = fork_it(false);
  EXPECT_FALSE(others_get(directory.path())) << "of the parent, still";
  lock.reset();
  EXPECT_TRUE(others_get(directory.path())) << "although a fork lives";
  ::close(over[1]);
  ::waitpid(drops, nullptr, 0);
  ::waitpid(keeps, nullptr, 0);
}

TEST(DirectoryLockTest, WithoutItsDirectoryThereIsNone) {
  DirectoryLock lock;
  EXPECT_ERROR(lock.take("/nonexistent/directory"), Unavailable,
               ::testing::HasSubstr("cannot create '/nonexistent/directory/.lock'"));
}

}  // namespace
}  // namespace braid
