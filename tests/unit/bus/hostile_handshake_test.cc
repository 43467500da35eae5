// A process that connects or listens and does not keep to the handshake: a plain error for that
// one, descriptors as before, and the others are served meanwhile.
#include "support/bus_raw.h"
#include "support/source_dir.h"
#include "unit/bus/bus_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <thread>
#include <vector>

#include "bus/segments.h"

namespace lumen::bus {
namespace {

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator{}));
}

// The fixture's bytes, a text file of hexadecimal digits.
std::vector<std::byte> fixture(const std::string& name) {
  std::ifstream file(test::source_path("tests/fixtures/bus") / name);
  EXPECT_TRUE(file) << name;
  std::vector<std::byte> bytes;
  for (std::string pair; file >> pair;) {
    bytes.push_back(static_cast<std::byte>(std::stoul(pair, nullptr, 16)));
  }
  return bytes;
}

class HostileHandshake : public BusTest {
 protected:
  HostileHandshake() { (void)machine_is_crowded(now_ns()); }  // opens a file for the process's life
  // No more than `wanted`. The listener's thread closes sent or refused descriptors a moment later.
  void expect_descriptors(size_t wanted) {
    const uint64_t until_ns = patience();
    while (open_descriptors() > wanted && now_ns() < until_ns) std::this_thread::yield();
    EXPECT_LE(open_descriptors(), wanted);
  }
};

// --- The listener is hostile. ---

class HostileListener : public HostileHandshake {
 protected:
  // Answers one that connects by `bytes` and `fds`; the result of its connect().
  Status answered_by(std::span<const std::byte> bytes, std::span<const int> descriptors) {
    auto socket = listen_unix(path, UnixSocketKind::kMessages);
    EXPECT_TRUE(socket.ok());
    std::thread answers([&] {
      pollfd comes{socket->fd(), POLLIN, 0};
      (void)::poll(&comes, 1, -1);
      const UniqueFd one(::accept4(socket->fd(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello;
      EXPECT_EQ(::recv(one.get(), &hello, sizeof(hello), 0), static_cast<ssize_t>(sizeof(hello)));
      EXPECT_TRUE(test::send_raw(one.get(), bytes, descriptors));
    });
    auto connection = connect(path, {.role = Role::kPublish, .deadline_ns = patience()});
    answers.join();
    return connection.ok() ? Status{} : connection.status();
  }
  // A welcome that is right, and its files.
  void make_right() {
    ring.emplace(make_publisher_file({4096, 64}, false).value());
    cursor.emplace(make_cursor_file(true).value());
    bells.emplace(make_bells().value());
    welcome.streams = 1;
    welcome.stream[0].capacity = 4096;
    welcome.stream[0].slots = 64;
    fds = {ring->file.fd(), cursor->file.fd(), bells->theirs.get()};
  }
  void expect_refused(size_t descriptors, std::string_view why) {
    const Status status = answered_by(test::raw_bytes(welcome), fds);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(std::string_view(status.message()).find(why), std::string_view::npos)
        << status.message();
    EXPECT_EQ(open_descriptors(), descriptors);
  }
  Welcome welcome;
  std::optional<OwnPublisherFile> ring;
  std::optional<OwnCursorFile> cursor;
  std::optional<BellPair> bells;
  std::vector<int> fds;
};

// Of one that never answers, and of one that is not there.
TEST_F(HostileListener, ACallerMayEndItsWait) {
  auto silent = listen_unix(path, UnixSocketKind::kMessages);
  ASSERT_TRUE(silent.ok());
  for (const std::string& to : {path, path + ".none"}) {
    int asked = 0;
    const auto connection =
        connect(to, {.deadline_ns = UINT64_MAX, .wait_for_listener = true, .goes_on = [&] {
                       return ++asked < 3;
                     }});
    EXPECT_EQ(connection.status().code(), Code::kCancelled) << connection.status().message();
    EXPECT_EQ(asked, 3);
  }
}

TEST_F(HostileListener, TheRightAnswerConnects) {
  make_right();
  const Status status = answered_by(test::raw_bytes(welcome), fds);
  EXPECT_TRUE(status.ok()) << status.message();
}

// They were left open: a listener could fill the descriptor table of a client that tries again and
// again.
TEST_F(HostileListener, DescriptorsBesideAMessageOfNoBytesAreClosed) {
  make_right();
  const size_t here = open_descriptors();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(answered_by(std::span<const std::byte>{}, fds).ok());
  EXPECT_EQ(open_descriptors(), here);
}

TEST_F(HostileListener, AWrongNumberOfDescriptorsIsRefusedAndAllAreClosed) {
  make_right();
  const size_t here = open_descriptors();
  for (const size_t count : {0u, 1u, 2u, 4u, 7u, 8u, 100u, 253u}) {
    fds.resize(count, ring->file.fd());
    EXPECT_FALSE(answered_by(test::raw_bytes(welcome), fds).ok()) << count;
    EXPECT_EQ(open_descriptors(), here) << count;
  }
}

TEST_F(HostileListener, AFileThatCanBeCutIsNotMapped) {
  make_right();
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(ring->file.bytes())), 0);
  fds[0] = unsealed.get();
  const size_t here = open_descriptors();
  expect_refused(here, "can still change");
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  expect_refused(here, "can still change");  // and could be unsealed no more, but further sealed
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
  expect_refused(here, "mapping");  // nobody can write it, the publisher neither
}

TEST_F(HostileListener, AFileOfAnotherSizeIsNotMapped) {
  make_right();
  const size_t here = open_descriptors();
  welcome.stream[0].capacity = 8192;
  expect_refused(here, "wanted the");
  welcome.stream[0].capacity = 4096;
  std::swap(fds[0], fds[1]);
  expect_refused(here, "wanted the");
}

TEST_F(HostileListener, SizesThatCantBeAreRefused) {
  make_right();
  const size_t here = open_descriptors();
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{4095}, uint64_t{1} << 31, UINT64_MAX}) {
    welcome.stream[0].capacity = capacity;
    expect_refused(here, "powers of two");
  }
  welcome.stream[0].capacity = 4096;
  for (const uint32_t slots : {0u, 1u, 63u, 1u << 21, UINT32_MAX}) {
    welcome.stream[0].slots = slots;
    expect_refused(here, "powers of two");
  }
  welcome.stream[0].slots = 64;
  welcome.stream[0].entry = kMostSubscribers;
  expect_refused(here, "powers of two");
  welcome.stream[0].entry = 0;
  welcome.streams = 2;
  expect_refused(here, "2 rings");
}

