// What shared memory needs beyond any transport: strangers, peers that are killed or stopped, damaged rings.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/transport/shared_stream.h"
#include "tests/comm/transport/transport_fixture.h"
#include "tests/support/temp_dir.h"

namespace braid::comm {
namespace {

using testing::HasSubstr;

class SharedMemoryTest : public testing::Test {
 protected:
  std::string path() const { return (directory_.path() / "socket").string(); }
  int raw_client() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path().c_str(), sizeof(to.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  const TempDir directory_;
};

/// A process that serves, or calls, until it is killed.
pid_t child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

TEST_F(SharedMemoryTest, AServerThatIsKilledEndsTheCallsInFlight) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t server = child([&] {
    EchoServer echo({.listen = "shm:" + path()});
    [[maybe_unused]] const auto said = write(ready[1], "x", 1);
    for (;;) pause();
  });
  char x;
  ASSERT_EQ(read(ready[0], &x, 1), 1);
  auto channel = Channel::create("shm:" + path(), {});
  const auto data = pattern(2 << 20, 1);
  EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
  std::atomic<int> ended{0}, unavailable{0};
  for (int i = 0; i < 8; ++i)
    channel->call_async(
        {kHold, {}, {data}, nullptr}, nullptr,
        [&](const CallResult& result) {
          if (result.error && result.error->code == ErrorCode::Unavailable) ++unavailable;
          ++ended;
        },
        within(60s));
  kill(server, SIGKILL);
  EXPECT_TRUE(eventually([&] { return ended == 8; }));
  EXPECT_EQ(unavailable, 8);
  waitpid(server, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(SharedMemoryTest, AServerThatIsStoppedIsADeadlineAndGoesOn) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t server = child([&] {
    EchoServer echo({.listen = "shm:" + path()});
    [[maybe_unused]] const auto said = write(ready[1], "x", 1);
    for (;;) pause();
  });
  char x;
  ASSERT_EQ(read(ready[0], &x, 1), 1);
  auto channel = Channel::create("shm:" + path(), {});
  const auto data = pattern(kSharedRingBytes + 12345, 1);
  channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s));
  kill(server, SIGSTOP);
  EXPECT_THROW(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(100ms)), DeadlineExceeded);
  kill(server, SIGCONT);
  EXPECT_EQ(gather(channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s)).payload), data);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(SharedMemoryTest, AClientThatIsKilledIsNoticed) {
  EchoServer echo({.listen = "shm:" + path()});
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  // Forked before there are calls: the child has threads of its own.
  const pid_t client = child([&] {
    auto channel = Channel::create("shm:" + path(), {});
    const auto data = pattern(1 << 20, 1);
    for (;;) channel->call({kEcho, {}, {data}, nullptr}, nullptr, within(60s));
  });
  ASSERT_TRUE(eventually([&] { return echo.requests > 3; }));
  EXPECT_EQ(echo.disconnects, 0);
  kill(client, SIGKILL);
  waitpid(client, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return echo.disconnects == 1; }));
  close(go[0]);
  close(go[1]);
}

TEST_F(SharedMemoryTest, StrangersAreLetGo) {
  EchoServer echo({.listen = "shm:" + path()});
  // Frames as over a plain socket; a hello without memory; memory that can be cut short; a short memory.
  const auto refused = [&](int fd) {
    char answer;
    EXPECT_EQ(recv(fd, &answer, 1, 0), 0);
    close(fd);
  };
  int fd = raw_client();
  ASSERT_EQ(send(fd, "BRAD............", 16, MSG_NOSIGNAL), 16);
  refused(fd);
  const auto hello = [&](int memory) {
    const int client = raw_client();
    struct {
      std::uint32_t magic = 0x4d485342, version = 1;
      std::uint64_t bytes = kSharedRingBytes;
    } words;
    iovec piece{&words, sizeof(words)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (memory >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &memory, sizeof(memory));
    }
    EXPECT_EQ(sendmsg(client, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(words)));
    if (memory >= 0) close(memory);
    return client;
  };
  refused(hello(-1));
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096 + 2 * static_cast<off_t>(kSharedRingBytes)), 0);
  refused(hello(unsealed));
  const int small = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(small, 4096), 0);
  ASSERT_EQ(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  refused(hello(small));
  // A ring that claims more than it holds.
  const int damaged = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::size_t bytes = 4096 + 2 * kSharedRingBytes;
  ASSERT_EQ(ftruncate(damaged, static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(fcntl(damaged, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, damaged, 0);
  ASSERT_NE(memory, MAP_FAILED);
  *static_cast<std::uint64_t*>(memory) = 2 * kSharedRingBytes;
  refused(hello(damaged));
  munmap(memory, bytes);
  EXPECT_EQ(echo.requests, 0);
}

TEST_F(SharedMemoryTest, AsksForTheJobsToken) {
  const JobToken own = JobToken::random(), other = JobToken::random();
  EchoServer echo({.listen = "shm:" + path(), .security = {{}, own}});
  const auto call = [&](const Security& security) {
    auto channel = Channel::create("shm:" + path(), {.security = security});
    return to_text(channel->call({kEcho, to_bytes("hello"), {}, nullptr}, nullptr, within(60s)).meta);
  };
  EXPECT_EQ(call({{}, own}), "hello");
  EXPECT_THAT(error_of<Unavailable>([&] { call({{}, other}); }), HasSubstr("has another job token"));
  EXPECT_THROW(call({}), Unavailable);
  EXPECT_EQ(echo.requests, 1);
}

TEST_F(SharedMemoryTest, IsRefusedWhereBytesAreToBeEncrypted) {
  Security security;
  security.tls.certificate_file = "a";
  EXPECT_ANY_THROW(Channel::create("shm:" + path(), {.security = security}));
}

}  // namespace
}  // namespace braid::comm
