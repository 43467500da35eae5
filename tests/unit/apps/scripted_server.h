// ScriptedServer: an HTTP server on a unix socket that treats each request as a test says.
// Threads: one accepts, one a connection; the script is called by the latter. Memory: the heap.
// Errors: CHECK; a test's own server has no business failing.
#pragma once

#include <lumen/base/check.h>
#include <lumen/base/unique_fd.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>

namespace lumen::client {

inline std::string reply_of(int status, std::string_view body, std::string_view more = "") {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + std::string(more) +
         "\r\n" + std::string(body);
}

class ScriptedServer {
 public:
  struct Answer {
    std::string bytes;
    size_t piece_bytes = SIZE_MAX;  // written in pieces of that size
    bool then_close = false;
    bool never = false;  // holds the connection until the server ends
  };
  using Script = std::function<Answer(std::string_view request, uint64_t number)>;

  // `heads_only`: answers when the head is there, and reads the body afterwards.
  explicit ScriptedServer(Script script, bool heads_only = false)
      : script_(std::move(script)), heads_only_(heads_only) {
    char folder[] = "/tmp/lumen-load-XXXXXX";
    LUMEN_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    path_ = folder_ + "/s";
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    LUMEN_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    LUMEN_CHECK(listen(listener_.get(), 128) == 0);
    LUMEN_CHECK(pipe(stop_) == 0);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    close(stop_[1]);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(stop_[0]);
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  [[nodiscard]] std::string url() const { return "unix:" + path_; }
  [[nodiscard]] uint64_t requests() const { return requests_.load(); }
  [[nodiscard]] uint64_t connections() const { return connections_.load(); }

 private:
  // False when the server ends.
  bool wait_readable(int fd) const {
    pollfd entries[2] = {{fd, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    while (poll(entries, 2, -1) < 0) {
    }
    return entries[1].revents == 0;
  }

  void accept_all() {
    while (wait_readable(listener_.get())) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++connections_;
      threads_.emplace_back([this, fd] { serve(UniqueFd(fd)); });
    }
  }

  void serve(UniqueFd fd) {
    std::string received;
    for (;;) {
      const size_t size = request_bytes(received);
      if (size == 0 || received.size() < size) {
        char bytes[65536];
        if (!wait_readable(fd.get())) return;
        const ssize_t count = recv(fd.get(), bytes, sizeof(bytes), 0);
        if (count <= 0) return;
        received.append(bytes, static_cast<size_t>(count));
        continue;
      }
      const Answer answer = script_(std::string_view(received).substr(0, size), ++requests_);
      received.erase(0, size);
      if (answer.never) {
        while (wait_readable(fd.get()) && recv(fd.get(), received.data(), received.size(), 0) > 0) {
        }
        return;
      }
      write_all(fd.get(), answer);
      if (answer.then_close) return end_politely(fd.get());
    }
  }

  // 0: not known yet.
  [[nodiscard]] size_t request_bytes(std::string_view received) const {
    const size_t end = received.find("\r\n\r\n");
    if (end == std::string_view::npos) return 0;
    if (heads_only_) return end + 4;
    constexpr std::string_view kName = "\r\nContent-Length: ";
    const size_t at = received.find(kName);
    LUMEN_CHECK(at < end);
    size_t length = 0;
    std::from_chars(received.data() + at + kName.size(), received.data() + end, length);
    return end + 4 + length;
  }

  static void write_all(int fd, const Answer& answer) {
    std::string_view rest = answer.bytes;
    while (!rest.empty()) {
      const size_t wanted = std::min(rest.size(), answer.piece_bytes);
      const ssize_t count = send(fd, rest.data(), wanted, MSG_NOSIGNAL);
      if (count <= 0) return;
      rest.remove_prefix(static_cast<size_t>(count));
    }
  }

  // Reads bytes that the client still sends: closing over unread bytes would reset the connection,
  // and the reply with it.
  void end_politely(int fd) const {
    shutdown(fd, SHUT_WR);
    char bytes[65536];
    while (wait_readable(fd) && recv(fd, bytes, sizeof(bytes), 0) > 0) {
    }
  }

  Script script_;
  bool heads_only_;
  std::string folder_;
  std::string path_;
  UniqueFd listener_;
  int stop_[2] = {-1, -1};
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> connections_{0};
  std::list<std::thread> threads_;  // made by the acceptor, joined after it
  std::thread acceptor_;
};

}  // namespace lumen::client
