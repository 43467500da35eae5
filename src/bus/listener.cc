// The listener's thread: handshakes, observers, ends of connections. Control plane.
// Errors: a process that connects is told in words; a thread that could not be started is
// create()'s error.
#include <lumen/bus/listener.h>

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/base/unix_socket.h>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "bus/handshake.h"
#include "bus/offer.h"
#include "bus/registry.h"
#include "bus/segments.h"
#include "bus/subscriber_link.h"

namespace lumen::bus {
namespace {

// A process that connects and says nothing holds one of these for handshake_timeout_ns, or until as
// many others wait.
constexpr size_t kMostNewcomers = 64;
// Taken in one turn, so that a flood of them leaves the thread its other work.
constexpr size_t kMostAcceptedATurn = 64;
constexpr size_t kMostObservers = 8;

// A connection whose hello has not come yet.
struct Newcomer {
  UniqueFd socket;
  PeerCredentials credentials;
  uint64_t deadline_ns = 0;
};

// A subscriber of the shared publisher. Its place is free again once it is gone, whether the
// publisher has noticed yet or not.
struct Served {
  std::weak_ptr<Peer> peer;
  std::shared_ptr<const void> lease;
  uint32_t entry = 0;
};

Result<Geometry> geometry_of(const std::string& path, const ListenerOptions& options) {
  Geometry geometry;
  geometry.capacity = options.capacity;
  geometry.slots = options.slots;
  if (geometry.slots == 0) {
    geometry.slots = static_cast<uint32_t>(
        std::clamp<uint64_t>(options.capacity / kPayloadAlign, kLeastSlots, kMostSlots));
  }
  if (!geometry.is_valid()) {
    return Status::error(
        Code::kInvalidArgument,
        "bus %s: got a capacity of %llu bytes and %u frames; wanted powers of two, %llu to %llu "
        "bytes and %u to %u frames",
        path.c_str(), static_cast<unsigned long long>(geometry.capacity), geometry.slots,
        static_cast<unsigned long long>(kLeastCapacity),
        static_cast<unsigned long long>(kMostCapacity), kLeastSlots, kMostSlots);
  }
  if (options.area_bytes % 4096 != 0 || options.area_bytes > kMostCapacity) {
    return Status::error(Code::kInvalidArgument,
                         "bus %s: got an area of %llu bytes, wanted whole pages of 4096 up to %llu",
                         path.c_str(), static_cast<unsigned long long>(options.area_bytes),
                         static_cast<unsigned long long>(kMostCapacity));
  }
  return geometry;
}

class ThreadedListener final : public Listener {
 public:
  ThreadedListener(UnixListener socket, const ListenerOptions& options, const Geometry& geometry)
      : options_(options),
        geometry_(geometry),
        path_(socket.path()),
        socket_(std::move(socket)),
        registry_(std::make_shared<Registry>(options)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        ready_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)) {}

  ~ThreadedListener() override {
    if (fork_count() != born_) {
      // The thread and the socket's file are the parent's: left alone.
      static_cast<void>(new (std::nothrow)
                            std::thread(std::move(thread_)));  // alloc: of a child that ends
      static_cast<void>(new (std::nothrow) UnixListener(std::move(socket_)));  // alloc: as above
      return;
    }
    signal(wake_.get());
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    if (!wake_.valid() || !ready_.valid()) {
      return Status::from_errno(errno, "bus %s: eventfd()", path_.c_str());
    }
    if (options_.role == Role::kPublish) {
      auto file = make_publisher_file(geometry_, true);
      if (!file.ok()) return file.status().at(path_);
      shared_file_.emplace(std::move(file).value());
      pending_ = std::make_shared<PendingSubscribers>();
      publisher_.emplace(shared_file_->memory, pending_);
    }
    // Signals are for the program's own threads.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      status = Status::error(Code::kResourceExhausted, "bus %s: starting a thread: %s",
                             path_.c_str(), error.what());
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
  }

  Accepted accept(uint64_t deadline_ns) override;
  Publisher& publisher() noexcept override {
    LUMEN_CHECK(publisher_.has_value());
    return *publisher_;
  }
  int fd() const noexcept override { return ready_.get(); }
  const std::string& path() const noexcept override { return path_; }
  Counts counts() const override;

