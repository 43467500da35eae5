// Compressed bodies against zlib's own compressor: whole, in pieces, damaged at each byte, cut.
#include <lumen/wire/inflate.h>

#include "support/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::wire {
namespace {

using State = Inflater::State;
using test::compress;

struct Result {
  std::string plain;
  bool is_refused = false;
  bool is_at_end = false;
};

Result inflate(std::string_view input, ContentCoding coding, size_t piece, size_t room) {
  alignas(std::max_align_t) static std::array<std::byte, Inflater::kMemoryBytes> memory;
  Inflater& inflater = *Inflater::create(coding, memory);
  Result result;
  std::vector<char> out(room);
  State state = State::kNeedMore;
  while (!input.empty() || state == State::kFull) {
    const auto step = inflater.step(input.substr(0, piece), out);
    input.remove_prefix(step.consumed);
    result.plain.append(out.data(), step.produced);
    state = step.state;
    if (state == State::kRefused) {
      EXPECT_EQ(step.refusal.status, 400);
      result.is_refused = true;
      return result;
    }
  }
  result.is_at_end = inflater.is_at_end();
  return result;
}

std::string some_text(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() : 'a');
  return text;
}

constexpr ContentCoding kBoth[] = {ContentCoding::kGzip, ContentCoding::kDeflate};

TEST(Inflater, GivesTheBytesThatWereCompressedInAnyPieces) {
  for (const ContentCoding coding : kBoth) {
    for (const size_t bytes : {0u, 1u, 1000u, 100'000u}) {
      for (const int level : {0, 1, 9}) {
        const std::string plain = some_text(bytes, bytes + 1);
        const std::string packed = compress(plain, coding, level);
        for (const size_t piece : {1u, 7u, 4096u, 1u << 20}) {
          for (const size_t room : {1u, 1000u, 1u << 20}) {
            if (piece * room < 100 && bytes > 1000) continue;  // slow, and shows no more
            const Result got = inflate(packed, coding, piece, room);
            ASSERT_TRUE(got.is_at_end) << bytes << " " << piece << " " << room;
            ASSERT_EQ(got.plain, plain);
          }
        }
      }
    }
  }
}

TEST(Inflater, MembersOfGzipFollowEachOther) {
  const std::string one = compress("one", ContentCoding::kGzip);
  const std::string none = compress("", ContentCoding::kGzip);
  const std::string two = compress("two", ContentCoding::kGzip);
  for (const size_t piece : {1u, 5u, 1000u}) {
    const std::string all = std::string(one).append(none).append(none).append(two);
    const Result got = inflate(all, ContentCoding::kGzip, piece, 100);
    EXPECT_TRUE(got.is_at_end);
    EXPECT_EQ(got.plain, "onetwo");
  }
  const std::string deflated = compress("one", ContentCoding::kDeflate);
  EXPECT_TRUE(inflate(deflated + deflated, ContentCoding::kDeflate, 1000, 100).is_refused);
}

TEST(Inflater, BytesBehindTheEndAreRefused) {
  for (const ContentCoding coding : kBoth) {
    const std::string packed = compress("plain", coding);
    for (const std::string_view more : {std::string_view("x"), std::string_view("\0", 1),
                                        std::string_view("\x1f\x8c garbage", 10)}) {
      for (const size_t piece : {1u, 1000u}) {
        const Result got = inflate(packed + std::string(more), coding, piece, 100);
        // One byte may still be the first of another member.
        EXPECT_TRUE(got.is_refused || !got.is_at_end) << more;
      }
    }
  }
}

TEST(Inflater, ABodyThatIsCutAnywhereIsNotAtItsEnd) {
  for (const ContentCoding coding : kBoth) {
    const std::string packed = compress(some_text(300, 4), coding);
    for (size_t bytes = 0; bytes < packed.size(); ++bytes) {
      EXPECT_FALSE(inflate(packed.substr(0, bytes), coding, 64, 64).is_at_end) << bytes;
    }
  }
}

// A bit that says nothing about the data (gzip's time, the padding before a checksum) may change.
TEST(Inflater, DamageThatChangesTheDataIsSeenByTheChecksums) {
  for (const ContentCoding coding : kBoth) {
    const std::string plain = some_text(500, 5);
    const std::string packed = compress(plain, coding);
    int taken = 0;
    for (size_t at = 0; at < packed.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = packed;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        const Result got = inflate(damaged, coding, 1000, 4096);
        // A flag of the head may ask for fields that never end.
        const bool is_taken = !got.is_refused && got.is_at_end;
        EXPECT_TRUE(!is_taken || got.plain == plain) << at << " " << bit;
        taken += is_taken ? 1 : 0;
      }
    }
    EXPECT_LT(taken, 100) << "of " << packed.size() * 8;
  }
}

TEST(Inflater, AFormThatWasNotAnnouncedIsRefused) {
  const std::string gzip = compress("plain", ContentCoding::kGzip);
  const std::string zlib = compress("plain", ContentCoding::kDeflate);
  EXPECT_TRUE(inflate(gzip, ContentCoding::kDeflate, 1000, 100).is_refused);
  EXPECT_TRUE(inflate(zlib, ContentCoding::kGzip, 1000, 100).is_refused);
  // Without its frame, as some clients mistake "deflate".
  EXPECT_TRUE(inflate(zlib.substr(2), ContentCoding::kDeflate, 1000, 100).is_refused);
  EXPECT_TRUE(inflate("{\"inputs\":[]}", ContentCoding::kGzip, 1000, 100).is_refused);
}

TEST(ContentCoding, IsOneOfThreeInAnyCase) {
  EXPECT_EQ(parse_content_coding(""), ContentCoding::kIdentity);
  EXPECT_EQ(parse_content_coding("Identity"), ContentCoding::kIdentity);
  EXPECT_EQ(parse_content_coding("GZip"), ContentCoding::kGzip);
  EXPECT_EQ(parse_content_coding("x-gzip"), ContentCoding::kGzip);
  EXPECT_EQ(parse_content_coding("deflate"), ContentCoding::kDeflate);
  for (const char* other : {"br", "zstd", "gzip, gzip", "gzip,deflate", "identity, gzip",
                            "gzip;q=1", "compress", "gzi", "*"}) {
    EXPECT_FALSE(parse_content_coding(other)) << other;
  }
}

}  // namespace
}  // namespace lumen::wire
