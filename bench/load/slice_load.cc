// bench_slice_load: a closed loop against one of several servers at a time, for as long as it is
// told, over connections that stay. For benches that measure servers in turns of 100 ms
// (bench/watching.py).
//   bench_slice_load REQUEST_FILE CONNECTIONS PORT...
// A line on stdin, "TARGET MILLISECONDS" (TARGET counts the ports from 0), is one slice; its answer
// on stdout is "REPLIES NANOSECONDS", once the last reply is there: between slices no server has a
// request.
// Threads: one, which polls epoll without sleeping while a slice runs (a wake-up of its own would
// let the server idle) and waits in read() between them. Memory: before the first slice.
// Errors: exit status 1 and a line; every reply must be a 200.
#include <lumen/client/client_connection.h>
#include <lumen/client/target.h>

#include <lumen/base/clock.h>

#include <sys/epoll.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace client = lumen::client;

constexpr uint64_t kTimeoutNs = 20'000'000'000u;
constexpr int kMaxConnections = 10'000;
constexpr uint64_t kMaxSliceMs = 60'000;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_slice_load: %s\n", what.c_str());
  std::exit(1);
}

std::string read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(std::string("can't read ") + path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

struct Client {
  Client(const client::Target& target, int epoll_fd)
      : connection(target, epoll_fd, this, kTimeoutNs) {}
  client::ClientConnection connection;
};

// One server with its clients, which an epoll of its own watches.
struct Server {
  client::Target target;
  lumen::UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  std::deque<Client> clients;  // epoll points at them: they don't move

  static void settle(const client::ClientConnection& connection, client::Step step) {
    if (step == client::Step::kFailed) fail(connection.error_text());
    if (connection.status() != 200) {
      fail("a reply of status " + std::to_string(connection.status()) + ": " +
           std::string(connection.reply_start().substr(0, 300)));
    }
  }

  // Replies until `end_ns`, and of those that were asked for by then.
  uint64_t run(const std::string& request, uint64_t end_ns) {
    uint64_t replies = 0;
    size_t busy = 0;
    const auto begin = [&](client::ClientConnection& connection) {
      const client::Step step = connection.begin(request);
      if (step == client::Step::kPending) {
        ++busy;
      } else {
        settle(connection, step);
        ++replies;
      }
    };
    for (Client& client : clients) begin(client.connection);
    std::array<epoll_event, 256> events;
    const uint64_t deadline_ns = end_ns + kTimeoutNs;
    while (busy != 0) {
      const int count =
          ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
      const uint64_t now = lumen::now_ns();
      if (now > deadline_ns) fail("no reply for 20 s");
      for (int i = 0; i < count; ++i) {
        auto& connection =
            static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr)->connection;
        const bool was_asked = connection.is_busy();
        const client::Step step = connection.advance();
        if (!was_asked || step == client::Step::kPending) continue;
        settle(connection, step);
        ++replies;
        --busy;
        if (now < end_ns) begin(connection);
      }
    }
    return replies;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) fail("usage: bench_slice_load REQUEST_FILE CONNECTIONS PORT...");
  const std::string request = read_file(argv[1]);
  const int count = std::atoi(argv[2]);
  if (count < 1 || count > kMaxConnections) fail("CONNECTIONS must be 1 to 10000");
  std::deque<Server> servers;
  for (int i = 3; i < argc; ++i) {
    Server& server = servers.emplace_back();
    auto target = client::parse_target(std::string("http://127.0.0.1:") + argv[i]);
    if (!target.ok()) fail(std::string(target.status().message()));
    server.target = *target;
    for (int j = 0; j < count; ++j) {
      server.clients.emplace_back(server.target, server.epoll.get());
    }
  }
  std::array<char, 128> line;
  while (std::fgets(line.data(), line.size(), stdin) != nullptr) {
    char* rest = nullptr;
    const uint64_t which = std::strtoull(line.data(), &rest, 10);
    const uint64_t ms = std::strtoull(rest, nullptr, 10);
    if (which >= servers.size() || ms == 0 || ms > kMaxSliceMs) {
      fail(std::string("got '") + line.data() + "', wanted TARGET MILLISECONDS");
    }
    const uint64_t begin_ns = lumen::now_ns();
    const uint64_t replies = servers[which].run(request, begin_ns + ms * 1'000'000u);
    std::printf("%llu %llu\n", static_cast<unsigned long long>(replies),
                static_cast<unsigned long long>(lumen::now_ns() - begin_ns));
    std::fflush(stdout);
  }
  return 0;
}
