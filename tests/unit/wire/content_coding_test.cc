// The coding of a reply by the client's list, and bodies compressed and inflated again.
#include <lumen/wire/content_coding.h>
#include <lumen/wire/deflate.h>
#include <lumen/wire/inflate.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace lumen::wire {
namespace {

constexpr ContentCoding kNone = ContentCoding::kIdentity;
constexpr ContentCoding kGzip = ContentCoding::kGzip;
constexpr ContentCoding kDeflate = ContentCoding::kDeflate;

TEST(ReplyCoding, IsTheOneThatTheClientWantsMost) {
  struct Case {
    std::string_view list;
    ContentCoding among_others;
    ContentCoding alone;
  };
  constexpr Case kCases[] = {
      {"", kNone, kNone},
      {"gzip", kGzip, kGzip},
      {"GZip", kGzip, kGzip},
      {"x-gzip", kGzip, kGzip},
      {"deflate", kDeflate, kDeflate},
      {" , gzip ;q=0.5,", kGzip, kGzip},
      {"gzip, deflate", kGzip, kNone},
      {"gzip, deflate, br, zstd", kGzip, kNone},
      {"deflate, gzip;q=0.9", kDeflate, kNone},
      {"gzip;q=0", kNone, kNone},
      {"gzip;q=0, deflate", kDeflate, kNone},
      {"identity, gzip;q=0.5", kNone, kNone},
      {"identity;q=0.5, gzip", kGzip, kNone},
      {"identity", kNone, kNone},
      {"br", kNone, kNone},
      {"*", kNone, kNone},
      {"gzip;q=nonsense", kNone, kNone},
      {"gzipped", kNone, kNone},
      {",,,", kNone, kNone},
  };
  for (const Case& one : kCases) {
    EXPECT_EQ(reply_coding(one.list, false), one.among_others) << one.list;
    EXPECT_EQ(reply_coding(one.list, true), one.alone) << one.list;
  }
}

TEST(ReplyCoding, HasALineForTheHead) {
  EXPECT_EQ(content_encoding_line(kGzip), "Content-Encoding: gzip\r\n");
  EXPECT_EQ(content_encoding_line(kDeflate), "Content-Encoding: deflate\r\n");
  EXPECT_EQ(content_encoding_line(kNone), "");
}

std::string inflated(std::string_view packed, ContentCoding coding, size_t room) {
  alignas(std::max_align_t) static std::array<std::byte, Inflater::kMemoryBytes> memory;
  Inflater& inflater = *Inflater::create(coding, memory);
  std::string out(room + 1, '\0');
  const Inflater::Step step = inflater.step(packed, out);
  EXPECT_NE(step.state, Inflater::State::kRefused);
  EXPECT_TRUE(inflater.is_at_end());
  out.resize(step.produced);
  return out;
}

TEST(Deflater, ItsOutputInflatesToTheSameBytes) {
  std::optional<Deflater> deflater = Deflater::create();
  ASSERT_TRUE(deflater.has_value());
  std::mt19937_64 random(7);
  for (const ContentCoding coding : {kGzip, kDeflate}) {
    for (const size_t bytes : {0u, 1u, 100u, 1024u, 65'537u, 1'000'000u}) {
      std::string plain(bytes, '\0');
      for (char& c : plain) c = static_cast<char>(random() % 4 == 0 ? random() : 'a');
      std::string packed(bytes + 1024, '\0');
      const size_t size = deflater->compress(coding, std::as_bytes(std::span(plain)),
                                             std::as_writable_bytes(std::span(packed)));
      ASSERT_GT(size, 0u);
      packed.resize(size);
      EXPECT_TRUE(inflated(packed, coding, bytes) == plain) << bytes;
      // A place one byte too small is refused, and none of it is touched behind its end.
      std::string small(size, 'x');
      EXPECT_EQ(deflater->compress(coding, std::as_bytes(std::span(plain)),
                                   std::as_writable_bytes(std::span(small)).first(size - 1)),
                0u);
      EXPECT_EQ(small.back(), 'x');
    }
  }
}

}  // namespace
}  // namespace lumen::wire
