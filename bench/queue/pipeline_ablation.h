// The ablation: the server's no-op path over socket pairs, with one decision of the pipeline
// changed at a time.
//
//   client thread --16 socket pairs--> I/O thread --push--> stage 0, a no-op --> stage 1 writes the reply
//
// and, as the server does it ("server-queues": the A/B of its completion path), without a stage 1:
//
//   I/O thread --MpmcQueue, doorbell--> worker, a no-op --MpmcQueue, eventfd--> I/O thread writes
//
// Closed loop, one request of 32 bytes in flight a connection. Prints requests/s, the CPU time that
// a request still finds in the one-thread stage 0 (wall time a request less the time of the stage's
// own machinery), CPU in percent of one core, idle CPU after the load, and the worst latency.
// Threads: four. Memory: before measuring. Errors: exit 2.
#pragma once

#include "harness.h"

#include <lumen/base/unique_fd.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/thread_pipeline.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <ctime>

namespace lumen::bench {

inline constexpr const char* kAblationVariants[] = {"every-stage", "last-stage", "batch-limit-1",
                                                    "fixed-spins", "adaptive",   "server-queues"};
inline constexpr size_t kPairs = 16;
inline constexpr size_t kRequestBytes = 32;

struct Connection {
  int client = -1;
  int server = -1;
  uint64_t sent_ns = 0;
};

struct NoOp {
  void operator()(Connection*&) const noexcept {}
};
struct Reply {
  void operator()(Connection*& connection) const noexcept {
    const std::array<char, kRequestBytes> reply{};
    if (::write(connection->server, reply.data(), reply.size()) < 0) std::exit(2);
  }
};

inline uint64_t cpu_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

inline clockid_t clock_of(std::thread& thread) {
  clockid_t clock{};
  pthread_getcpuclockid(thread.native_handle(), &clock);
  return clock;
}

class Sockets {
 public:
  Sockets()
      : server_poll_(::epoll_create1(EPOLL_CLOEXEC)), client_poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (Connection& connection : connections_) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        std::exit(2);
      connection.client = ends[0];
      connection.server = ends[1];
      add(client_poll_, connection.client, &connection);
      add(server_poll_, connection.server, &connection);
    }
  }
  ~Sockets() {
    for (Connection& connection : connections_) {
      ::close(connection.client);
      ::close(connection.server);
    }
    ::close(server_poll_);
    ::close(client_poll_);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Calls `ready(connection, bytes read)` for all that is readable now.
  template <typename Ready>
  static void poll(int epoll, int timeout_ms, bool server_side, Ready&& ready) {
    std::array<epoll_event, kPairs> events;
    const int count = ::epoll_wait(epoll, events.data(), kPairs, timeout_ms);
    for (int i = 0; i < count; ++i) {
      auto* connection = static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
      if (connection == nullptr) {  // the waker
        ready(connection);
        continue;
      }
      std::array<char, kRequestBytes> bytes;
      const int fd = server_side ? connection->server : connection->client;
      if (::read(fd, bytes.data(), bytes.size()) > 0) ready(connection);
    }
  }
  void send(Connection& connection) {
    const std::array<char, kRequestBytes> request{};
    connection.sent_ns = now_ns();
    if (::write(connection.client, request.data(), request.size()) < 0) std::exit(2);
  }

  std::array<Connection, kPairs> connections_;
  int server_poll_;
  int client_poll_;

 private:
  static void add(int epoll, int fd, Connection* connection) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = connection;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
};

// One pipeline between the I/O thread and the replies.
template <size_t kStage0Limit>
class PipelineServer {
 public:
  PipelineServer(const PipelineOptions& options, Sockets& sockets)
      : sockets_(sockets), pipeline_(options, {}, {}), io_([this] { serve(); }) {}

