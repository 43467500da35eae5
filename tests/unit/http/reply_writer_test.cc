// Replies as segments: the client's bytes, however few the kernel takes at once.
#include "transports/http/reply_writer.h"

#include <lumen/memory/arena.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace lumen::http {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view kDate = "Sun, 06 Nov 1994 08:49:37 GMT";

wire::HttpHead request_of(wire::HttpMethod method = wire::HttpMethod::kGet, bool http_1_1 = true) {
  wire::HttpHead head;
  head.method = method;
  head.http_1_1 = http_1_1;
  return head;
}

wire::ResponseHead refusal() {
  wire::ResponseHead head;
  head.status = 429;
  head.extra = "Retry-After: 1\r\n";
  return head;
}

// Takes up to `most` bytes from the front, as a loop does that goes on after a short write.
std::string take(std::span<iovec>& segments, size_t most) {
  std::string taken;
  while (!segments.empty() && taken.size() < most) {
    iovec& first = segments.front();
    const size_t piece = std::min(first.iov_len, most - taken.size());
    taken.append(static_cast<const char*>(first.iov_base), piece);
    first.iov_base = static_cast<char*>(first.iov_base) + piece;
    first.iov_len -= piece;
    if (first.iov_len == 0) segments = segments.subspan(1);
  }
  return taken;
}

std::string all_of(ReplyWriter& reply) {
  std::span<iovec> segments = reply.segments();
  return take(segments, SIZE_MAX);
}

TEST(ReplyWriter, ADocumentLeavesWithItsHeadInOneSegment) {
  ReplyWriter reply;
  reply.write(request_of(), {}, R"({"live":true})", kDate);
  EXPECT_EQ(1u, reply.segments().size());
  const std::string text = all_of(reply);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Length: 13\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\n{\"live\":true}"));
  EXPECT_EQ(200, reply.status());
  EXPECT_TRUE(reply.keeps_alive());
}

