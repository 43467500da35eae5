// ReplyWriter: one reply (its head, its body, the outputs of a model) as segments to send, and the
// progress of its sending.
// Threads: its I/O thread. Memory: none; bodies and outputs stay where they are until the reply is
// out.
// Errors: none.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/wire/http.h>
#include <lumen/wire/oip.h>

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::http {

class ReplyWriter {
 public:
  // `request`: the head that is answered. `head`: as it is wanted; the length is filled in, and it
  // closes the connection where a client of HTTP/1.0 can't be told otherwise. `date`: of now.
  void write(const wire::HttpHead& request, wire::ResponseHead head, std::string_view body,
             std::string_view date) noexcept;
  // {"error": message}
  void write_error(const wire::HttpHead& request, wire::ResponseHead head, std::string_view message,
                   std::string_view date) noexcept;
  // `outputs` follow the JSON where they are binary. More than kMaxOutputSegments are copied
  // together into `memory`: one system call takes 1024 segments at most, and small ones are cheaper
  // to copy. False: it has no room for that.
  [[nodiscard]] bool write_infer(const wire::HttpHead& request, wire::ResponseHead head,
                                 const wire::EncodedReply& reply,
                                 std::span<const wire::ReplyOutput> outputs, std::string_view date,
                                 Allocator& memory) noexcept;
  // The body that write_infer() would write, in order; empty: `memory` has no room for the list.
  [[nodiscard]] static std::span<const std::span<const std::byte>> pieces_of(
      const wire::EncodedReply& reply, std::span<const wire::ReplyOutput> outputs,
      Allocator& memory) noexcept;
  // The same reply with its body compressed; `head` has the line that says how.
  void write_compressed(const wire::HttpHead& request, wire::ResponseHead head,
                        const wire::EncodedReply& reply, std::span<const std::byte> body,
                        std::string_view date) noexcept;
  // "100 Continue", ahead of the reply.
  void write_continue() noexcept;

  // To be sent in order; the sender may change them as they leave.
  [[nodiscard]] std::span<iovec> segments() noexcept { return {segments_.data(), count_}; }
  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] bool keeps_alive() const noexcept { return keeps_alive_; }

  // While it leaves: `sent` is how much of it the kernel has.
  void watch(uint64_t sent, uint64_t now_ns) noexcept {
    sent_ = sent;
    moved_ns_ = now_ns;
  }
  [[nodiscard]] bool has_moved(uint64_t sent) const noexcept { return sent != sent_; }
  // Since it was last seen to move.
  [[nodiscard]] uint64_t stalled_ns(uint64_t now_ns) const noexcept { return now_ns - moved_ns_; }

 private:
  void begin(const wire::HttpHead& request, wire::ResponseHead head,
             std::string_view date) noexcept;
  void add(const void* data, size_t bytes) noexcept;
  void gather() noexcept;

  std::array<char, wire::kMaxResponseHeadBytes> head_;
  std::array<char, wire::kMaxErrorBodyBytes> error_body_;
  static constexpr size_t kMaxOutputSegments = 64;
  std::array<iovec, kMaxOutputSegments + 2> segments_;  // the head, the JSON, the outputs
  size_t count_ = 0;
  int status_ = 0;
  bool keeps_alive_ = true;
  uint64_t sent_ = 0;
  uint64_t moved_ns_ = 0;
};

}  // namespace lumen::http
