// A request of HTTP/2 as HTTP/1.1 has it: the parser and the decoder of HTTP/1.1 are the oracle.
// Threads: one. Memory: the heap. Errors: by gtest.
#include "transports/grpc/request_text.h"

#include <lumen/wire/http.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lumen::grpc {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

class RequestTextTest : public testing::Test {
 protected:
  std::optional<std::string> text_of(const Fields& fields, bool has_body) {
    text_.begin();
    for (const auto& [name, value] : fields) text_.add(name, value);
    const std::optional<std::string_view> head = text_.end(has_body);
    return head ? std::optional<std::string>(*head) : std::nullopt;
  }

  std::string room_ = std::string(RequestText::kMostBytes, '\0');
  RequestText text_{room_};
};

TEST_F(RequestTextTest, AHeadIsOneThatTheParserOfHttp11Reads) {
  const auto text = text_of({{":method", "POST"},
                             {":scheme", "http"},
                             {":path", "/v2/models/a/infer?x=1"},
                             {":authority", "here:80"},
                             {"host", "elsewhere"},
                             {"content-encoding", "gzip"}},
                            true);
  ASSERT_TRUE(text);
  const wire::HeadResult result = wire::parse_http_head(*text);
  ASSERT_EQ(result.progress, wire::HeadProgress::kComplete) << result.refusal.reason << *text;
  EXPECT_EQ(result.head.method, wire::HttpMethod::kPost);
  EXPECT_EQ(result.head.path, "/v2/models/a/infer");
  EXPECT_EQ(result.head.query, "x=1");
  EXPECT_EQ(result.head.host, "here:80");
  EXPECT_EQ(result.head.content_encoding, "gzip");
  EXPECT_EQ(result.head.framing, wire::BodyFraming::kChunked);
  EXPECT_FALSE(result.head.keep_alive);
  EXPECT_EQ(result.head.head_bytes, text->size());
}

TEST_F(RequestTextTest, PseudoHeadersMayComeInAnyOrder) {
  Fields fields = {{":authority", "a"}, {":method", "GET"}, {":path", "/v2"}, {":scheme", "http"}};
  std::ranges::sort(fields);
  do {
    EXPECT_EQ(text_of(fields, false), "GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  } while (std::ranges::next_permutation(fields).found);
}

TEST_F(RequestTextTest, ABodyWithALengthIsNotInChunks) {
  const auto text = text_of({{":method", "POST"}, {":path", "/"}, {"content-length", "7"}}, true);
  EXPECT_EQ(text, "POST / HTTP/1.1\r\ncontent-length: 7\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(text_.has_length());
  (void)text_of({{":method", "POST"}, {":path", "/"}}, true);
  EXPECT_FALSE(text_.has_length());
}

TEST_F(RequestTextTest, AHeadThatIsTooLongIsNone) {
  EXPECT_FALSE(text_of({{":method", std::string(40, 'A')}, {":path", "/"}}, false));
  EXPECT_FALSE(text_of({{":method", "GET"}, {":path", std::string(8 << 10, '/')}}, false));
  EXPECT_FALSE(text_of({{":method", "GET"}, {":authority", std::string(2 << 10, 'a')}}, false));
  Fields fields = {{":method", "GET"}, {":path", "/"}};
  for (int i = 0; i < 8192; ++i) fields.emplace_back("a", "");
  EXPECT_FALSE(text_of(fields, false));
  EXPECT_TRUE(text_of({{":method", "GET"}, {":path", "/"}}, false));  // the next one is read
}

TEST(BodyTextTest, ChunksOfRandomPiecesInRandomRoomsDecodeToTheBody) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::string body(random() % 5000, '\0');
    for (char& one : body) one = static_cast<char>(random());
    BodyText text;
    std::string framed;
    size_t there = 0;  // of the body, that have come
    size_t used = 0;
    while (true) {
      if (random() % 3 == 0) there += std::min<size_t>(random() % 700, body.size() - there);
      const bool has_ended = there == body.size() && used == there;
      std::string room(1 + random() % 90, '\0');
      const BodyText::Step step = text.next(room, there - used, has_ended);
      ASSERT_LE(step.framing + step.body, room.size());
      ASSERT_LE(step.body, there - used);
      framed.append(room, 0, step.framing);
      framed.append(body, used, step.body);
      used += step.body;
      if (has_ended && step.framing == 0) break;
    }
    wire::ChunkedDecoder decoder(body.size());
    std::string decoded(framed.size(), '\0');
    const wire::ChunkedDecoder::Step step = decoder.decode(framed, decoded);
    ASSERT_EQ(step.state, wire::ChunkedDecoder::State::kComplete) << step.refusal.reason;
    ASSERT_EQ(step.consumed, framed.size());
    decoded.resize(step.produced);
    ASSERT_EQ(decoded, body);
  }
}

TEST(ReplyFieldsTest, TheFieldsOfAHeadAreThereWithoutThoseOfAConnection) {
  std::string room(wire::kMaxResponseHeadBytes, '\0');
  const wire::ResponseHead head{.status = 401,
                                .content_type = "application/json",
                                .content_length = 5,
                                .inference_header_length = 3,
                                .extra = "WWW-Authenticate: Bearer\r\n",
                                .cors = "Vary: Origin\r\n",
                                .keep_alive = false};
  room.resize(wire::write_response_head(room, head, "Sun, 06 Nov 1994 08:49:37 GMT"));
  const ReplyFields fields(room);
  Fields got;
  for (const nghttp2_nv& field : fields.fields()) {
    EXPECT_EQ(field.flags, NGHTTP2_NV_FLAG_NONE);  // the session copies it
    got.emplace_back(std::string(reinterpret_cast<const char*>(field.name), field.namelen),
                     std::string(reinterpret_cast<const char*>(field.value), field.valuelen));
  }
  const Fields wanted = {{":status", "401"},
                         {"Date", "Sun, 06 Nov 1994 08:49:37 GMT"},
                         {"Content-Type", "application/json"},
                         {"Inference-Header-Content-Length", "3"},
                         {"Content-Length", "5"},
                         {"WWW-Authenticate", "Bearer"},
                         {"Vary", "Origin"}};
  EXPECT_TRUE(std::ranges::is_permutation(got, wanted));
  EXPECT_FALSE(fields.is_interim());
  EXPECT_TRUE(ReplyFields(wire::continue_response()).is_interim());
}

}  // namespace
}  // namespace lumen::grpc
