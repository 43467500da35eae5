// See the header.
#include "transports/grpc/request_text.h"

#include "transports/grpc/headers.h"

#include <lumen/base/check.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace lumen::grpc {
namespace {

// The parts of the room: the request line and the host are put together in front of the fields.
constexpr size_t kMethodBytes = 32;
constexpr size_t kTargetBytes = size_t{7} << 10;
constexpr size_t kHostBytes = size_t{1} << 10;
constexpr size_t kLineBytes = kMethodBytes + kTargetBytes + kHostBytes + 64;
constexpr size_t kFieldsBegin = kMethodBytes + kTargetBytes + kHostBytes + kLineBytes;
constexpr std::string_view kVersion = " HTTP/1.1\r\n";

// Of a connection, which HTTP/2 does not have (RFC 9113, 8.2.2). As Lumen writes it.
bool is_of_connection(std::string_view name) noexcept { return name == "Connection"; }

}  // namespace

void RequestText::begin() noexcept {
  LUMEN_CHECK(room_.size() == kMostBytes);
  method_ = {0, 0};
  target_ = {kMethodBytes, kMethodBytes};
  host_ = {kMethodBytes + kTargetBytes, kMethodBytes + kTargetBytes};
  fields_ = {kFieldsBegin, kFieldsBegin};
  has_length_ = is_too_long_ = false;
}

void RequestText::write(Part& part, size_t most, std::string_view text) noexcept {
  if (text.size() > most - (part.end - part.begin)) {
    is_too_long_ = true;
    return;
  }
  part.end += text.copy(room_.data() + part.end, text.size());
}

void RequestText::add(std::string_view name, std::string_view value) noexcept {
  constexpr size_t kFieldsBytes = kMostBytes - kFieldsBegin;
  if (name == ":method") {
    write(method_, kMethodBytes, value);
  } else if (name == ":path") {
    write(target_, kTargetBytes, value);
  } else if (name == ":authority") {
    write(host_, kHostBytes, value);
  } else if (name.starts_with(':') || (name == "host" && host_.begin != host_.end)) {
    // The scheme says nothing, and :authority is the host.
  } else {
    if (name == "content-length") has_length_ = true;
    for (const std::string_view text :
         {name, std::string_view(": "), value, std::string_view("\r\n")}) {
      write(fields_, kFieldsBytes, text);
    }
  }
}

std::optional<std::string_view> RequestText::end(bool has_body) noexcept {
  constexpr size_t kFieldsBytes = kMostBytes - kFieldsBegin;
  if (has_body && !has_length_) write(fields_, kFieldsBytes, "Transfer-Encoding: chunked\r\n");
  write(fields_, kFieldsBytes, "Connection: close\r\n\r\n");
  // CONNECT has an authority alone.
  const std::string_view host = text_of(host_);
  const std::string_view target = target_.begin != target_.end ? text_of(target_) : host;
  Part line{fields_.begin - kLineBytes, fields_.begin - kLineBytes};
  for (const std::string_view text : {text_of(method_), std::string_view(" "), target, kVersion}) {
    write(line, kLineBytes, text);
  }
  if (!host.empty()) {
    for (const std::string_view text :
         {std::string_view("Host: "), host, std::string_view("\r\n")}) {
      write(line, kLineBytes, text);
    }
  }
  if (is_too_long_) return std::nullopt;
  // Up to the fields.
  const size_t begin = fields_.begin - (line.end - line.begin);
  std::memmove(room_.data() + begin, room_.data() + line.begin, line.end - line.begin);
  return std::string_view(room_.data() + begin, fields_.end - begin);
}

BodyText::Step BodyText::next(std::span<char> room, size_t available, bool has_ended) noexcept {
  if (left_ == 0 && framing_begin_ == framing_end_ && !has_ended_ && (available > 0 || has_ended)) {
    // The digits of a last chunk, 0, are followed by an empty line: there are no trailers.
    left_ = static_cast<uint32_t>(std::min<size_t>(available, UINT32_MAX));
    has_ended_ = left_ == 0;
    const std::string_view end = has_begun_ ? "\r\n" : "";
    char* at = framing_.data() + end.copy(framing_.data(), end.size());
    at = std::to_chars(at, framing_.data() + framing_.size(), left_, 16).ptr;
    const std::string_view rest = has_ended_ ? "\r\n\r\n" : "\r\n";
    at += rest.copy(at, rest.size());
    framing_begin_ = 0;
    framing_end_ = static_cast<uint8_t>(at - framing_.data());
    has_begun_ = true;
  }
  const std::string_view framing(framing_.data() + framing_begin_,
                                 static_cast<size_t>(framing_end_ - framing_begin_));
  const size_t written = framing.copy(room.data(), room.size());
  framing_begin_ = static_cast<uint8_t>(framing_begin_ + written);
  const size_t body = std::min({size_t{left_}, available, room.size() - written});
  left_ -= static_cast<uint32_t>(body);
  return {written, body};
}

ReplyFields::ReplyFields(std::string_view head) noexcept {
  constexpr std::string_view kStatusBefore = "HTTP/1.1 ";
  LUMEN_CHECK(head.starts_with(kStatusBefore) && head.ends_with("\r\n\r\n"));
  const auto add = [this](std::string_view name, std::string_view value) {
    LUMEN_CHECK(count_ < kMostFields);
    fields_[count_] = header(name, value);
    fields_[count_++].flags = NGHTTP2_NV_FLAG_NONE;
  };
  const std::string_view status = head.substr(kStatusBefore.size(), 3);
  is_interim_ = status.starts_with('1');
  add(":status", status);
  head.remove_prefix(head.find("\r\n") + 2);
  while (head.size() > 2) {  // the empty line
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size() + 2);
    const size_t colon = line.find(": ");
    LUMEN_CHECK(colon != std::string_view::npos);
    const std::string_view name = line.substr(0, colon);
    if (!is_of_connection(name)) add(name, line.substr(colon + 2));
  }
}

}  // namespace lumen::grpc
