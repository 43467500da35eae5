// HttpReplies: the replies of HTTP/1.1 on one connection, held against the requests in their order.
// Threads: one. Memory: the heap. Errors: CHECK, where a reply is missing, refused or of other
// numbers.
#pragma once

#include <lumen/base/check.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::fuzz {

class HttpReplies {
 public:
  // The outputs of the next reply; nullopt: of a request that may be refused.
  void expect(std::optional<std::string> outputs) { expected_.push_back(std::move(outputs)); }
  void receive(std::string_view bytes) { received_ += bytes; }

  // At the connection's end. `is_whole`: nothing but these requests was sent, so each has a reply.
  void check(bool is_whole) const {
    std::string_view rest = received_;
    for (const std::optional<std::string>& outputs : expected_) {
      while (rest.starts_with("HTTP/1.1 100 ")) rest.remove_prefix(head_of(rest).size());
      const std::string_view head = head_of(rest);
      if (head.empty()) {
        LUMEN_CHECK(!is_whole);
        return;
      }
      const std::string_view body =
          rest.substr(head.size(), number_after(head, "\r\nContent-Length: ", 0));
      rest.remove_prefix(head.size() + body.size());
      if (!outputs) continue;
      LUMEN_CHECK(head.starts_with("HTTP/1.1 200 "));
      const size_t json = number_after(head, "\r\nInference-Header-Content-Length: ", body.size());
      LUMEN_CHECK(json <= body.size() && body.substr(json) == *outputs);
    }
    LUMEN_CHECK(rest.empty() || !is_whole);
  }

 private:
  // With its empty line; empty: it is not there.
  [[nodiscard]] static std::string_view head_of(std::string_view reply) {
    const size_t end = reply.find("\r\n\r\n");
    return end == std::string_view::npos ? std::string_view() : reply.substr(0, end + 4);
  }
  [[nodiscard]] static size_t number_after(std::string_view head, std::string_view name,
                                           size_t otherwise) {
    const size_t at = head.find(name);
    if (at == std::string_view::npos) return otherwise;
    return std::strtoul(std::string(head.substr(at + name.size(), 10)).c_str(), nullptr, 10);
  }

  std::string received_;
  std::vector<std::optional<std::string>> expected_;
};

}  // namespace lumen::fuzz