 private:
  static void signal(int event) noexcept {
    const uint64_t one = 1;
    (void)!::write(event, &one, sizeof(one));
  }
  void run();
  [[nodiscard]] bool list_polls();
  void accept_newcomers();
  void make_place_for_newcomer();
  void hear_newcomers();
  void answer(Newcomer& newcomer);
  void refuse(const Newcomer& newcomer, Answer answer, std::string_view text);
  [[nodiscard]] bool is_allowed(uid_t uid) const;
  Status welcome(Newcomer& newcomer, Role role);
  Status welcome_subscriber(Newcomer& newcomer, bool lapped);
  void observe(size_t index);
  void look_at_subscribers();

  const ListenerOptions options_;
  const Geometry geometry_;
  const std::string path_;
  UnixListener socket_;
  std::shared_ptr<Registry> registry_;
  UniqueFd wake_;   // ends the thread
  UniqueFd ready_;  // counts the connections that accept() may take
  const uint32_t born_ = fork_count();

  // Role::kPublish
  std::optional<OwnPublisherFile> shared_file_;
  std::shared_ptr<PendingSubscribers> pending_;
  std::optional<Publisher> publisher_;
  std::array<uint32_t, kMostSubscribers> generations_{};
  std::vector<Served> subscribers_;

  // The thread's.
  std::vector<Newcomer> newcomers_;
  std::vector<UniqueFd> observers_;
  std::vector<pollfd> polls_;

  mutable std::mutex mutex_;
  std::deque<Connection> accepted_;
  uint64_t accepted_count_ = 0;
  uint64_t refused_count_ = 0;
  std::thread thread_;
};

Listener::Accepted ThreadedListener::accept(uint64_t deadline_ns) {
  if (fork_count() != born_) return {Outcome::kForked, std::nullopt};
  std::array<pollfd, 1> fds = {pollfd{ready_.get(), POLLIN, 0}};
  for (;;) {
    uint64_t one = 0;
    if (::read(ready_.get(), &one, sizeof(one)) == sizeof(one)) {
      const std::scoped_lock lock(mutex_);
      Accepted accepted{Outcome::kOk, std::move(accepted_.front())};
      accepted_.pop_front();
      return accepted;
    }
    const Woken woken = sleep_on(fds, deadline_ns);
    if (woken == Woken::kTimedOut) return {Outcome::kTimedOut, std::nullopt};
    if (woken == Woken::kInterrupted) return {Outcome::kInterrupted, std::nullopt};
  }
}

Listener::Counts ThreadedListener::counts() const {
  Counts counts{0, 0, registry_->connections(), registry_->bytes()};
  const std::scoped_lock lock(mutex_);
  counts.accepted = accepted_count_;
  counts.refused = refused_count_;
  return counts;
}

// False: a subscriber is gone that look_at_subscribers() has not seen.
bool ThreadedListener::list_polls() {
  polls_.clear();
  polls_.push_back({wake_.get(), POLLIN, 0});
  polls_.push_back({socket_.fd(), POLLIN, 0});
  for (const Newcomer& newcomer : newcomers_) polls_.push_back({newcomer.socket.get(), POLLIN, 0});
  for (const UniqueFd& observer : observers_) polls_.push_back({observer.get(), POLLIN, 0});
  for (const Served& served : subscribers_) {
    const std::shared_ptr<Peer> peer = served.peer.lock();
    if (peer == nullptr || peer->state() != Outcome::kOk) return false;
    polls_.push_back(peer->connection_poll());
    polls_.push_back(peer->process_poll());
  }
  return true;
}

void ThreadedListener::run() {
  ::pthread_setname_np(::pthread_self(), "lumen-bus");
  for (;;) {
    do {
      look_at_subscribers();
    } while (!list_polls());
    uint64_t deadline_ns = UINT64_MAX;
    for (const Newcomer& newcomer : newcomers_) {
      deadline_ns = std::min(deadline_ns, newcomer.deadline_ns);
    }
    (void)sleep_on(polls_, deadline_ns);
    if ((polls_[0].revents & POLLIN) != 0) return;
    const bool somebody_comes = polls_[1].revents != 0;
    const size_t observers_at = 2 + newcomers_.size();
    for (size_t i = observers_.size(); i-- > 0;) {
      if (polls_[observers_at + i].revents != 0) observe(i);
    }
    look_at_subscribers();  // first: a new one may take the place of one that is gone
    hear_newcomers();
    if (somebody_comes) accept_newcomers();
  }
}

// The one that has waited longest without a word goes.
void ThreadedListener::make_place_for_newcomer() {
  if (newcomers_.size() < kMostNewcomers) return;
  hear_newcomers();
  if (newcomers_.size() < kMostNewcomers) return;
  refuse(newcomers_.front(), Answer::kFull, "too many connect and say nothing; try again");
  newcomers_.erase(newcomers_.begin());
}

