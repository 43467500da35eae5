// A whole server for a fuzz target, and the client's end of a connection to it, whose bytes come in
// parts as an input says. Clients of TCP may not change the server, those of its unix socket may.
// Threads: the fuzzer's; the server's own. Memory: the heap. Errors: CHECK, where the server
// neither answers nor closes, or does not serve another client.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/server/server.h>

#include "fuzz/fuzz_support.h"
#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/temp_repository.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lumen::fuzz {

// More repeats what was sent before.
inline constexpr size_t kMostSentBytes = size_t{1} << 20;

inline std::string of_four(float value) { return server::floats({value, value, value, value}); }

// The bytes of an input, from its front; zeros where it has ended.
class Steps {
 public:
  Steps(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  [[nodiscard]] bool is_empty() const { return left_.empty(); }
  uint8_t byte() {
    const std::string_view one = bytes(1);
    return one.empty() ? uint8_t{0} : static_cast<uint8_t>(one[0]);
  }
  std::string_view bytes(size_t most) {
    const std::string_view taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

// Its models "plus_one" and "comes_and_goes" add one to rows of four numbers.
class LiveServer {
 public:
  explicit LiveServer(const std::function<void(server::ServerOptions&)>& change = nullptr) {
    repository_.add_model("plus_one");
    repository_.add_model("comes_and_goes");
    server::ServerOptions options;
    options.http_address = "127.0.0.1:0";
    options.unix_path = (repository_.path() / "socket").string();
    options.model_repository = repository_.path();
    options.max_connections = 16;
    options.max_active_requests = 4;  // one that is lost is soon missed
    options.max_body_bytes = 64 * 1024;
    options.stats_path = "off";
    options.backend_choices = "off";
    options.compiled_models = "off";
    // Runs on the I/O thread, so that a reply is there before that of the next PING.
    options.engine.queue_type = models::QueueType::kInline;
    if (change) change(options);
    auto started = server::Server::start(
        options, models::make_fake_backend(std::make_shared<models::FakeControl>()));
    LUMEN_CHECK(started.ok());
    server_ = std::move(*started);
    other_ =
        std::make_unique<server::HttpClient>(server::HttpClient::over_unix(server_->unix_path()));
  }
  [[nodiscard]] std::string address() const { return server_->http_address(); }
  [[nodiscard]] std::string unix_path() const { return server_->unix_path(); }
  server::HttpReply ask_as_another(std::string_view request) { return other_->exchange(request); }
  // Unlike any before, of the last sixteen million; it and the next are whole numbers of FP32.
  float next_value() {
    value_ = value_ < 16'000'000 ? value_ + 1 : 1;
    return value_;
  }
  void serves_others() {
    const float value = next_value();
    const server::HttpReply reply =
        ask_as_another(server::binary_infer("plus_one", "x", of_four(value)));
    LUMEN_CHECK(reply.status == 200 && server::binary_part(reply) == of_four(value + 1));
  }

 private:
  models::TempRepository repository_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<server::HttpClient> other_;
  float value_ = 0;
};

class Connection {
 public:
  enum class Way : uint8_t { kTcp, kUnix };
  explicit Connection(LiveServer& server, Way way = Way::kTcp)
      : server_(server),
        socket_(way == Way::kTcp ? connect_to(server.address())
                                 : connect_to_unix(server.unix_path())) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The whole life of the connection; afterwards the server must serve another client.
  void live(Steps& steps) {
    while (!steps.is_empty() && !is_full() && !is_over_) step(steps);
    finish();
    server_.serves_others();
  }

 protected:
  virtual void on_received(std::string_view bytes) = 0;
  virtual void step(Steps& steps) = 0;
  virtual void finish() = 0;  // with end()

  // The input's own bytes, as they are: whole parts can't be told apart from here on.
  void send_any(Steps& steps) {
    send(steps.bytes(steps.byte()));
    is_whole_ = false;
  }
  // All bytes so far are whole requests, frames or records.
  [[nodiscard]] bool is_whole() const { return is_whole_; }
  void break_up() { is_whole_ = false; }

  [[nodiscard]] LiveServer& server() { return server_; }
  // The server has closed.
  [[nodiscard]] bool is_over() const { return is_over_; }
  void send(std::string_view bytes) { out_ += bytes; }
  [[nodiscard]] bool is_full() const { return sent_ + out_.size() >= kMostSentBytes; }

  // Sends a part of the bytes so far, 255: all. The server has most likely read it when it has
  // answered another client, and waits for the rest.
  void cut(uint8_t part) {
    flush(out_.size() * (UINT8_MAX - size_t{part}) / UINT8_MAX);
    server_.serves_others();
  }
  void flush(size_t kept_bytes = 0) {
    while (out_.size() > kept_bytes && !is_over_) {
      wait(POLLIN | POLLOUT);
      const ssize_t sent =
          ::send(socket_.get(), out_.data(), out_.size() - kept_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) is_over_ = true;
      if (sent <= 0) continue;
      sent_ += static_cast<size_t>(sent);
      out_.erase(0, static_cast<size_t>(sent));
    }
  }
  void receive() { wait(POLLIN); }
  // The client sends no more, and the server answers and closes.
  void end() {
    flush();
    ::shutdown(socket_.get(), SHUT_WR);
    while (!is_over_) receive();
  }

 private:
  static UniqueFd connect_to(const std::string& address) {
    // A source address of its own, since ports of one are not free again for a minute.
    static uint32_t number = 0;
    number = number % 0xfffff + 1;
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK + number);
    auto* const any = reinterpret_cast<sockaddr*>(&where);
    LUMEN_CHECK(::bind(fd.get(), any, sizeof(where)) == 0);
    const std::string port = address.substr(address.rfind(':') + 1);
    where.sin_port = htons(static_cast<uint16_t>(std::strtoul(port.c_str(), nullptr, 10)));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int outcome = 0;
    do {
      outcome = ::connect(fd.get(), any, sizeof(where));
    } while (outcome != 0 && (errno == EINTR || errno == EALREADY));  // the fuzzer has a timer
    LUMEN_CHECK(outcome == 0 || errno == EISCONN);
    return fd;
  }

  static UniqueFd connect_to_unix(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    path.copy(where.sun_path, sizeof(where.sun_path) - 1);
    int outcome = 0;
    do {
      outcome = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where));
    } while (outcome != 0 && errno == EINTR);
    LUMEN_CHECK(outcome == 0);
    return fd;
  }

  void wait(short events) {
    constexpr int kPatienceMs = 20'000;  // longer than any reply takes, on a machine that is busy
    pollfd one{socket_.get(), events, 0};
    int ready = 0;
    do {
      ready = ::poll(&one, 1, kPatienceMs);
    } while (ready < 0 && errno == EINTR);  // the fuzzer has a timer
    LUMEN_CHECK(ready == 1);  // neither a reply nor a closed connection
    if ((one.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    std::array<char, 65536> bytes;  // not set: ASan knows
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) return on_received({bytes.data(), static_cast<size_t>(got)});
    is_over_ = true;
  }

  LiveServer& server_;
  UniqueFd socket_;
  std::string out_;
  size_t sent_ = 0;
  bool is_over_ = false;
  bool is_whole_ = true;
};

}  // namespace lumen::fuzz
