// RequestText, BodyText, ReplyFields: a request of HTTP/2 as HTTP/1.1 has it, and the head of its
// reply the other way (RFC 9113, 8.3; RFC 9112).
// Threads: one. Memory: RequestText has its owner's, the others none. Errors: each says which.
#pragma once

#include <lumen/transports/grpc/memory_limits.h>
#include <nghttp2/nghttp2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::grpc {

// The head of one request, from its fields in the order in which they come.
class RequestText {
 public:
  static constexpr size_t kMostBytes = kHeadTextBytes;

  // `room`: kMostBytes, for any number of heads one after the other.
  explicit RequestText(std::span<char> room) noexcept : room_(room) {}

  void begin() noexcept;
  // As nghttp2 has checked them: pseudo-header fields come first, and no value has a line's end.
  void add(std::string_view name, std::string_view value) noexcept;
  // The whole head, until the next begin(); the request ends its connection. `has_body`: one
  // without a stated length comes in chunks. nullopt: it is too long.
  [[nodiscard]] std::optional<std::string_view> end(bool has_body) noexcept;
  [[nodiscard]] bool has_length() const noexcept { return has_length_; }

 private:
  // A part of the room that texts are written into, one behind the other.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
  };
  void write(Part& part, size_t most, std::string_view text) noexcept;
  [[nodiscard]] std::string_view text_of(const Part& part) const noexcept {
    return {room_.data() + part.begin, part.end - part.begin};
  }

  std::span<char> room_;
  Part method_, target_, host_, fields_;
  bool has_length_ = false;
  bool is_too_long_ = false;
};

// A body's bytes as chunks, where its length was not stated.
class BodyText {
 public:
  // Fills the front of `room` with the framing of a body's next bytes, up to `available` of them,
  // and says how many of these follow it. `has_ended`: there are no more. Both are 0: the
  // body and its framing are complete, or wait for more.
  struct Step {
    size_t framing = 0;
    size_t body = 0;
  };
  [[nodiscard]] Step next(std::span<char> room, size_t available, bool has_ended) noexcept;

 private:
  // The end of a chunk, a length in hexadecimal digits, the end of a line.
  std::array<char, 14> framing_{};
  uint8_t framing_begin_ = 0;
  uint8_t framing_end_ = 0;
  uint32_t left_ = 0;  // of the chunk
  bool has_begun_ = false;
  bool has_ended_ = false;
};

// The head of a reply, as HTTP/1.1 has it, as fields of HTTP/2: without those of a connection.
// nghttp2 copies them, and writes the names in small letters.
class ReplyFields {
 public:
  // `head`: of Lumen's own, up to its empty line and with it; it outlives this.
  explicit ReplyFields(std::string_view head) noexcept;

  [[nodiscard]] std::span<const nghttp2_nv> fields() const noexcept {
    return std::span(fields_).first(count_);
  }
  // 100: the reply itself comes later.
  [[nodiscard]] bool is_interim() const noexcept { return is_interim_; }

 private:
  static constexpr size_t kMostFields = 24;

  std::array<nghttp2_nv, kMostFields> fields_;
  size_t count_ = 0;
  bool is_interim_ = false;
};

}  // namespace lumen::grpc