  void join() {
    stop_.store(true, std::memory_order_relaxed);
    io_.join();
  }
  clockid_t stage_0_clock() { return clock_of(pipeline_.threads()[0]); }
  uint64_t wakes_were() { return pipeline_.core().wakes_were(); }

 private:
  void serve() {
    auto producer = pipeline_.producer();
    while (!stop_.load(std::memory_order_relaxed)) {
      Sockets::poll(sockets_.server_poll_, 100, true, [&](Connection* connection) {
        static_cast<void>(producer.push(std::move(connection)));
      });
    }
  }

  Sockets& sockets_;
  ThreadPipeline<Connection*, Producers::kOne, Stage<NoOp, 1, kStage0Limit>, Stage<Reply>>
      pipeline_;
  std::atomic<bool> stop_{false};
  std::thread io_;
};

// Ends a loop's sleep in epoll_wait, by an eventfd that is written once a sleep.
class LoopWaker {
 public:
  LoopWaker() {
    if (!event_.valid()) std::exit(2);
  }
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  void announce_sleep() noexcept { sleeping_.store(1); }
  void end_sleep() noexcept {
    sleeping_.store(0);
    uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd(), &wakes, sizeof(wakes));
  }
  void wake() noexcept {
    if (sleeping_.load() == 0 || sleeping_.exchange(0) == 0) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd(), &one, sizeof(one));
  }

 private:
  std::atomic<uint32_t> sleeping_{0};
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

// The server's own hand-off: requests and completions each by an MPMC queue, the worker parked on a
// doorbell and the I/O thread in its loop's epoll_wait, each woken once for all that came together.
class QueueServer {
 public:
  explicit QueueServer(Sockets& sockets) : sockets_(sockets) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;  // no connection: the waker
    ::epoll_ctl(sockets.server_poll_, EPOLL_CTL_ADD, loop_waker_.fd(), &event);
    worker_ = std::thread([this] { work(); });
    io_ = std::thread([this] { serve(); });
  }

  void join() {
    stop_.store(true, std::memory_order_seq_cst);
    worker_bell_.wake_all();
    loop_waker_.wake();
    worker_.join();
    io_.join();
  }
  clockid_t stage_0_clock() { return clock_of(worker_); }
  uint64_t wakes_were() const { return wakes_.load(std::memory_order_relaxed); }

 private:
  void work() {
    Connection* connection = nullptr;
    bool unflushed = false;
    const auto take = [&] {
      if (!requests_.try_pop(connection)) return false;
      NoOp{}(connection);
      if (!completions_.try_push(std::move(connection))) std::exit(2);
      unflushed = true;
      return true;
    };
    while (!stop_.load(std::memory_order_seq_cst)) {
      if (take()) continue;
      if (std::exchange(unflushed, false)) loop_waker_.wake();
      const Doorbell::Ticket ticket = worker_bell_.prepare();
      if (take() || stop_.load(std::memory_order_seq_cst)) {
        worker_bell_.cancel();
        continue;
      }
      wakes_.fetch_add(1, std::memory_order_relaxed);
      worker_bell_.wait(ticket);
    }
  }

  bool reply_to_completed() {
    Connection* connection = nullptr;
    bool any = false;
    while (completions_.try_pop(connection)) {
      Reply{}(connection);
      any = true;
    }
    return any;
  }

  void serve() {
    while (!stop_.load(std::memory_order_relaxed)) {
      loop_waker_.announce_sleep();
      const bool busy = reply_to_completed();
      uint32_t pushed = 0;
      if (!busy) wakes_.fetch_add(1, std::memory_order_relaxed);
      Sockets::poll(sockets_.server_poll_, busy ? 0 : 100, true, [&](Connection* connection) {
        if (connection == nullptr) return;
        if (!requests_.try_push(std::move(connection))) std::exit(2);
        ++pushed;
      });
      loop_waker_.end_sleep();
      if (pushed > 0) worker_bell_.wake(pushed);
    }
  }

  Sockets& sockets_;
  MpmcQueue<Connection*> requests_{1024};
  MpmcQueue<Connection*> completions_{1024};
  Doorbell worker_bell_;
  LoopWaker loop_waker_;
  std::atomic<uint64_t> wakes_{0};
  std::atomic<bool> stop_{false};
  std::thread worker_;
  std::thread io_;
};

