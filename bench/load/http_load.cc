// bench_http_load: N clients in a closed loop over keep-alive connections, from one thread. Each sends
// the same prepared request, waits for its whole reply, and sends again.
//   bench_http_load HOST PORT REQUEST_FILE CONNECTIONS SECONDS WARM_UP_SECONDS
// Threads: one; it polls epoll without ever sleeping, because a wake-up costs 20 us on small machines
// and would be booked as the server's: give it a core of its own.
// Memory: before the run. Says no: exit status 1 and a line; every reply must be a 200 with a
// Content-Length, and as long as the first one.
#include <lumen/base/clock.h>
#include <lumen/base/unique_fd.h>

#include "summary.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using lumen::now_ns;
using lumen::UniqueFd;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_http_load: %s\n", what.c_str());
  std::exit(1);
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Bytes of the whole reply once its head is there; nullopt before that.
std::optional<size_t> reply_bytes(std::string_view received) {
  const size_t end = received.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  if (!received.starts_with("HTTP/1.1 200")) {
    fail("wanted a 200, got: " + std::string(received.substr(0, 600)));
  }
  std::string_view lines = received.substr(0, end + 2);
  while (!lines.empty()) {
    const size_t line_end = lines.find("\r\n");
    const std::string_view line = lines.substr(0, line_end);
    lines.remove_prefix(line_end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (!equal_ignoring_case(line.substr(0, colon), "content-length")) continue;
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    size_t length = 0;
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    if (error != std::errc{} || rest != value.data() + value.size()) break;
    return end + 4 + length;
  }
  fail("a reply without Content-Length: " + std::string(received.substr(0, end)));
}

struct Client {
  UniqueFd fd;
  size_t sent = 0;
  size_t received = 0;
  uint64_t started_ns = 0;
  std::vector<char> buffer;
};

class Load {
 public:
  Load(const sockaddr_in& address, std::string request, size_t connections)
      : request_(std::move(request)), epoll_(epoll_create1(EPOLL_CLOEXEC)), clients_(connections) {
    for (Client& client : clients_) connect_client(client, address);
  }

  // Runs warm-up and measurement; the window's requests go into `summary`.
  double run(uint64_t warm_up_ns, uint64_t window_ns, lumen::bench::Summary& summary) {
    const uint64_t begin_ns = now_ns() + warm_up_ns;
    const uint64_t end_ns = begin_ns + window_ns;
    for (Client& client : clients_) begin_request(client);
    std::vector<epoll_event> events(clients_.size());
    uint64_t now = now_ns();
    uint64_t progress_ns = now;
    while (now < end_ns) {
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
      for (int i = 0; i < count; ++i) {
        Client& client = *static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
        if (client.sent < request_.size()) continue_sending(client);
        receive(client, begin_ns, summary);
      }
      now = now_ns();
      if (count > 0) progress_ns = now;
      if (now - progress_ns > 20'000'000'000u) fail("no reply for 20 s");
    }
    return static_cast<double>(now - begin_ns) / 1e9;
  }

 private:
  void connect_client(Client& client, const sockaddr_in& address) {
    client.fd = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (connect(client.fd.get(), generic, sizeof(address)) != 0) {
      fail(std::string("connect: ") + strerror(errno));
    }
    const int on = 1;
    setsockopt(client.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(client.fd.get(), F_SETFL, O_NONBLOCK);
    client.buffer.resize(64 * 1024);
    // Edge-triggered for both directions: registered once, no epoll_ctl on the way.
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = &client;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.fd.get(), &event);
  }

  void begin_request(Client& client) {
    client.sent = 0;
    client.received = 0;
    client.started_ns = now_ns();
    continue_sending(client);
  }

  void continue_sending(Client& client) {
    while (client.sent < request_.size()) {
      const ssize_t bytes = send(client.fd.get(), request_.data() + client.sent,
                                 request_.size() - client.sent, MSG_NOSIGNAL);
      if (bytes > 0) {
        client.sent += static_cast<size_t>(bytes);
      } else if (errno == EAGAIN) {
        return;
      } else if (errno != EINTR) {
        fail(std::string("send: ") + strerror(errno));
      }
    }
  }

  void receive(Client& client, uint64_t begin_ns, lumen::bench::Summary& summary) {
    for (;;) {
      const ssize_t bytes = recv(client.fd.get(), client.buffer.data() + client.received,
                                 client.buffer.size() - client.received, 0);
      if (bytes == 0) fail("the server closed a connection");
      if (bytes < 0) {
        if (errno == EAGAIN) return;
        if (errno == EINTR) continue;
        fail(std::string("recv: ") + strerror(errno));
      }
      client.received += static_cast<size_t>(bytes);
      const auto whole = reply_bytes({client.buffer.data(), client.received});
      if (whole && *whole > client.buffer.size()) client.buffer.resize(*whole);
      if (!whole || client.received < *whole) continue;
      if (client.received != *whole) fail("more bytes than the reply's Content-Length");
      finish_request(client, *whole, begin_ns, summary);
      // Most often the reply to the next request is not there yet; epoll tells.
      return;
    }
  }

  void finish_request(Client& client, size_t size, uint64_t begin_ns,
                      lumen::bench::Summary& summary) {
    const uint64_t now = now_ns();
    if (reply_size_ == 0) reply_size_ = size;
    // A request id or a counter in a head may change the length by some digits, no more.
    if (size > reply_size_ + 64 || size + 64 < reply_size_) {
      fail("replies differ: " + std::to_string(size) + " bytes after " +
           std::to_string(reply_size_));
    }
    if (now >= begin_ns) summary.add_ns(now - client.started_ns);
    begin_request(client);
  }

  const std::string request_;
  UniqueFd epoll_;
  std::vector<Client> clients_;
  size_t reply_size_ = 0;
};

std::string read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(std::string("can't read ") + path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fail("usage: bench_http_load HOST PORT REQUEST_FILE CONNECTIONS SECONDS WARM_UP_SECONDS");
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) fail("HOST must be an IPv4 address");
  const int connections = std::atoi(argv[4]);
  if (connections < 1 || connections > 10'000) fail("CONNECTIONS must be 1 to 10000");
  const auto window_ns = static_cast<uint64_t>(std::atof(argv[5]) * 1e9);
  const auto warm_up_ns = static_cast<uint64_t>(std::atof(argv[6]) * 1e9);
  lumen::bench::Summary summary;
  Load load(address, read_file(argv[3]), static_cast<size_t>(connections));
  const double seconds = load.run(warm_up_ns, window_ns, summary);
  summary.print(seconds);
  return 0;
}