void ThreadedListener::accept_newcomers() {
  for (size_t i = 0; i < kMostAcceptedATurn; ++i) {
    UniqueFd socket(::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      // Out of descriptors: the one that waits would be told at once, for ever. A pause instead.
      constexpr uint64_t kPauseNs = 20'000'000;
      if (errno == EMFILE || errno == ENFILE) (void)sleep_on({}, now_ns() + kPauseNs);
      return;
    }
    const std::optional<PeerCredentials> credentials = peer_credentials(socket.get());
    if (!credentials) continue;
    Newcomer newcomer{std::move(socket), *credentials, now_ns() + options_.handshake_timeout_ns};
    if (!is_allowed(credentials->uid)) {
      refuse(newcomer, Answer::kForbidden,
             "user " + std::to_string(credentials->uid) + " may not connect here");
      continue;
    }
    make_place_for_newcomer();
    newcomers_.push_back(std::move(newcomer));
  }
}

bool ThreadedListener::is_allowed(uid_t uid) const {
  if (options_.users.empty()) return uid == ::geteuid() || uid == 0;
  return std::ranges::find(options_.users, uid) != options_.users.end();
}

void ThreadedListener::refuse(const Newcomer& newcomer, Answer answer, std::string_view text) {
  (void)send_with_descriptors(newcomer.socket.get(), refusal(answer, text), {});
  const std::scoped_lock lock(mutex_);
  ++refused_count_;
}

