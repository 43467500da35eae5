// Unix listeners: the users that may connect, the fate of a file that is there already, and the
// peer's credentials. One thread, but for the race; sockets in folders of their own.
#include <lumen/base/unix_socket.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lumen {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// connect() as a client would; errno of a failure.
struct Connected {
  UniqueFd fd;
  int error = 0;
};
Connected connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  Connected connected{UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  if (::connect(connected.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    connected.error = errno;
  }
  return connected;
}

class UnixSocket : public testing::Test {
 protected:
  UnixSocket() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-sock-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    path = folder / "lumen.sock";
  }
  ~UnixSocket() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  [[nodiscard]] bool is_there() const {
    return std::filesystem::symlink_status(path).type() != std::filesystem::file_type::not_found;
  }
  // A socket's file that nobody listens on, as a killed server leaves it.
  void leave_stale() const {
    const Connected never = bind_only();
    ASSERT_TRUE(is_there());
  }
  [[nodiscard]] Connected bind_only() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    Connected bound{UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    EXPECT_EQ(0,
              ::bind(bound.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
    return bound;
  }
  [[nodiscard]] std::string refusal() const {
    const auto listener = listen_unix(path);
    return listener.ok() ? "accepted" : std::string(listener.status().message());
  }

  std::filesystem::path folder;
  std::string path;
};

TEST_F(UnixSocket, IsForUserAndGroupWithAnyUmask) {
  for (const mode_t mask : {0000u, 0022u, 0077u, 0777u}) {
    const mode_t before = ::umask(mask);
    const auto listener = listen_unix(path);
    ::umask(before);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    struct stat found{};
    ASSERT_EQ(0, ::stat(path.c_str(), &found));
    EXPECT_EQ(0660u, found.st_mode & 07777u);
  }
}

TEST_F(UnixSocket, TakesConnectionsAndGoesWithItsListener) {
  {
    const auto listener = listen_unix(path);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    EXPECT_EQ(path, listener->path());
    const Connected client = connect_to(path);
    EXPECT_EQ(0, client.error);
    const UniqueFd accepted(::accept(listener->fd(), nullptr, nullptr));
    EXPECT_TRUE(accepted.valid());
    EXPECT_EQ(1, ::write(accepted.get(), "x", 1));
  }
  EXPECT_FALSE(is_there());
}

TEST_F(UnixSocket, ThatWasMovedGoesOnce) {
  auto first = listen_unix(path);
  ASSERT_TRUE(first.ok());
  UnixListener second = std::move(*first);
  first->close();
  EXPECT_EQ(0, connect_to(path).error);
  second = UnixListener();
  EXPECT_FALSE(is_there());
}

TEST_F(UnixSocket, ThatIsStaleIsReplaced) {
  leave_stale();
  ASSERT_EQ(ECONNREFUSED, connect_to(path).error);
  const auto listener = listen_unix(path);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_EQ(0, connect_to(path).error);
}

TEST_F(UnixSocket, ThatAnswersIsRefusedAndLeftAlone) {
  const auto first = listen_unix(path);
  ASSERT_TRUE(first.ok());
  const auto second = listen_unix(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(Code::kAlreadyExists, second.status().code());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(path), HasSubstr("another server listens there")));
  EXPECT_EQ(0, connect_to(path).error);
}

TEST_F(UnixSocket, WhoseBacklogIsFullCountsAsAnswering) {
  const Connected busy = bind_only();
  ASSERT_EQ(0, ::listen(busy.fd.get(), 0));
  const Connected first = connect_to(path);
  ASSERT_EQ(0, first.error);
  EXPECT_THAT(refusal(), HasSubstr("another server listens there"));
  EXPECT_TRUE(is_there());
}

TEST_F(UnixSocket, DoesNotReplaceAFileAFolderOrALink) {
  std::ofstream(path) << "kept";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no socket"), HasSubstr(path)));
  EXPECT_EQ(4u, std::filesystem::file_size(path));
  std::filesystem::remove(path);

  std::filesystem::create_directory(path);
  EXPECT_THAT(refusal(), HasSubstr("no socket"));
  EXPECT_TRUE(std::filesystem::is_directory(path));
  std::filesystem::remove(path);

  std::filesystem::create_symlink(folder / "nowhere", path);
  EXPECT_THAT(refusal(), HasSubstr("no socket"));
  EXPECT_TRUE(std::filesystem::is_symlink(path));
}

TEST_F(UnixSocket, OfAnotherKindIsLeftAlone) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd datagram(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(0,
            ::bind(datagram.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
  EXPECT_THAT(refusal(), HasSubstr("can't be probed"));
  EXPECT_TRUE(is_there());
}

TEST_F(UnixSocket, LeavesAFileThatTookItsPlace) {
  auto first = listen_unix(path);
  ASSERT_TRUE(first.ok());
  std::filesystem::remove(path);
  const auto second = listen_unix(path);
  ASSERT_TRUE(second.ok()) << second.status().message();
  first->close();
  EXPECT_EQ(0, connect_to(path).error);
}

TEST_F(UnixSocket, InAFolderThatIsNotThereSaysWhichFolder) {
  path = folder / "none" / "lumen.sock";
  EXPECT_THAT(refusal(), AllOf(HasSubstr(folder / "none"), HasSubstr("No such file")));
}

TEST_F(UnixSocket, LongerThanTheKernelTakesSaysHowLongItMayBe) {
  path = folder / std::string(120, 'x');
  EXPECT_THAT(refusal(), AllOf(HasSubstr(std::to_string(path.size()) + " bytes"),
                               HasSubstr("wanted 1 to 107")));
  EXPECT_TRUE(check_unix_path(std::string(107, 'x')).ok());
  EXPECT_FALSE(check_unix_path(std::string(108, 'x')).ok());
  EXPECT_FALSE(check_unix_path("").ok());
  EXPECT_FALSE(check_unix_path(std::string_view("a\0b", 3)).ok());
}

// Was: another program's lock on a shared folder kept the server from starting.
TEST_F(UnixSocket, AFolderThatSomebodyKeepsLockedIsListenedInWhereThePathIsFree) {
  const UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(0, ::flock(lock.get(), LOCK_EX));
  EXPECT_TRUE(listen_unix(path).ok());
}

TEST_F(UnixSocket, AStaleSocketInAFolderThatStaysLockedIsAnErrorNotAHang) {
  leave_stale();
  const UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(0, ::flock(lock.get(), LOCK_EX));
  EXPECT_THAT(refusal(), HasSubstr("locking its folder"));
}

// Eight servers start over one stale file: one gets it, and it is still reachable afterwards.
TEST_F(UnixSocket, IsGivenToOneOfManyThatStartAtOnce) {
  for (int round = 0; round < 20; ++round) {
    leave_stale();
    std::vector<std::optional<UnixListener>> listeners(8);
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    threads.reserve(listeners.size());
    for (auto& mine : listeners) {
      threads.emplace_back([&] {
        go.wait(false, std::memory_order_acquire);  // sync[test.start]: the release below
        auto listener = listen_unix(path);
        if (listener.ok()) mine = std::move(*listener);
      });
    }
    go.store(true, std::memory_order_release);  // sync[test.start]: the waits above
    go.notify_all();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(1, std::ranges::count_if(listeners, [](const auto& l) { return l.has_value(); }));
    EXPECT_EQ(0, connect_to(path).error);
    listeners.clear();
    EXPECT_FALSE(is_there());
  }
}

TEST_F(UnixSocket, KnowsItsPeer) {
  const auto listener = listen_unix(path);
  ASSERT_TRUE(listener.ok());
  const Connected client = connect_to(path);
  const UniqueFd accepted(::accept(listener->fd(), nullptr, nullptr));
  const auto peer = peer_credentials(accepted.get());
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(::getpid(), peer->pid);
  EXPECT_EQ(::geteuid(), peer->uid);
  EXPECT_EQ(::getegid(), peer->gid);
}

TEST(PeerCredentials, AreNobodysOverTcp) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(peer_credentials(socket.get()).has_value());
  EXPECT_FALSE(peer_credentials(-1).has_value());
}

TEST(DefaultUnixPath, IsInTheRuntimeFolderOrNowhere) {
  ASSERT_EQ(0, ::setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1));
  EXPECT_EQ("/run/user/1000/lumen.sock", default_unix_path());
  for (const std::string& folder :
       {std::string(), std::string("relative"), "/" + std::string(120, 'x')}) {
    ASSERT_EQ(0, ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1));
    EXPECT_EQ("", default_unix_path()) << folder;
  }
  ASSERT_EQ(0, ::unsetenv("XDG_RUNTIME_DIR"));
  EXPECT_EQ("", default_unix_path());
}

}  // namespace
}  // namespace lumen
