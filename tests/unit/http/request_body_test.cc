// Bodies as they come in: by length and in chunks, at each cut, with readers on top of each other;
// text where it was received or collected, tensors in their places.
#include "transports/http/request_body.h"
#include "support/compress.h"
#include "unit/http/http_support.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

namespace lumen::http {
namespace {

using Progress = RequestBody::Progress;
using Step = BodyReader::Step;

constexpr std::string_view kPlain = "abcdefghij\r\n0\r\n\r\nklmnop";
constexpr std::string_view kChunks =
    "3\r\nabc\r\n00a;x=y\r\ndefghij\r\n0\r\n4\r\n\r\n\r\n\r\n6\r\nklmnop\r\n0\r\n\r\n";
constexpr std::string_view kNext = "GET /v2 HTTP/1.1";

// A content coding, as gzip would be: each letter came as the one before it.
class ShiftReader final : public BodyReader {
 public:
  explicit ShiftReader(BodyReader& below) : below_(below) {}
  Step read(std::span<char> space) noexcept override {
    const Step step = below_.read(space);
    for (char& c : space.first(step.bytes)) ++c;
    return step;
  }

 private:
  BodyReader& below_;
};

// Reads all of it through `reader`, whose bytes come in pieces, into a space that is short.
std::string read_all(BodyReader& reader, ReceiveBuffer& buffer,
                     const std::vector<std::string_view>& pieces, size_t space_bytes) {
  std::string body;
  std::vector<char> space(space_bytes);
  Step step;
  for (const std::string_view piece : pieces) {
    buffer.append(piece);
    do {
      if (step.progress != BodyReader::Progress::kNeedMore) break;
      step = reader.read(space);
      body.append(space.data(), step.bytes);
    } while (step.bytes > 0 ||
             (!buffer.unread().empty() && step.progress == BodyReader::Progress::kNeedMore));
  }
  EXPECT_EQ(BodyReader::Progress::kComplete, step.progress);
  return body;
}

TEST(BodyReader, IdentityEndsWhereTheLengthSays) {
  at_each_cut(std::string(kPlain).append(kNext), [](const auto& pieces) {
    for (const size_t space : {1u, 7u, 100u}) {
      BufferOf of(4096);
      IdentityReader reader(of.buffer, kPlain.size());
      EXPECT_EQ(kPlain, read_all(reader, of.buffer, pieces, space));
      EXPECT_EQ(kNext, of.buffer.unread());
      EXPECT_EQ(0u, reader.left());
    }
  });
}

TEST(BodyReader, ChunksEndWithTheirLast) {
  at_each_cut(std::string(kChunks).append(kNext), [](const auto& pieces) {
    for (const size_t space : {1u, 7u, 100u}) {
      BufferOf of(4096);
      ChunkedReader reader(of.buffer, 100);
      EXPECT_EQ(kPlain, read_all(reader, of.buffer, pieces, space));
      EXPECT_EQ(kNext, of.buffer.unread());
    }
  });
}

TEST(BodyReader, ACodingReadsFromEitherFraming) {
  at_each_cut("`abcHAL", [](const auto& pieces) {
    BufferOf of(4096);
    IdentityReader identity(of.buffer, 4);
    ShiftReader reader(identity);
    EXPECT_EQ("abcd", read_all(reader, of.buffer, pieces, 3));
    EXPECT_EQ("HAL", of.buffer.unread());
  });
  at_each_cut("1\r\nH\r\n2\r\nAL\r\n0\r\n\r\nnext", [](const auto& pieces) {
    BufferOf of(4096);
    ChunkedReader chunked(of.buffer, 100);
    ShiftReader once(chunked);
    ShiftReader twice(static_cast<BodyReader&>(once));  // not a copy of it
    EXPECT_EQ("JCN", read_all(twice, of.buffer, pieces, 100));
    EXPECT_EQ("next", of.buffer.unread());
  });
}

TEST(BodyReader, ChunksAboveTheLimitAreRefusedAtTheirSize) {
  BufferOf of(4096);
  of.buffer.append("3\r\nabc\r\n2\r\n");
  ChunkedReader reader(of.buffer, 4);
  std::array<char, 64> space;
  const Step step = reader.read(space);
  EXPECT_EQ(BodyReader::Progress::kRefused, step.progress);
  EXPECT_EQ(413, step.refusal.status);
}

std::string gzip_of(std::string_view plain) {
  return test::compress(plain, wire::ContentCoding::kGzip, 9);
}

std::string in_chunks(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    const std::string_view chunk = bytes.substr(at, 7);
    out.append(1, "0123456789"[chunk.size()]).append("\r\n").append(chunk).append("\r\n");
  }
  return out.append("0\r\n\r\n");
}

// A request's body with its surroundings, fed as a connection feeds it.
struct Feed {
  explicit Feed(size_t buffer_bytes = 4096) : of(buffer_bytes) {}

