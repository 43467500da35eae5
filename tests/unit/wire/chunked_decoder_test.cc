// Chunked bodies: whole, in pieces, in place, and the ways in which they have broken servers.
#include <lumen/wire/http.h>

#include "unit/wire/wire_support.h"

#include <algorithm>

namespace lumen::wire {
namespace {

using State = ChunkedDecoder::State;

struct Decoded {
  State state = State::kNeedMore;
  int status = 0;
  size_t consumed = 0;
  std::string body;
};

// Feeds `input` in pieces of `piece` bytes, each in a block of its own.
Decoded decode(std::string_view input, size_t piece, uint64_t max_body_bytes = 1 << 20) {
  ChunkedDecoder decoder(max_body_bytes);
  Decoded all;
  while (all.consumed < input.size() && all.state == State::kNeedMore) {
    const test::ExactCopy part(input.substr(all.consumed, piece));
    std::vector<char> output(part.view().size());
    const ChunkedDecoder::Step step = decoder.decode(part.view(), output);
    all.body.append(output.data(), step.produced);
    all.consumed += step.consumed;
    all.state = step.state;
    all.status = step.refusal.status;
  }
  EXPECT_EQ(decoder.body_bytes(), all.body.size());
  return all;
}

TEST(ChunkedDecoder, JoinsChunksAndLeavesTheNextRequest) {
  const Decoded all = decode("3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nGET / HTTP/1.1", 1000);
  EXPECT_EQ(all.state, State::kComplete);
  EXPECT_EQ(all.body, "abc0123456789");
  EXPECT_EQ(all.consumed, 29U);
}

TEST(ChunkedDecoder, GivesTheSameForEverySplit) {
  constexpr std::string_view kBody =
      "3;a=b\r\nabc\r\n1\r\n\r\r\n00c;x=\"y z\"\r\n\r\n0\r\n\r\n0\r\n\r\n\r\n000\r\n\r\n";
  for (size_t piece = 1; piece <= kBody.size(); ++piece) {
    const Decoded all = decode(kBody, piece);
    EXPECT_EQ(all.state, State::kComplete) << piece;
    EXPECT_EQ(all.body, "abc\r\r\n0\r\n\r\n0\r\n\r\n") << piece;
    EXPECT_EQ(all.consumed, kBody.size()) << piece;
  }
}

TEST(ChunkedDecoder, DecodesInPlace) {
  std::string buffer = "5\r\nhello\r\n1;e\r\n \r\n5\r\nworld\r\n0\r\n\r\n";
  ChunkedDecoder decoder(100);
  const ChunkedDecoder::Step step = decoder.decode(buffer, buffer);
  EXPECT_EQ(step.state, State::kComplete);
  EXPECT_EQ(buffer.substr(0, step.produced), "hello world");
}

TEST(ChunkedDecoder, TakesAnEmptyBody) {
  const Decoded all = decode("0\r\n\r\n", 1);
  EXPECT_EQ(all.state, State::kComplete);
  EXPECT_EQ(all.body, "");
}

TEST(ChunkedDecoder, StaysCompleteAndConsumesNoMore) {
  ChunkedDecoder decoder(100);
  char out[8];
  ASSERT_EQ(decoder.decode(std::string_view("0\r\n\r\n"), out).state, State::kComplete);
  const ChunkedDecoder::Step step = decoder.decode(std::string_view("abc"), out);
  EXPECT_EQ(step.state, State::kComplete);
  EXPECT_EQ(step.consumed, 0U);
}

struct Attack {
  std::string_view name;
  std::string bytes;
  int status;
};

TEST(ChunkedDecoder, RefusesABodyThatIsNotChunked) {
  const Attack attacks[] = {
      {"no size", "\r\n", 400},
      {"extension without size", ";a\r\n", 400},
      {"negative size", "-1\r\n", 400},
      {"plus size", "+1\r\n", 400},
      {"0x size", "0x1\r\n", 400},
      {"space before size", " 1\r\na\r\n", 400},
      {"space after size", "1 \r\na\r\n", 400},
      {"underscore in size", "1_0\r\n", 400},
      {"17 digits", "00000000000000001\r\n", 400},
      {"size near 2^64", "ffffffffffffffff\r\n", 413},
      {"size beyond 2^64", "10000000000000000\r\n", 400},
      {"size line in bare LF", "1\na\r\n", 400},
      {"size line in bare CR", "1\ra", 400},
      {"data longer than size", "1\r\nab\r\n", 400},
      {"data ends in bare LF", "1\r\na\n", 400},
      {"data ends in bare CR", "1\r\na\rb", 400},
      {"long extension", "1;" + std::string(limits::kMaxChunkExtensionBytes + 1, 'a'), 400},
      {"LF in extension", "1;a\nb\r\n", 400},
      {"NUL in extension", std::string("1;a\0b\r\n", 7), 400},
      {"bare LF at the end", "0\r\n\n", 400},
      {"bare CR at the end", "0\r\n\rX", 400},
      {"a blank line that is not empty", "0\r\n \r\n", 400},
  };
  for (const Attack& attack : attacks) {
    for (const size_t piece : {size_t{1}, size_t{7}, attack.bytes.size()}) {
      const Decoded all = decode(attack.bytes, piece);
      EXPECT_EQ(all.state, State::kRefused) << attack.name << " in pieces of " << piece;
      EXPECT_EQ(all.status, attack.status) << attack.name;
    }
  }
}

// They were read and dropped: fields that no check of the head had seen, behind every body.
TEST(ChunkedDecoder, RefusesTrailersAtTheirFirstByte) {
  for (const std::string_view trailers :
       {"A: b\r\n\r\n", "Content-Length: 5\r\n\r\n", "A", ":\r\n", "\tA: b\r\n"}) {
    for (const size_t piece : {size_t{1}, size_t{4}, size_t{1000}}) {
      const Decoded all = decode(test::concat({"3\r\nabc\r\n0;e\r\n", trailers}), piece);
      EXPECT_EQ(all.state, State::kRefused) << trailers;
      EXPECT_EQ(all.status, 400) << trailers;
      EXPECT_EQ(all.consumed, 14U) << trailers;
    }
  }
}

TEST(ChunkedDecoder, RefusesTheCrossingChunkAtItsSizeLine) {
  EXPECT_EQ(decode("8\r\n01234567\r\n0\r\n\r\n", 100, 8).state, State::kComplete);
  const Decoded all = decode("8\r\n01234567\r\n1\r\n", 100, 8);
  EXPECT_EQ(all.status, 413);
  EXPECT_EQ(all.body, "01234567");
  EXPECT_EQ(decode("9\r", 100, 8).status, 413) << "before a byte of its data";
}

TEST(ChunkedDecoder, CapsTheOverheadOfEndlessTinyChunks) {
  std::string tiny;
  while (tiny.size() < 4 * limits::kChunkOverheadSlackBytes) tiny += "1\r\na\r\n";
  const Decoded all = decode(tiny, 4096);
  EXPECT_EQ(all.status, 400);
  // Five bytes of framing a byte of body: overhead = slack + body / 4.
  const double expected = static_cast<double>(limits::kChunkOverheadSlackBytes) / (5 - 0.25);
  EXPECT_NEAR(static_cast<double>(all.body.size()), expected, 2.0);
}

TEST(ChunkedDecoder, LetsALargeBodyHaveManyChunks) {
  std::string body;
  for (int i = 0; i < 1000; ++i) body += "400\r\n" + std::string(1024, 'x') + "\r\n";
  const Decoded all = decode(body + "0\r\n\r\n", 3000, 2 << 20);
  EXPECT_EQ(all.state, State::kComplete);
  EXPECT_EQ(all.body.size(), 1024000U);
}

}  // namespace
}  // namespace lumen::wire
