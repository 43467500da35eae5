// HttpClient: a blocking client that sends the bytes a test wants and reads replies one by one.
// Threads: one. Memory: the heap. Errors: a reply with status 0 when the server has closed or is
// silent for ten seconds.
#pragma once

#include <lumen/base/unique_fd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace lumen::server {

struct HttpReply {
  int status = 0;
  std::string head;
  std::string body;
};

class HttpClient {
 public:
  // `address`: "127.0.0.1:PORT".
  explicit HttpClient(const std::string& address)
      : HttpClient(UniqueFd(::socket(AF_INET, SOCK_STREAM, 0))) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(
        static_cast<uint16_t>(std::strtoul(address.c_str() + address.rfind(':') + 1, nullptr, 10)));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) fd_.reset();
  }

  // `path`: of the server's unix socket.
  static HttpClient over_unix(const std::string& path) {
    HttpClient client(UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0)));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    path.copy(where.sun_path, sizeof(where.sun_path) - 1);
    if (::connect(client.fd_.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) {
      client.fd_.reset();
    }
    return client;
  }

  // False: the server has closed.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  HttpReply read() {
    HttpReply reply;
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more()) return reply;
    }
    reply.head = buffer_.substr(0, end + 4);
    size_t length = 0;
    if (const size_t at = reply.head.find("\r\nContent-Length: "); at != std::string::npos) {
      length = std::strtoul(reply.head.c_str() + at + 18, nullptr, 10);
    }
    while (buffer_.size() < end + 4 + length) {
      if (!read_more()) return reply;
    }
    reply.status = std::atoi(reply.head.c_str() + reply.head.find(' '));
    reply.body = buffer_.substr(end + 4, length);
    buffer_.erase(0, end + 4 + length);
    return reply;
  }
  // So many, whatever they are. False: the server has closed before.
  bool read_bytes(size_t count, std::string& bytes) {
    while (buffer_.size() < count) {
      if (!read_more()) return false;
    }
    bytes = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return true;
  }
  HttpReply exchange(std::string_view request) {
    send(request);
    return read();
  }
  // True once the server has closed and nothing is left to read.
  bool at_end() { return buffer_.empty() && !read_more(); }
  void close() { fd_.reset(); }
  // Without a FIN: the server is told at once that nobody reads any more.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    fd_.reset();
  }
  void shut_sending() const { ::shutdown(fd_.get(), SHUT_WR); }

 private:
  explicit HttpClient(UniqueFd fd) : fd_(std::move(fd)) {
    const timeval silence{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
  }
  bool read_more() {
    char chunk[16384];
    ssize_t got = 0;
    do {
      got = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
    } while (got < 0 && errno == EINTR);  // a fuzzer has a timer
    if (got > 0) buffer_.append(chunk, static_cast<size_t>(got));
    return got > 0;
  }

  UniqueFd fd_;
  std::string buffer_;
};

inline std::string get_request(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n";
}

inline std::string post_request(const std::string& path, const std::string& body,
                                const std::string& headers = "") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

// An infer request whose one input `name` is FP32 [1, values / 4 bytes] sent as binary.
inline std::string binary_infer(const std::string& model, const std::string& name,
                                const std::string& values, size_t rows = 1) {
  const std::string json =
      R"({"inputs":[{"name":")" + name + R"(","datatype":"FP32","shape":[)" + std::to_string(rows) +
      "," + std::to_string(values.size() / rows / 4) + R"(],"parameters":{"binary_data_size":)" +
      std::to_string(values.size()) + R"(}}],"parameters":{"binary_data_output":true}})";
  return post_request("/v2/models/" + model + "/infer", json + values,
                      "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
}
// The values of such an input.
inline std::string floats(std::initializer_list<float> values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

// The bytes behind the JSON of a reply.
inline std::string binary_part(const HttpReply& reply) {
  const size_t at = reply.head.find("Inference-Header-Content-Length: ");
  if (at == std::string::npos) return "";
  return reply.body.substr(std::strtoul(reply.head.c_str() + at + 33, nullptr, 10));
}

}  // namespace lumen::server
