// The kernel refuses the bus's wishes: a plain error that names it and its fix, or the next best
// way. Each case in a child of its own, since limits and filters can't be taken back. (The bus uses
// no membarrier, no locked memory and no futex: nothing to refuse there.)
#include "unit/bus/bus_fixture.h"

#include <lumen/base/machine_memory.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <vector>

namespace lumen::bus {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD

// From here on this process gets `error` for `call`; of getsockopt() for SO_PEERPIDFD alone.
bool refuse(uint32_t call, int error) {
  const auto back = SECCOMP_RET_ERRNO | static_cast<uint32_t>(error);
  std::vector<sock_filter> code = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0,
               static_cast<uint8_t>(call == SYS_getsockopt ? 3 : 1)),
  };
  if (call == SYS_getsockopt) {
    code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPeerPidfd, 0, 1));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, back));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

class Environment : public BusTest {
 protected:
  static constexpr int kGood = 0;
  static constexpr int kNotHere = 77;
  static constexpr int kBroken = 78;  // a call that every process may do was refused
  // `body` runs in a child; its result is the exit status.
  void in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = body();
      std::fflush(stderr);
      ::_exit(status);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == kNotHere) GTEST_SKIP() << "not allowed here";
    EXPECT_EQ(WEXITSTATUS(status), kGood);
  }
  static int expect_refused(const Status& status, std::string_view why) {
    const bool good =
        !status.ok() && std::string_view(status.message()).find(why) != std::string_view::npos;
    const std::string got = status.ok() ? "ok" : std::string(status.message());
    if (!good) std::fprintf(stderr, "got: %s\n", got.c_str());
    return good ? kGood : 1;
  }
  // A listener and one that connects, both in this process; a frame arrives.
  int expect_works() {
    auto made = Listener::create(path, {.capacity = 4096});
    if (!made.ok()) return 2;
    auto theirs_now = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    if (!theirs_now.ok()) return 3;
    auto accepted = (*made)->accept(patience());
    if (accepted.outcome != Outcome::kOk) return 4;
    if (theirs_now->publisher->send(bytes_of("x"), 1) != Outcome::kOk) return 5;
    if (accepted.connection->subscriber->wait(patience()) != Outcome::kOk) return 6;
    return kGood;
  }
};

TEST_F(Environment, SeccompThatRefusesMemfdIsToldWithItsFix) {
  in_child([&] {
    if (!refuse(SYS_memfd_create, EPERM)) return kNotHere;
    const auto refused = Listener::create(path, {.role = Role::kPublish});
    return expect_refused(refused.status(), "seccomp");
  });
}

TEST_F(Environment, AProcessThatConnectsIsToldThatTheListenerMayNotMakeMemory) {
  in_child([&] {
    if (!refuse(SYS_memfd_create, EPERM)) return kNotHere;
    auto made = Listener::create(path, {});
    if (!made.ok()) return 2;
    const auto connection = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    return expect_refused(connection.status(), "memfd_create");
  });
}

TEST_F(Environment, WithoutPidfdsTheSocketAloneTellsOfAnEnd) {
  in_child([&] {
    if (!refuse(SYS_getsockopt, ENOPROTOOPT) || !refuse(SYS_pidfd_open, EPERM)) return kNotHere;
    auto made = Listener::create(path, {.capacity = 4096});
    if (!made.ok()) return 2;
    auto one = std::make_unique<Result<Connection>>(
        connect(path, {.role = Role::kPublish, .deadline_ns = patience()}));
    if (!one->ok()) return 3;
    auto accepted = (*made)->accept(patience());
    if (accepted.connection->peer->knows_process()) return 4;
    one.reset();
    return accepted.connection->subscriber->wait(patience()) == Outcome::kClosed ? kGood : 5;
  });
}

TEST_F(Environment, WithoutSoPeerpidfdPidfdOpenIsUsed) {
  in_child([&] {
    if (!refuse(SYS_getsockopt, ENOPROTOOPT)) return kNotHere;
    auto made = Listener::create(path, {.capacity = 4096});
    if (!made.ok()) return 2;
    auto theirs_now = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    return theirs_now.ok() && theirs_now->peer->knows_process() ? kGood : 3;
  });
}