TEST(ReplyWriter, HeadGetsTheLengthWithoutTheBody) {
  ReplyWriter reply;
  reply.write(request_of(wire::HttpMethod::kHead), {}, "12345", kDate);
  const std::string text = all_of(reply);
  EXPECT_THAT(text, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\n"));
}

TEST(ReplyWriter, AnOldClientIsToldThatItsConnectionStays) {
  const wire::HttpHead old = request_of(wire::HttpMethod::kGet, false);
  ReplyWriter reply;
  reply.write(old, {}, "x", kDate);
  EXPECT_THAT(all_of(reply), HasSubstr("Connection: keep-alive\r\n"));
  EXPECT_TRUE(reply.keeps_alive());

  reply.write(old, refusal(), "x", kDate);
  EXPECT_THAT(all_of(reply), HasSubstr("Connection: close\r\n"));
  EXPECT_FALSE(reply.keeps_alive());

  reply.write(request_of(), refusal(), "x", kDate);
  EXPECT_THAT(all_of(reply), Not(HasSubstr("Connection:")));
  EXPECT_TRUE(reply.keeps_alive());
}

TEST(ReplyWriter, AnErrorIsJsonWithItsStatus) {
  ReplyWriter reply;
  reply.write_error(request_of(), refusal(), "say \"when\"", kDate);
  const std::string text = all_of(reply);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 429 "));
  EXPECT_THAT(text, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(text, EndsWith(R"({"error":"say \"when\""})"));
  EXPECT_EQ(429, reply.status());
}

struct Outputs {
  explicit Outputs(size_t bytes) : large(bytes, 'L') {
    list[0].tensor.data = reinterpret_cast<std::byte*>(large.data());
    list[0].tensor.byte_size = large.size();
    list[1].tensor.byte_size = 3;  // lies in the JSON
    list[2].tensor.data = reinterpret_cast<std::byte*>(small.data());
    list[2].tensor.byte_size = small.size();
    list[0].binary = list[2].binary = list[3].binary = true;  // the last is empty
    encoded = {.json = json, .binary_bytes = large.size() + small.size(), .has_binary = true};
  }
  std::string json = R"({"outputs":[]})";
  std::string large;
  std::string small = "sss";
  std::array<wire::ReplyOutput, 4> list{};
  wire::EncodedReply encoded;
};

TEST(ReplyWriter, OutputsFollowTheJsonAtEachCut) {
  for (const size_t bytes : {size_t{10}, size_t{2000}}) {
    Outputs outputs(bytes);
    ReplyWriter reply;
    Arena memory = std::move(Arena::create(4096)).value();
    ASSERT_TRUE(reply.write_infer(request_of(), {}, outputs.encoded, outputs.list, kDate, memory));
    EXPECT_EQ(bytes == 10 ? 1u : 4u, reply.segments().size());
    const std::string whole = all_of(reply);
    EXPECT_THAT(whole, HasSubstr("Content-Type: application/octet-stream\r\n"));
    EXPECT_THAT(whole, HasSubstr("Inference-Header-Content-Length: 14\r\n"));
    EXPECT_THAT(whole, HasSubstr("Content-Length: " + std::to_string(17 + bytes) + "\r\n"));
    EXPECT_THAT(whole, EndsWith("\r\n\r\n" + outputs.json + outputs.large + "sss"));
    for (size_t cut = 0; cut <= whole.size(); ++cut) {
      ASSERT_TRUE(
          reply.write_infer(request_of(), {}, outputs.encoded, outputs.list, kDate, memory));
      std::span<iovec> segments = reply.segments();
      std::string got = take(segments, cut);
      got += take(segments, SIZE_MAX);
      ASSERT_EQ(whole, got) << cut;
    }
  }
}

// Was: a list of 64 outputs at most.
TEST(ReplyWriter, MoreOutputsThanOneSystemCallTakesAreCopiedTogether) {
  for (const size_t count : {size_t{64}, size_t{65}, size_t{4096}}) {
    std::string numbers(3 * count, ' ');
    std::vector<wire::ReplyOutput> list(count);
    for (size_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < 3; ++k) numbers[3 * i + k] = static_cast<char>('a' + (i + k) % 26);
      list[i].tensor.data = reinterpret_cast<std::byte*>(numbers.data() + 3 * i);
      list[i].tensor.byte_size = 3;
      list[i].binary = true;
    }
    const wire::EncodedReply encoded{
        .json = "{}", .binary_bytes = numbers.size(), .has_binary = true};
    Arena memory = std::move(Arena::create(64 * 1024)).value();
    ReplyWriter reply;
    ASSERT_TRUE(reply.write_infer(request_of(), {}, encoded, list, kDate, memory));
    EXPECT_LE(reply.segments().size(), 66u);
    EXPECT_THAT(all_of(reply), EndsWith("\r\n\r\n{}" + numbers));
    Arena none = std::move(Arena::create(1)).value();
    while (none.allocate(64, 1) != nullptr) {
    }
    EXPECT_EQ(reply.write_infer(request_of(), {}, encoded, list, kDate, none), count == 64);
  }
}

TEST(ReplyWriter, TheReplyIsWrittenOverTheLeaveToSend) {
  ReplyWriter reply;
  reply.write_continue();
  EXPECT_EQ("HTTP/1.1 100 Continue\r\n\r\n", all_of(reply));
  reply.write(request_of(), {}, "x", kDate);
  EXPECT_THAT(all_of(reply), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(ReplyWriter, KnowsHowLongItHasNotMoved) {
  ReplyWriter reply;
  reply.watch(100, 1000);
  EXPECT_FALSE(reply.has_moved(100));
  EXPECT_EQ(500u, reply.stalled_ns(1500));
  EXPECT_TRUE(reply.has_moved(101));
  reply.watch(101, 1600);
  EXPECT_EQ(0u, reply.stalled_ns(1600));
}

}  // namespace
}  // namespace lumen::http