  void begin(wire::BodyFraming framing, std::string_view all) {
    wire::HttpHead head;
    head.framing = framing;
    head.content_length = framing == wire::BodyFraming::kLength ? all.size() : 0;
    body.begin(head);
  }
  // Delivers `pieces`, each by as many receives as it takes, to where the body wants them.
  Progress deliver(Progress progress, std::vector<std::string_view>& pieces) {
    for (std::string_view& piece : pieces) {
      while (progress == Progress::kNeedMore && !piece.empty()) {
        const size_t bytes = receive(body.wanted(), piece);
        LUMEN_CHECK(bytes > 0);  // it wants more, so there is room
        progress = body.received(bytes);
      }
    }
    return progress;
  }
  Progress text(std::optional<uint64_t> bytes, std::vector<std::string_view>& pieces) {
    return deliver(body.begin_text(bytes, 100, memory), pieces);
  }
  // The tensors go into two places that don't lie together; returns the bytes there.
  std::string tensors(size_t bytes, std::vector<std::string_view>& pieces,
                      Progress wanted = Progress::kComplete) {
    std::string first(bytes / 3, '.');
    std::string second(bytes - first.size(), '.');
    std::array<iovec, 2> segments{iovec{first.data(), first.size()},
                                  iovec{second.data(), second.size()}};
    service::Places places(segments);
    EXPECT_EQ(wanted, deliver(body.begin_tensors(places), pieces));
    return first + second;
  }