// Joins its threads before the sockets go.
template <typename Server>
int measure_server(Server& server, Sockets& sockets, uint64_t duration_ns) {
  const clockid_t stage_0_clock = server.stage_0_clock();
  uint64_t requests = 0;
  uint64_t worst_ns = 0;
  const uint64_t stage_0_before_ns = cpu_ns(stage_0_clock);
  const uint64_t cpu_before_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
  const uint64_t start_ns = now_ns();
  for (Connection& connection : sockets.connections_) sockets.send(connection);
  size_t in_flight = kPairs;
  while (in_flight != 0) {
    const bool more = now_ns() - start_ns < duration_ns;
    Sockets::poll(sockets.client_poll_, 100, false, [&](Connection* connection) {
      worst_ns = std::max(worst_ns, now_ns() - connection->sent_ns);
      ++requests;
      if (more) {
        sockets.send(*connection);
      } else {
        --in_flight;
      }
    });
  }
  const auto wall_ns = static_cast<double>(now_ns() - start_ns);
  const auto used_ns = static_cast<double>(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns);
  const auto stage_0_ns = static_cast<double>(cpu_ns(stage_0_clock) - stage_0_before_ns);
  const auto wakes = static_cast<double>(server.wakes_were());
  Doorbell nobody;
  nobody.wait(nobody.prepare(), now_ns() + 20'000'000);
  const uint64_t idle_before_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
  nobody.wait(nobody.prepare(), now_ns() + 200'000'000);
  const auto idle_ns = static_cast<double>(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - idle_before_ns);
  const auto count = static_cast<double>(requests);
  std::printf(
      "{\"rps\": %.0f, \"stage0_left_ns\": %.0f, \"cpu_percent\": %.0f, "
      "\"idle_cpu_percent\": %.3f, \"worst_us\": %.1f, \"futex_per_request\": %.4f, "
      "\"requests\": %.0f}\n",
      count * 1e9 / wall_ns, (wall_ns - stage_0_ns) / count, 100 * used_ns / wall_ns,
      100 * idle_ns / 200e6, static_cast<double>(worst_ns) / 1e3, wakes / count, count);
  server.join();
  return 0;
}

template <size_t kStage0Limit>
int ablate(const PipelineOptions& options, uint64_t duration_ns) {
  Sockets sockets;
  PipelineServer<kStage0Limit> server(options, sockets);
  return measure_server(server, sockets, duration_ns);
}

inline int ablate_server_queues(uint64_t duration_ns) {
  Sockets sockets;
  QueueServer server(sockets);
  return measure_server(server, sockets, duration_ns);
}

inline int run_ablation(const std::string& variant, uint64_t duration_ns) {
  PipelineOptions options{.capacity = 1024, .max_spin_ns = 0};
  if (variant == "server-queues") return ablate_server_queues(duration_ns);
  if (variant == "every-stage") {
    options.wake = PipelineWake::kEveryStage;
    return ablate<64>(options, duration_ns);
  }
  if (variant == "last-stage") return ablate<64>(options, duration_ns);
  if (variant == "batch-limit-1") return ablate<1>(options, duration_ns);
  if (variant == "fixed-spins") {
    options.fixed_spins = 100'000;
    return ablate<64>(options, duration_ns);
  }
  if (variant == "adaptive") {
    options.max_spin_ns = IdleStrategy::kMaxSpinNs;
    return ablate<64>(options, duration_ns);
  }
  std::fprintf(stderr, "bench_pipeline: no variant %s; see --list\n", variant.c_str());
  return 2;
}

}  // namespace lumen::bench