TEST_F(HostileListener, AFolderOrADeviceIsNoSharedMemory) {
  make_right();
  const UniqueFd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd file(::open((folder + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(ring->file.bytes())), 0);
  const size_t here = open_descriptors();
  for (const int fd : {folder_fd.get(), zero.get(), file.get(), bells->ours.get()}) {
    fds = {fd, cursor->file.fd(), bells->theirs.get()};
    expect_refused(here, "can still change");
    fds = {ring->file.fd(), fd, bells->theirs.get()};
    expect_refused(here, "can still change");
  }
}

// A bell is polled: a file that is always readable kept the thread awake, one of FUSE could hold it
// for ever.
TEST_F(HostileListener, ABellThatIsNoUnixSocketIsRefused) {
  make_right();
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const size_t here = open_descriptors();
  for (const int fd : {zero.get(), tcp.get(), datagrams.get(), ring->file.fd()}) {
    fds[2] = fd;
    expect_refused(here, "no unix stream socket");
  }
}

TEST_F(HostileListener, AnAreaOfAnotherSizeIsRefused) {
  make_right();
  fds.push_back(cursor->file.fd());
  welcome.has_area = 1;
  const size_t here = open_descriptors();
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{8192}, UINT64_MAX}) {
    welcome.area_bytes = bytes;
    expect_refused(here, "wanted the");
  }
}

TEST_F(HostileListener, ARefusalsTextCantSteerATerminal) {
  welcome = refusal(Answer::kFull, "no\x1b[2J\r\nplace\x7f");
  const size_t here = open_descriptors();
  expect_refused(here, "refused: no?[2J??place?");
}

