// connect(): the side that comes. Control plane. Errors: Result, with the listener's own words
// where it has refused.
#include <lumen/bus/connection.h>

#include <lumen/base/clock.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bus/connect_socket.h"
#include "bus/handshake.h"
#include "bus/subscriber_link.h"

namespace lumen::bus {
namespace {

constexpr uint64_t kDefaultPatienceNs = 1'000'000'000;
constexpr uint64_t kTryAgainNs = 2'000'000;  // while the listener is not there yet
constexpr uint64_t kLookNs = 100'000'000;    // from one question to the caller to the next

Code code_of(Answer answer) noexcept {
  switch (answer) {
    case Answer::kWelcome: return Code::kOk;
    case Answer::kMalformed: return Code::kInvalidArgument;
    case Answer::kVersion:
    case Answer::kRole: return Code::kUnsupported;
    case Answer::kForbidden: return Code::kForbidden;
    case Answer::kFull:
    case Answer::kNoMemory: return Code::kResourceExhausted;
  }
  return Code::kInvalidArgument;
}

// A bell is waited on: a file whose poll() is answered by another process (FUSE) could hold this
// one up.
bool is_bell(const UniqueFd& fd) noexcept {
  const auto option = [&](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return ::getsockopt(fd.get(), SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  return option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_STREAM;
}

// The files that the listener has sent for one stream, mapped; `publishes` says which of the two
// sides this is.
Status add_stream(Connection& connection, const StreamGeometry& stream, UniqueFd* fds, Role role,
                  bool publishes) {
  const Geometry geometry{stream.capacity, stream.slots};
  if (!geometry.is_valid() || stream.entry >= kMostSubscribers) {
    return Status::error(Code::kInvalidArgument,
                         "the listener offers a ring of %llu bytes and %u frames, wanted powers of "
                         "two from %llu and %u on",
                         static_cast<unsigned long long>(stream.capacity), stream.slots,
                         static_cast<unsigned long long>(kLeastCapacity), kLeastSlots);
  }
  auto publisher_file = SharedFile::adopt(std::move(fds[0]), geometry.file_bytes());
  if (!publisher_file.ok()) return publisher_file.status();
  auto cursor_file = SharedFile::adopt(std::move(fds[1]), sizeof(CursorPage));
  if (!cursor_file.ok()) return cursor_file.status();
  auto memory = PublisherMemory::map(*publisher_file, geometry,
                                     publishes ? Access::kReadWrite : Access::kRead);
  if (!memory.ok()) return memory.status();
  auto cursor = CursorMemory::map(*cursor_file, publishes ? Access::kRead : Access::kReadWrite);
  if (!cursor.ok()) return cursor.status();
  if (!is_bell(fds[2])) {
    return Status::error(Code::kInvalidArgument,
                         "the listener sent a bell that is no unix stream socket");
  }
  Bell bell(std::move(fds[2]));
  if (publishes) {
    auto link = std::make_unique<SubscriberLink>();
    link->cursor = *cursor;
    link->peer = connection.peer;
    link->bell = std::move(bell);
    connection.publisher.emplace(*memory, std::move(link));
    return {};
  }
  SubscriberParts parts{
      *memory,      *cursor,          connection.peer, std::move(bell), stream.has_entry != 0,
      stream.entry, stream.generation};
  if (role == Role::kSubscribeLossy) {
    connection.lossy_subscriber.emplace(std::move(parts));
  } else {
    connection.subscriber.emplace(std::move(parts));
  }
  return {};
}

Status add_area(Connection& connection, uint64_t bytes, UniqueFd fd) {
  auto file = SharedFile::adopt(std::move(fd), bytes);
  if (!file.ok()) return file.status();
  auto mapping = FileMapping::map(*file, Access::kReadWrite, bytes);
  if (!mapping.ok()) return mapping.status();
  auto owner = std::make_shared<FileMapping>(std::move(mapping).value());
  connection.area = {owner->data(), bytes};
  connection.area_memory = std::move(owner);
  return {};
}

Status take_memory(Connection& connection, ReceivedWelcome& received, Role role) {
  const Welcome& welcome = received.welcome;
  const size_t streams = role == Role::kBoth ? 2 : 1;
  const size_t wanted = 3 * streams + (welcome.has_area != 0 ? 1 : 0);
  if (welcome.streams != streams || received.descriptor_count != wanted) {
    return Status::error(Code::kInvalidArgument,
                         "the listener sent %u rings with %zu descriptors, wanted %zu with %zu",
                         welcome.streams, received.descriptor_count, streams, wanted);
  }
  const bool first_publishes = role == Role::kPublish || role == Role::kBoth;
  for (size_t i = 0; i < streams; ++i) {
    LUMEN_RETURN_IF_ERROR(add_stream(connection, welcome.stream[i], &received.descriptors[3 * i],
                                     role, i == 0 ? first_publishes : false));
  }
  if (welcome.has_area == 0) return {};
  return add_area(connection, welcome.area_bytes, std::move(received.descriptors[3 * streams]));
}

}  // namespace

Woken Patience::sleep(std::span<pollfd> fds, uint64_t until_ns) {
  const uint64_t end_ns = std::min(deadline_ns_, until_ns);
  for (;;) {
    uint64_t until = end_ns;
    if (goes_on_) {
      if (now_ns() >= next_look_ns_) {
        if (!goes_on_()) return Woken::kInterrupted;
        next_look_ns_ = now_ns() + kLookNs;
      }
      until = std::min(end_ns, next_look_ns_);
    }
    const Woken woken = sleep_on(fds, until);
    if (woken != Woken::kTimedOut || until == end_ns) return woken;
  }
}

bool Patience::is_over() const noexcept { return now_ns() >= deadline_ns_; }

Result<UniqueFd> connect_socket(const std::string& path, bool wait_for_listener,
                                Patience& patience) {
  LUMEN_RETURN_IF_ERROR(check_unix_path(path));
  const sockaddr_un address = unix_address(path);
  for (;;) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return Status::from_errno(errno, "bus %s: opening a socket", path.c_str());
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return fd;
    }
    const int error = errno;
    const bool may_come = error == EAGAIN || error == EINTR ||
                          (wait_for_listener && (error == ENOENT || error == ECONNREFUSED));
    if (!may_come || patience.is_over()) {
      const char* fix = error == ENOENT || error == ECONNREFUSED ? " (nobody listens there yet)"
                        : error == EPROTOTYPE ? " (the socket there is not one of Lumen's bus)"
                                              : "";
      if (may_come) {
        return Status::error(Code::kDeadlineExceeded, "bus %s: connecting%s: %s", path.c_str(), fix,
                             std::strerror(error));
      }
      return Status::from_errno(error, "bus %s: connecting%s", path.c_str(), fix);
    }
    if (patience.sleep({}, now_ns() + kTryAgainNs) == Woken::kInterrupted) {
      return Status::error(Code::kCancelled,
                           "bus %s: a signal came while a listener was waited for", path.c_str());
    }
  }
}

Result<Connection> connect(const std::string& path, const ConnectOptions& options) {
  const uint64_t deadline_ns =
      options.deadline_ns != 0 ? options.deadline_ns : now_ns() + kDefaultPatienceNs;
  Patience patience(deadline_ns, options.goes_on);
  auto socket = connect_socket(path, options.wait_for_listener, patience);
  if (!socket.ok()) return socket.status();
  const std::optional<PeerCredentials> listener = peer_credentials(socket->get());
  if (!listener) return Status::error(Code::kInternal, "bus %s: no credentials", path.c_str());
  if (!options.listener_users.empty() &&
      std::ranges::find(options.listener_users, listener->uid) == options.listener_users.end()) {
    return Status::error(Code::kForbidden,
                         "bus %s: user %u listens there, who is not the wanted one", path.c_str(),
                         listener->uid);
  }
  Hello hello;
  hello.role = static_cast<uint32_t>(options.role);
  // Where it fails, the listener has refused already, and its answer says why.
  (void)!::send(socket->get(), &hello, sizeof(hello), MSG_NOSIGNAL);
  auto received = receive_welcome(socket->get(), patience);
  if (!received.ok()) return received.status().at(path);
  Welcome& welcome = received->welcome;
  if (welcome.answer != Answer::kWelcome) {
    welcome.text.back() = '\0';
    // It may come to a terminal or a log.
    std::ranges::replace_if(
        welcome.text, [](unsigned char c) { return c == 0x7f || (c != 0 && c < 0x20); }, '?');
    return Status::error(code_of(welcome.answer), "bus %s: refused: %s", path.c_str(),
                         welcome.text.data());
  }
  Connection connection;
  UniqueFd process = open_peer_process(socket->get(), *listener);
  connection.peer =
      std::make_shared<Peer>(std::move(socket).value(), std::move(process), *listener);
  if (Status status = take_memory(connection, *received, options.role); !status.ok()) {
    return status.at(path);
  }
  return connection;
}

}  // namespace lumen::bus
