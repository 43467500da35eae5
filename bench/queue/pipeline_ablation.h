// The ablation: the server's no-op path over socket pairs, with one decision of the pipeline
// changed at a time.
//
//   client thread --16 socket pairs--> I/O thread --push--> stage 0, a no-op --> stage 1 writes the reply
//
// Closed loop, one request of 32 bytes in flight a connection. Prints requests/s, the CPU time that
// a request still finds in the one-thread stage 0 (wall time a request less what the stage's own
// machinery used), CPU in percent of one core, idle CPU after the load, and the worst latency.
// Threads: four. Memory: before measuring. Says no: exit 2.
#pragma once

#include "harness.h"

#include <lumen/queue/thread_pipeline.h>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <ctime>

namespace lumen::bench {

inline constexpr const char* kAblationVariants[] = {"every-stage", "last-stage", "batch-limit-1",
                                                    "fixed-spins", "adaptive"};
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

template <size_t kStage0Limit>
int ablate(const PipelineOptions& options, uint64_t duration_ns) {
  Sockets sockets;
  ThreadPipeline<Connection*, Producers::kOne, Stage<NoOp, 1, kStage0Limit>, Stage<Reply>> pipeline(
      options, {}, {});
  clockid_t stage_0_clock{};
  pthread_getcpuclockid(pipeline.threads()[0].native_handle(), &stage_0_clock);
  std::atomic<bool> stop{false};
  std::thread io([&] {
    auto producer = pipeline.producer();
    while (!stop.load(std::memory_order_relaxed)) {
      Sockets::poll(sockets.server_poll_, 100, true, [&](Connection* connection) {
        static_cast<void>(producer.push(std::move(connection)));
      });
    }
  });
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
  stop.store(true, std::memory_order_relaxed);
  io.join();
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
      100 * idle_ns / 200e6, static_cast<double>(worst_ns) / 1e3,
      static_cast<double>(pipeline.core().wakes_were()) / count, count);
  return 0;
}

inline int run_ablation(const std::string& variant, uint64_t duration_ns) {
  PipelineOptions options{.capacity = 1024, .max_spin_ns = 0};
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