TEST_F(HostileListener, AnAnswerOfAnotherProtocolIsRefusedInWords) {
  const size_t here = open_descriptors();
  const Status http = answered_by(bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"), {});
  EXPECT_FALSE(http.ok());
  EXPECT_NE(std::string_view(http.message()).find("no welcome of this protocol"),
            std::string_view::npos);
  // The answer of a listener of a later protocol to this one: bytes of the layout, kept as they
  // were.
  const Status later = answered_by(fixture("refusal_of_version_9.hex"), {});
  EXPECT_EQ(later.code(), Code::kUnsupported);
  EXPECT_NE(std::string_view(later.message()).find("speaks versions 1 to 1, this side 9 to 9"),
            std::string_view::npos)
      << later.message();
  EXPECT_EQ(open_descriptors(), here);
}

TEST_F(HostileListener, OneThatNeverAnswersIsLeftAtTheDeadline) {
  const auto socket = listen_unix(path, UnixSocketKind::kMessages);
  ASSERT_TRUE(socket.ok());
  const auto connection =
      connect(path, {.role = Role::kPublish, .deadline_ns = now_ns() + 1'000'000});
  EXPECT_EQ(connection.status().code(), Code::kDeadlineExceeded);
}

TEST_F(HostileListener, AListenerOfAnUnwantedUserIsLeftBeforeAnythingIsSaid) {
  listen({});
  const auto connection =
      connect(path, {.role = Role::kPublish, .listener_users = {::geteuid() + 1}});
  EXPECT_EQ(connection.status().code(), Code::kForbidden);
  EXPECT_EQ(listener->counts().accepted, 0u);
}

// --- Hostile processes connect. ---

class HostileNewcomers : public HostileHandshake {
 protected:
  // One that keeps to the rules is served.
  void expect_served() {
    Connection good = connect_as(Role::kPublish);
    Connection good_ours = accept();
    ASSERT_EQ(good.publisher->send(bytes_of("x"), 1), Outcome::kOk);
    EXPECT_EQ(good_ours.subscriber->wait(patience()), Outcome::kOk);
  }
  // The listener's answer to `bytes`.
  Result<ReceivedWelcome> said(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    const UniqueFd socket = test::raw_connect(path);
    EXPECT_TRUE(test::send_raw(socket.get(), bytes, fds));
    Patience patient(patience());
    return receive_welcome(socket.get(), patient);
  }
};

TEST_F(HostileNewcomers, AHelloThatIsNoneIsRefusedInWords) {
  listen({});
  const size_t here = open_descriptors();
  const std::array<std::byte, 65> zeros{};
  for (const size_t size : {1u, 63u, 64u, 65u}) {
    const auto answer = said(std::span(zeros).first(size));
    ASSERT_TRUE(answer.ok()) << size << ": " << answer.status().message();
    EXPECT_EQ(answer->welcome.answer, Answer::kMalformed) << size;
  }
  expect_descriptors(here);
  EXPECT_EQ(listener->counts().refused, 4u);
  expect_served();
}

TEST_F(HostileNewcomers, RecordedHellosGetTheAnswerOfTheirTime) {
  listen({});
  auto answer = said(fixture("hello_of_version_1.hex"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->welcome.answer, Answer::kVersion) << "it knows no runs";
  answer = said(fixture("hello_of_versions_1_to_9.hex"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->welcome.answer, Answer::kWelcome) << "it also speaks this one";
  EXPECT_EQ(answer->welcome.version, 2u);
  (void)accept();
  answer = said(fixture("hello_of_version_9.hex"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->welcome.answer, Answer::kVersion);
  EXPECT_NE(std::string_view(answer->welcome.text.data()).find("same release"),
            std::string_view::npos);
}

TEST_F(HostileNewcomers, ARoleThatIsNotOfferedIsRefused) {
  listen({});
  for (const uint32_t role : {0u, 2u, 3u, 4u, 6u, UINT32_MAX}) {
    Hello hello;
    hello.role = role;
    const auto answer = said(test::raw_bytes(hello));
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->welcome.answer, Answer::kRole) << role;
  }
}

TEST_F(HostileNewcomers, DescriptorsThatComeWithAHelloAreClosed) {
  listen({});
  const size_t here = open_descriptors();
  const std::vector<int> many(253, ::fileno(stderr));
  for (int i = 0; i < 20; ++i) {
    const std::array<std::byte, 8> zeros{};
    EXPECT_TRUE(said(zeros, many).ok());
  }
  expect_descriptors(here);
}

// Descriptors on a connection that lives: by the goodbye's way and by the bell.
TEST_F(HostileNewcomers, DescriptorsThatComeLaterAreClosedToo) {
  listen({});
  {
    test::RawStream attacker(path, Role::kPublish);
    Connection connection = accept();
    const std::vector<int> many(253, ::fileno(stderr));
    const size_t here = open_descriptors();
    const char byte = 0;
    for (int i = 0; i < 5; ++i) (void)test::send_raw(attacker.bell(), test::raw_bytes(byte), many);
    EXPECT_EQ(connection.subscriber->wait(now_ns() + 2'000'000), Outcome::kTimedOut);
    expect_descriptors(here);
    (void)test::send_raw(attacker.socket(), test::raw_bytes(byte), many);
    EXPECT_EQ(connection.subscriber->wait(patience()), Outcome::kInvalid);
    expect_descriptors(here);
  }
}

// The 65th waited for the first 64 to time out, and so on: a second for each 64.
TEST_F(HostileNewcomers, AThousandSilentOnesHoldUpNoOther) {
  listen({.handshake_timeout_ns = 1000 * kSecond});
  const size_t here = open_descriptors();
  std::vector<UniqueFd> silent;
  silent.reserve(1000);
  for (int i = 0; i < 400; ++i) silent.push_back(test::raw_connect(path));
  expect_served();
  for (int i = 0; i < 600; ++i) silent.push_back(test::raw_connect(path));
  expect_served();
  silent.clear();
  expect_descriptors(here);
}

TEST_F(HostileNewcomers, OneThatSaysNothingIsRefusedInTime) {
  listen({.handshake_timeout_ns = 1'000'000});
  const UniqueFd silent = test::raw_connect(path);
  Patience patient(patience());
  const auto answer = receive_welcome(silent.get(), patient);
  ASSERT_TRUE(answer.ok());
  EXPECT_NE(std::string_view(answer->welcome.text.data()).find("no hello"), std::string_view::npos);
}

TEST_F(HostileNewcomers, OnesThatLeaveHalfWayLeaveNothingBehind) {
  listen({});
  const size_t here = open_descriptors();
  const Hello hello{.role = static_cast<uint32_t>(Role::kPublish)};
  for (int i = 0; i < 100; ++i) {
    const UniqueFd socket = test::raw_connect(path);
    if (i % 3 == 0) continue;                                 // before the hello
    if (i % 3 == 1) (void)::shutdown(socket.get(), SHUT_WR);  // half open
    if (i % 3 == 2) (void)test::send_raw(socket.get(), test::raw_bytes(hello));
  }
  // The client that is answered came behind all of them: none is still to be let in, whose
  // descriptors were to come.
  {
    const Connection last = connect_as(Role::kPublish);
  }
  // Clients that were welcomed before they left are handed over, and found gone.
  const uint64_t until_ns = patience();
  while (open_descriptors() > here && now_ns() < until_ns) {
    auto accepted = listener->accept(now_ns() + 1'000'000);
    if (accepted.outcome != Outcome::kOk) continue;
    const Outcome end = accepted.connection->subscriber->wait(patience());
    EXPECT_TRUE(end == Outcome::kDied || end == Outcome::kClosed) << name_of(end);
  }
  expect_descriptors(here);
  EXPECT_EQ(listener->counts().connections, 0u);
  expect_served();
}

// Observers that ask and never read are dropped; one that reads is served.
TEST_F(HostileNewcomers, ObserversThatNeverReadAreLeft) {
  listen({});
  Connection good = connect_as(Role::kPublish);
  Connection good_ours = accept();
  const size_t here = open_descriptors();
  {
    std::vector<UniqueFd> observers;
    const Hello hello{.role = kObserve};
    for (int i = 0; i < 20; ++i) {
      observers.push_back(test::raw_connect(path));
      (void)test::send_raw(observers.back().get(), test::raw_bytes(hello));
    }
    const char byte = 0;
    const uint64_t until_ns = now_ns() + 20'000'000;
    while (now_ns() < until_ns) {
      for (const UniqueFd& one : observers) (void)test::send_raw(one.get(), test::raw_bytes(byte));
    }
    ASSERT_EQ(good.publisher->send(bytes_of("x"), 1), Outcome::kOk);
    EXPECT_EQ(good_ours.subscriber->wait(patience()), Outcome::kOk);
  }
  expect_descriptors(here);
  expect_served();
}

}  // namespace
}  // namespace lumen::bus