void ThreadedListener::hear_newcomers() {
  const uint64_t now = now_ns();
  for (size_t i = newcomers_.size(); i-- > 0;) {
    pollfd readable{newcomers_[i].socket.get(), POLLIN, 0};
    if (::poll(&readable, 1, 0) > 0) {
      Newcomer newcomer = std::move(newcomers_[i]);
      newcomers_.erase(newcomers_.begin() + static_cast<std::ptrdiff_t>(i));
      answer(newcomer);
    } else if (now >= newcomers_[i].deadline_ns) {
      refuse(newcomers_[i], Answer::kMalformed, "no hello came in time");
      newcomers_.erase(newcomers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void ThreadedListener::answer(Newcomer& newcomer) {
  Hello hello;
  // Without a place for them the kernel closes descriptors that came along.
  const ssize_t got =
      ::recv(newcomer.socket.get(), &hello, sizeof(hello), MSG_DONTWAIT | MSG_TRUNC);
  if (got <= 0) return;  // gone again
  if (got != sizeof(hello) || hello.magic != kMagic) {
    refuse(newcomer, Answer::kMalformed,
           "got a hello of " + std::to_string(got) +
               " bytes that is none of this protocol, wanted " + std::to_string(sizeof(hello)));
    return;
  }
  if (hello.oldest > kNewestProtocol || hello.newest < kOldestProtocol) {
    refuse(newcomer, Answer::kVersion,
           "it speaks versions " + std::to_string(hello.oldest) + " to " +
               std::to_string(hello.newest) + ", this side " + std::to_string(kOldestProtocol) +
               " to " + std::to_string(kNewestProtocol) + "; use the same release on both sides");
    return;
  }
  if (hello.role == kObserve) {
    if (observers_.size() < kMostObservers) observers_.push_back(std::move(newcomer.socket));
    return;
  }
  const auto role = static_cast<Role>(hello.role);
  const bool fits = options_.role == Role::kPublish
                        ? role == Role::kSubscribe || role == Role::kSubscribeLossy
                    : options_.role == Role::kBoth ? role == Role::kBoth
                                                   : role == Role::kPublish;
  if (!fits) {
    const char* wants = options_.role == Role::kPublish ? "subscribers"
                        : options_.role == Role::kBoth  ? "requesters"
                                                        : "publishers";
    refuse(newcomer, Answer::kRole, std::string("only ") + wants + " connect here");
    return;
  }
  const bool shares = options_.role == Role::kPublish;
  const uint64_t ring = sizeof(CursorPage) + (shares ? 0 : geometry_.file_bytes());
  const uint64_t bytes = ring * (role == Role::kBoth ? 2 : 1) + options_.area_bytes;
  if (const std::string full = registry_->refuses(newcomer.credentials, bytes); !full.empty()) {
    refuse(newcomer, Answer::kFull, full);
    return;
  }
  const Status status = shares ? welcome_subscriber(newcomer, role == Role::kSubscribeLossy)
                               : welcome(newcomer, role);
  if (!status.ok() && newcomer.socket.valid()) {
    refuse(newcomer, Answer::kNoMemory, status.message());
  }
}

// A connection of its own, with a ring or two.
Status ThreadedListener::welcome(Newcomer& newcomer, Role role) {
  auto offer = Offer::make(geometry_, role, options_.area_bytes);
  if (!offer.ok()) return offer.status();
  const int socket = newcomer.socket.get();
  UniqueFd process = open_peer_process(socket, newcomer.credentials);
  auto peer =
      std::make_shared<Peer>(std::move(newcomer.socket), std::move(process), newcomer.credentials);
  if (!offer->send(socket)) return {};  // gone again
  Connection connection = offer->take(std::move(peer));
  connection.lease = registry_->add(offer->entry(newcomer.credentials));
  {
    const std::scoped_lock lock(mutex_);
    accepted_.push_back(std::move(connection));
    ++accepted_count_;
  }
  signal(ready_.get());
  return {};
}

// One more subscriber of the shared publisher.
Status ThreadedListener::welcome_subscriber(Newcomer& newcomer, bool lapped) {
  std::array<bool, kMostSubscribers> is_taken{};
  for (const Served& served : subscribers_) is_taken[served.entry] = true;
  const auto free = std::ranges::find(is_taken, false);
  if (free == is_taken.end()) {
    refuse(newcomer, Answer::kFull,
           "all " + std::to_string(kMostSubscribers) + " places of subscribers are taken");
    newcomer.socket.reset();
    return {};
  }
  const auto index = static_cast<uint32_t>(free - is_taken.begin());
  auto cursor = make_cursor_file(false);
  if (!cursor.ok()) return cursor.status();
  auto bells = make_bells();
  if (!bells.ok()) return bells.status();
  Welcome message;
  message.streams = 1;
  message.stream[0] = {geometry_.capacity, geometry_.slots, index, ++generations_[index], 1};
  const int socket = newcomer.socket.get();
  auto peer =
      std::make_shared<Peer>(std::move(newcomer.socket),
                             open_peer_process(socket, newcomer.credentials), newcomer.credentials);
  const std::array<int, 3> descriptors = {shared_file_->file.fd(), cursor->file.fd(),
                                          bells->theirs.get()};
  if (!send_with_descriptors(socket, message, descriptors)) return {};  // gone again
  auto link = std::make_unique<SubscriberLink>();
  link->cursor = cursor->memory;
  link->peer = peer;
  link->bell = Bell(std::move(bells->ours));
  link->holds_back = !lapped;
  link->max_hold_ns = options_.max_hold_ns;
  link->entry = index;
  link->generation = generations_[index];
  auto lease = registry_->add({newcomer.credentials,
                               sizeof(CursorPage),
                               {{shared_file_->memory, cursor->memory, false, lapped}}});
  subscribers_.push_back({peer, std::move(lease), index});
  pending_->add(std::move(link));
  const std::scoped_lock lock(mutex_);
  ++accepted_count_;
  return {};
}

// Each byte that an observer sends is answered by a message a ring, and an empty figure at the end.
void ThreadedListener::observe(size_t index) {
  const int socket = observers_[index].get();
  char byte = 0;
  bool keeps = ::recv(socket, &byte, 1, MSG_DONTWAIT) == 1;
  if (keeps) {
    std::vector<std::vector<uint64_t>> figures = registry_->figures();
    figures.emplace_back(1);  // the end
    for (const std::vector<uint64_t>& one : figures) {
      const size_t bytes = one.size() * sizeof(uint64_t);
      keeps = keeps && ::send(socket, one.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL) ==
                           static_cast<ssize_t>(bytes);
    }
  }
  if (!keeps) observers_.erase(observers_.begin() + static_cast<std::ptrdiff_t>(index));
}

void ThreadedListener::look_at_subscribers() {
  bool some_gone = false;
  std::erase_if(subscribers_, [&](const Served& served) {
    const std::shared_ptr<Peer> peer = served.peer.lock();
    if (peer != nullptr && peer->look() == Outcome::kOk) return false;
    some_gone = true;
    return true;
  });
  if (some_gone) pending_->touch();
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(const std::string& path,
                                                   const ListenerOptions& options) {
  const Result<Geometry> geometry = geometry_of(path, options);
  if (!geometry.ok()) return geometry.status();
  auto socket = listen_unix(path, UnixSocketKind::kMessages);
  if (!socket.ok()) return socket.status();
  auto listener = std::make_unique<ThreadedListener>(std::move(socket).value(), options, *geometry);
  LUMEN_RETURN_IF_ERROR(listener->start());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace lumen::bus