TEST_F(Environment, SeccompThatRefusesMembarrierChangesNothing) {
  in_child([&] {
    if (!refuse(SYS_membarrier, EPERM)) return kNotHere;
    return expect_works();
  });
}

// std::thread's exception left create(), and all signals stayed blocked in the caller.
TEST_F(Environment, AThreadThatCantBeStartedIsAnErrorOfCreate) {
  in_child([&] {
    // glibc falls back to clone() only where clone3() is not there at all.
    if (!refuse(SYS_clone3, EAGAIN) || !refuse(SYS_clone, EAGAIN)) return kNotHere;
    const auto refused = Listener::create(path, {});
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    if (::sigismember(&now, SIGTERM) != 0) return 2;
    return expect_refused(refused.status(), "starting a thread");
  });
}

TEST_F(Environment, ALimitOfFileSizeIsAnErrorAndNoSignal) {
  in_child([&] {
    const rlimit limit{8192, 8192};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return kBroken;
    const auto refused = Listener::create(path, {.role = Role::kPublish});
    return expect_refused(refused.status(), "RLIMIT_FSIZE");
  });
}

// A memory cgroup does not refuse: it once killed the listener for a client's demand.
TEST_F(Environment, AMemoryCgroupThatIsTooSmallIsToldAndKillsNobody) {
  const std::filesystem::path root = "/sys/fs/cgroup";
  const bool is_version_1 = std::filesystem::exists(root / "memory/memory.limit_in_bytes");
  const std::filesystem::path group =
      root / (is_version_1 ? "memory" : "") / ("lumen-test-" + std::to_string(::getpid()));
  std::error_code refused;
  if (!std::filesystem::create_directory(group, refused)) GTEST_SKIP() << "no cgroup can be made";
  in_child([&] {
    const std::filesystem::path most =
        group / (is_version_1 ? "memory.limit_in_bytes" : "memory.max");
    if (!std::filesystem::exists(most)) return kNotHere;  // no memory controller there
    std::ofstream(most) << (256 << 20);
    std::ofstream procs(group / "cgroup.procs");
    if (!(procs << ::getpid() << std::flush)) return kNotHere;
    if (unused_memory().bytes > (256u << 20)) return 3;  // it does not see the group
    auto made = Listener::create(path, {.capacity = 512 << 20});
    if (!made.ok()) return 2;
    const auto theirs_now = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    if (const int failed = expect_refused(theirs_now.status(), "do not fit"); failed != kGood)
      return failed;
    made->reset();
    return expect_works();
  });
  std::filesystem::remove(group, refused);
}

