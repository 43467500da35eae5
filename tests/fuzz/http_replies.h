// HttpReplies: the replies of HTTP/1.1 on one connection, held against the requests in their order.
// Threads: one. Memory: the heap. Errors: CHECK, where a reply is missing, refused or of other
// numbers, is called JSON and is none, or says that the server has failed (500).
#pragma once

#include <lumen/base/check.h>

#include <simdjson.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::fuzz {

class HttpReplies {
 public:
  // The outputs of the next reply; nullopt: of a request that may be refused, or has none.
  void expect(std::optional<std::string> outputs, bool may_be_refused = false) {
    expected_.push_back({std::move(outputs), may_be_refused});
  }
  void receive(std::string_view bytes) { received_ += bytes; }

  // At the connection's end. `is_whole`: nothing but these requests was sent, so each has a reply.
  void check(bool is_whole) const {
    std::string_view rest = received_;
    for (const auto& [outputs, may_be_refused] : expected_) {
      while (rest.starts_with("HTTP/1.1 100 ")) rest.remove_prefix(head_of(rest).size());
      const std::string_view head = head_of(rest);
      if (head.empty()) {
        LUMEN_CHECK(!is_whole);
        return;
      }
      const std::string_view body =
          rest.substr(head.size(), number_after(head, "\r\nContent-Length: ", 0));
      rest.remove_prefix(head.size() + body.size());
      LUMEN_CHECK(!head.starts_with("HTTP/1.1 500 "));
      const bool is_json = head.find("\r\nContent-Type: application/json\r\n") != head.npos;
      if (is_json) check_json(body);
      const bool is_good = head.starts_with("HTTP/1.1 200 ");
      LUMEN_CHECK(is_good || !outputs || may_be_refused);
      if (!is_good || !outputs) continue;
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

  static void check_json(std::string_view text) {
    simdjson::dom::parser parser;
    LUMEN_CHECK(parser.parse(simdjson::padded_string(text)).error() == simdjson::SUCCESS);
  }

  struct Expected {
    std::optional<std::string> outputs;
    bool may_be_refused;
  };
  std::string received_;
  std::vector<Expected> expected_;
};

}  // namespace lumen::fuzz