  BufferOf of;
  RequestMemory memory = make_memory();
  RequestBody body{of.buffer};
};

// `along`: how much of the body came with the head.
void expect_parts(wire::BodyFraming framing, std::string_view bytes, size_t text_bytes,
                  size_t buffer_bytes) {
  for (size_t along = 0; along <= std::min(bytes.size(), buffer_bytes); ++along) {
    at_each_cut(bytes.substr(along), [&](std::vector<std::string_view> pieces) {
      Feed feed(buffer_bytes);
      feed.of.buffer.append(bytes.substr(0, along));
      feed.begin(framing, bytes);
      ASSERT_EQ(Progress::kComplete, feed.text(text_bytes, pieces));
      EXPECT_EQ(kPlain.substr(0, text_bytes), feed.body.text());
      EXPECT_EQ(kPlain.substr(text_bytes), feed.tensors(kPlain.size() - text_bytes, pieces));
      EXPECT_EQ(kPlain.size(), feed.body.total_bytes());
      EXPECT_EQ(0u, feed.body.left());
      EXPECT_TRUE(feed.body.is_end_known());
      EXPECT_TRUE(feed.of.buffer.unread().empty());
    });
  }
}

TEST(RequestBody, SplitsABodyOfALengthIntoTextAndTensors) {
  for (const size_t text : {size_t{0}, size_t{9}, kPlain.size()}) {
    expect_parts(wire::BodyFraming::kLength, kPlain, text, 4096);
  }
}

TEST(RequestBody, CollectsTextThatTheBufferDoesNotHold) {
  expect_parts(wire::BodyFraming::kLength, kPlain, 12, 8);
  expect_parts(wire::BodyFraming::kLength, kPlain, kPlain.size(), 8);
}

TEST(RequestBody, CollectsTextThatDoesNotFitBehindItsHead) {
  Feed feed(16);
  feed.of.buffer.append("the head");
  feed.of.buffer.take(8);
  feed.begin(wire::BodyFraming::kLength, "123456789012");
  std::vector<std::string_view> pieces{"123456789012"};
  ASSERT_EQ(Progress::kComplete, feed.text(std::nullopt, pieces));
  EXPECT_EQ("123456789012", feed.body.text());
  EXPECT_EQ(0u, feed.body.direct_bytes());  // text is no tensor
}

TEST(RequestBody, SplitsAChunkedBodyIntoTextAndTensors) {
  for (const size_t text : {size_t{0}, size_t{9}, kPlain.size()}) {
    expect_parts(wire::BodyFraming::kChunked, kChunks, text, 4096);
  }
}

TEST(RequestBody, ACompressedBodyIsSplitByItsPlainBytes) {
  const std::string packed = gzip_of(kPlain);
  for (const auto& [framing, sent] : {std::pair(wire::BodyFraming::kLength, packed),
                                      std::pair(wire::BodyFraming::kChunked, in_chunks(packed))}) {
    for (const size_t text_bytes : {size_t{0}, size_t{9}, kPlain.size()}) {
      at_each_cut(sent + std::string(kNext), [&](std::vector<std::string_view> pieces) {
        Feed feed;
        wire::HttpHead head;
        head.framing = framing;
        head.content_length = framing == wire::BodyFraming::kLength ? sent.size() : 0;
        feed.body.begin(head);
        feed.body.decode_by(wire::ContentCoding::kGzip);
        ASSERT_EQ(Progress::kComplete, feed.text(text_bytes, pieces));
        EXPECT_EQ(kPlain.substr(0, text_bytes), feed.body.text());
        EXPECT_EQ(kPlain.substr(text_bytes), feed.tensors(kPlain.size() - text_bytes, pieces));
        EXPECT_EQ(kPlain.size(), feed.body.total_bytes());
        EXPECT_EQ(0u, feed.body.left());
        EXPECT_TRUE(feed.body.is_end_known());
      });
    }
  }
}

TEST(RequestBody, BytesThatThePlacesDoNotExpectAreRefused) {
  const std::string packed = gzip_of(kPlain);
  constexpr size_t kText = 9;
  size_t refused = 0;
  for (const auto& [framing, sent] :
       {std::pair(wire::BodyFraming::kLength, packed),
        std::pair(wire::BodyFraming::kChunked, in_chunks(packed)),
        std::pair(wire::BodyFraming::kChunked, in_chunks(std::string(kPlain)))}) {
    for (const size_t expected : {kPlain.size() - kText - 1, kPlain.size() - kText + 1}) {
      at_each_cut(sent, [&](std::vector<std::string_view> pieces) {
        Feed feed;
        feed.begin(framing, sent);
        if (sent != in_chunks(std::string(kPlain))) {
          feed.body.decode_by(wire::ContentCoding::kGzip);
        }
        ASSERT_EQ(Progress::kComplete, feed.text(kText, pieces));
        if (feed.body.is_length_known()) return;  // the binder compares the lengths then
        feed.tensors(expected, pieces, Progress::kRefused);
        EXPECT_EQ(400, feed.body.refusal().status);
        ++refused;
      });
    }
  }
  EXPECT_GT(refused, 0U);
}

TEST(RequestBody, ACompressedBodyIsBoundedByItsPlainBytes) {
  // Of exactly the limit, and a byte more.
  for (const size_t bytes : {100u, 101u}) {
    const std::string packed = gzip_of(std::string(bytes, 'a'));
    Feed feed;
    feed.begin(wire::BodyFraming::kLength, packed);
    feed.body.decode_by(wire::ContentCoding::kGzip);
    std::vector<std::string_view> pieces{packed};
    const Progress progress = feed.text(std::nullopt, pieces);
    EXPECT_EQ(bytes == 100 ? Progress::kComplete : Progress::kRefused, progress);
    EXPECT_EQ(bytes == 100 ? 0 : 413, feed.body.refusal().status);
  }
}

TEST(RequestBody, ALargeBodyIsInflatedInPiecesBetweenWhichOthersHaveTheirTurn) {
  const std::string plain(3'000'000, 'a');
  const std::string packed = gzip_of(plain);
  ASSERT_LT(packed.size(), 4000u) << "it comes with one receive";
  Feed feed;
  feed.memory = make_memory(size_t{16} << 20);
  feed.begin(wire::BodyFraming::kLength, packed);
  feed.body.decode_by(wire::ContentCoding::kGzip);
  std::string_view piece = packed;
  Progress progress = feed.body.begin_text(std::nullopt, plain.size(), feed.memory);
  ASSERT_EQ(Progress::kNeedMore, progress);
  progress = feed.body.received(receive(feed.body.wanted(), piece));
  int turns = 0;
  for (; progress == Progress::kHasMore; ++turns) progress = feed.body.go_on();
  EXPECT_EQ(Progress::kComplete, progress);
  EXPECT_GT(turns, 5);
  EXPECT_EQ(plain, feed.body.text());
}

TEST(RequestBody, TensorsAreReceivedToTheirPlacesAndNoFurther) {
  Feed feed;
  feed.of.buffer.append("jsonTE");
  feed.begin(wire::BodyFraming::kLength, "jsonTENSOR");
  std::vector<std::string_view> pieces{"NSOR"};
  ASSERT_EQ(Progress::kComplete, feed.text(4, pieces));
  EXPECT_EQ("TENSOR", feed.tensors(6, pieces));
  EXPECT_EQ(4u, feed.body.direct_bytes());  // the others came along and were copied
}

TEST(RequestBody, TextLongerThanTheBodyIsToldFromARefusal) {
  std::vector<std::string_view> pieces{kChunks};
  Feed chunked;
  chunked.begin(wire::BodyFraming::kChunked, kChunks);
  EXPECT_EQ(Progress::kTextTooLong, chunked.text(kPlain.size() + 1, pieces));
  EXPECT_TRUE(chunked.body.is_end_known());

  Feed length;
  length.begin(wire::BodyFraming::kLength, "12345");
  EXPECT_EQ(Progress::kTextTooLong, length.text(6, pieces));
  EXPECT_EQ(5u, length.body.left());

  std::vector<std::string_view> broken{"3\r\nabcd"};
  Feed refused;
  refused.begin(wire::BodyFraming::kChunked, broken[0]);
  EXPECT_EQ(Progress::kRefused, refused.text(std::nullopt, broken));
  EXPECT_EQ(400, refused.body.refusal().status);
  EXPECT_FALSE(refused.body.is_end_known());
}

TEST(RequestBody, SaysWhenThereIsNoMemoryForItsText) {
  Feed feed(8);
  feed.memory = make_memory(4096);
  feed.begin(wire::BodyFraming::kLength, std::string(5000, 'x'));
  std::vector<std::string_view> none;
  EXPECT_EQ(Progress::kNoMemory, feed.text(std::nullopt, none));
}

TEST(RequestBody, TheRestOfARefusedBodyIsDroppedUpToTheNextRequest) {
  Feed feed;
  feed.of.buffer.append("12345678GET");
  feed.begin(wire::BodyFraming::kLength, "12345678");
  feed.body.drop_received();
  EXPECT_EQ(0u, feed.body.left());
  EXPECT_EQ("GET", feed.of.buffer.unread());

  Feed more;
  more.of.buffer.append("123");
  more.begin(wire::BodyFraming::kLength, "12345678");
  more.body.drop_received();
  EXPECT_EQ(5u, more.body.left());
  more.body.drop(5);
  EXPECT_EQ(0u, more.body.left());
}

}  // namespace
}  // namespace lumen::http
