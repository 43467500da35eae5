// Replies as segments. See the header.
#include "transports/http/reply_writer.h"

#include <algorithm>
#include <cstring>

namespace lumen::http {
namespace {

bool is_segment(const wire::ReplyOutput& output) noexcept {
  return output.binary && output.tensor.byte_size > 0;
}

void describe_body(const wire::EncodedReply& reply, wire::ResponseHead& head) noexcept {
  if (!reply.has_binary) return;
  head.content_type = "application/octet-stream";
  head.inference_header_length = reply.json.size();
}

}  // namespace

void ReplyWriter::add(const void* data, size_t bytes) noexcept {
  if (bytes > 0) segments_[count_++] = {const_cast<void*>(data), bytes};
}

void ReplyWriter::begin(const wire::HttpHead& request, wire::ResponseHead head,
                        std::string_view date) noexcept {
  // HTTP/1.1 stays open unless told otherwise, HTTP/1.0 the other way round, and its clients wait
  // to be told (RFC 9112, 9.3). With other lines to send there is no room for this one.
  if (head.keep_alive && !request.http_1_1) {
    if (head.extra.empty()) {
      head.extra = "Connection: keep-alive\r\n";
    } else {
      head.keep_alive = false;
    }
  }
  status_ = head.status;
  keeps_alive_ = head.keep_alive;
  count_ = 0;
  add(head_.data(), wire::write_response_head(head_, head, date));
}

void ReplyWriter::write(const wire::HttpHead& request, wire::ResponseHead head,
                        std::string_view body, std::string_view date) noexcept {
  head.content_length = body.size();
  begin(request, head, date);
  if (request.method != wire::HttpMethod::kHead) add(body.data(), body.size());
  gather();
}

void ReplyWriter::write_error(const wire::HttpHead& request, wire::ResponseHead head,
                              std::string_view message, std::string_view date) noexcept {
  write(request, head, {error_body_.data(), wire::write_error_body(error_body_, message)}, date);
}

bool ReplyWriter::write_infer(const wire::HttpHead& request, wire::ResponseHead head,
                              const wire::EncodedReply& reply,
                              std::span<const wire::ReplyOutput> outputs, std::string_view date,
                              Allocator& memory) noexcept {
  std::span<std::byte> together;
  if (outputs.size() > kMaxOutputSegments &&
      static_cast<size_t>(std::ranges::count_if(outputs, is_segment)) > kMaxOutputSegments) {
    together = memory.allocate_array<std::byte>(reply.binary_bytes);
    if (together.size() != reply.binary_bytes) return false;
  }
  head.content_length = reply.json.size() + reply.binary_bytes;
  describe_body(reply, head);
  begin(request, head, date);
  add(reply.json.data(), reply.json.size());
  size_t copied = 0;
  for (const wire::ReplyOutput& output : outputs) {
    if (!is_segment(output)) continue;
    if (together.empty()) {
      add(output.tensor.data, output.tensor.byte_size);
    } else {
      std::memcpy(together.data() + copied, output.tensor.data, output.tensor.byte_size);
      copied += output.tensor.byte_size;
    }
  }
  add(together.data(), together.size());
  gather();
  return true;
}

std::span<const std::span<const std::byte>> ReplyWriter::pieces_of(
    const wire::EncodedReply& reply, std::span<const wire::ReplyOutput> outputs,
    Allocator& memory) noexcept {
  const size_t count = 1 + static_cast<size_t>(std::ranges::count_if(outputs, is_segment));
  const auto pieces = memory.allocate_array<std::span<const std::byte>>(count);
  if (pieces.size() != count) return {};
  pieces.front() = std::as_bytes(std::span(reply.json));
  size_t used = 1;
  for (const wire::ReplyOutput& output : outputs) {
    if (!is_segment(output)) continue;
    pieces[used++] = {static_cast<const std::byte*>(output.tensor.data), output.tensor.byte_size};
  }
  return pieces;
}

void ReplyWriter::write_compressed(const wire::HttpHead& request, wire::ResponseHead head,
                                   const wire::EncodedReply& reply, std::span<const std::byte> body,
                                   std::string_view date) noexcept {
  describe_body(reply, head);
  head.content_length = body.size();
  begin(request, head, date);
  add(body.data(), body.size());
  gather();
}

void ReplyWriter::write_continue() noexcept {
  const std::string_view text = wire::continue_response();
  count_ = 0;
  add(text.data(), text.size());
}

// A reply that fits behind its head is copied there: 20 ns, where a list of three segments costs
// the kernel 100 (it checks and copies in each).
void ReplyWriter::gather() noexcept {
  size_t bytes = 0;
  for (const iovec& segment : segments()) bytes += segment.iov_len;
  if (bytes > head_.size()) return;
  size_t used = segments_.front().iov_len;  // the head lies there
  for (const iovec& segment : segments().subspan(1)) {
    std::memcpy(head_.data() + used, segment.iov_base, segment.iov_len);
    used += segment.iov_len;
  }
  segments_.front().iov_len = used;
  count_ = 1;
}

}  // namespace lumen::http