TEST_F(Environment, NoMemoryMayBeLockedAndAllWorks) {
  in_child([&] {
    const rlimit limit{0, 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return kBroken;
    return expect_works();
  });
}

// Each would keep the other from the CPU. The adaptive spin learns that too, but only of the gaps
// that it has seen.
TEST_F(Environment, OnOneCpuForBothNobodySpins) {
  in_child([&] {
    constexpr int kTrips = 300;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) return kBroken;
    void* shared = ::mmap(nullptr, sizeof(std::atomic<long>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return kBroken;
    auto* sleeps = ::new (shared) std::atomic<long>(0);
    const auto answer = [sleeps](Connection& connection, bool asks) {
      rusage before{};
      rusage after{};
      ::getrusage(RUSAGE_THREAD, &before);
      for (int i = 0; i < kTrips; ++i) {
        if (asks && connection.publisher->send(bytes_of("?"), 1) != Outcome::kOk) return 3;
        if (connection.subscriber->wait(patience()) != Outcome::kOk) return 4;
        if (!connection.subscriber->try_take()) return 5;
        connection.subscriber->release();
        if (!asks && connection.publisher->send(bytes_of("!"), 1) != Outcome::kOk) return 6;
      }
      ::getrusage(RUSAGE_THREAD, &after);
      *sleeps +=
          after.ru_nvcsw - before.ru_nvcsw;  // a wait that sleeps gives the CPU up, a spin does not
      return kGood;
    };
    const pid_t peer = ::fork();
    if (peer == 0) {
      auto made = connect(
          path, {.role = Role::kBoth, .deadline_ns = patience(), .wait_for_listener = true});
      ::_exit(made.ok() ? answer(*made, true) : 2);
    }
    auto made = Listener::create(path, {.role = Role::kBoth, .capacity = 4096});
    if (!made.ok()) return 8;
    auto accepted = (*made)->accept(patience());
    if (accepted.outcome != Outcome::kOk) return 9;
    if (const int failed = answer(*accepted.connection, false); failed != kGood) return failed;
    int status = 0;
    if (::waitpid(peer, &status, 0) != peer) return 10;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kGood) return 11;
    // Of both: the kernel may let the thread that a message wakes run at once, whose answer is then
    // there before the other waits. With spinning allowed both slept 4 times.
    if (*sleeps < kTrips / 2)
      std::fprintf(stderr, "%ld sleeps in %d trips\n", sleeps->load(), kTrips);
    return *sleeps < kTrips / 2 ? 12 : kGood;
  });
}

TEST_F(Environment, OutOfDescriptorsIsToldAndPassesWhenThereAreSomeAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan looks at memory through a pipe, and reports an error where it gets none";
#endif
  in_child([&] {
    auto made = Listener::create(path, {.capacity = 4096});
    if (!made.ok()) return 2;
    std::vector<UniqueFd> all;
    const rlimit limit{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return kNotHere;
    for (int fd = 0; (fd = ::dup(0)) >= 0;) all.emplace_back(fd);
    // No descriptor for the socket at all, then one of its own and none for the listener.
    auto none = connect(path, {.role = Role::kPublish, .deadline_ns = now_ns() + 50'000'000});
    if (none.ok() || std::string_view(none.status().message()).find("opening a socket") ==
                         std::string_view::npos) {
      return 3;
    }
    for (size_t left = 1; left < 6; ++left) {
      all.pop_back();
      auto one = connect(path, {.role = Role::kPublish, .deadline_ns = now_ns() + 100'000'000});
      if (one.ok()) return 4;
    }
    all.clear();
    auto good = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    return good.ok() ? kGood : 5;
  });
}

TEST_F(Environment, AnotherUserIsRefusedUnlessAllowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kOther = 65534;
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  const auto as_other = [&](const auto& check) {
    std::filesystem::permissions(path, std::filesystem::perms::all);
    in_child([&] {
      if (::setresgid(kOther, kOther, kOther) != 0 || ::setresuid(kOther, kOther, kOther) != 0) {
        return kNotHere;
      }
      auto made = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
      return check(made);
    });
  };
  listen({});
  as_other(
      [](const auto& made) { return expect_refused(made.status(), "user 65534 may not connect"); });
  listener.reset();
  listen({.users = {kOther}});
  as_other([](const auto& made) { return made.ok() ? kGood : 1; });
}

// In another pid namespace the kernel gives no number, and below SO_PEERPIDFD no pidfd: the socket
// tells.
TEST_F(Environment, AnotherPidNamespaceWorksAndItsDeathIsTold) {
  listen({.capacity = 4096});
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNotHere);
    const pid_t inner = ::fork();
    if (inner == 0) {
      auto made = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
      if (!made.ok() || made->publisher->send(bytes_of("x"), 1) != Outcome::kOk) ::_exit(1);
      ::_exit(0);  // without a goodbye, as killed
    }
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(outer, &status, 0), outer);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNotHere) GTEST_SKIP() << "no namespaces here";
  ASSERT_EQ(WEXITSTATUS(status), kGood);
  Connection one = accept();
  ASSERT_EQ(one.subscriber->wait(patience()), Outcome::kOk);
  EXPECT_EQ(text_of(*one.subscriber->try_take()), "x");
  EXPECT_EQ(one.subscriber->wait(patience()), Outcome::kDied);
}

TEST_F(Environment, AStaleSocketFileIsReplaced) {
  in_child([&] {
    auto made = Listener::create(path, {});
    return made.ok() ? (static_cast<void>(made.value().release()), kGood) : 1;  // as after kill -9
  });
  ASSERT_TRUE(std::filesystem::exists(path));
  listen({});
  const Connection connection = connect_as(Role::kPublish);
  EXPECT_TRUE(connection.publisher);
}

}  // namespace
}  // namespace lumen::bus
