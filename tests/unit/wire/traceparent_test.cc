// The header traceparent: the examples of W3C Trace Context, the forms to be ignored, and how a
// head carries it.
#include <lumen/wire/traceparent.h>

#include <lumen/wire/http.h>

#include "unit/wire/wire_support.h"

namespace lumen::wire {
namespace {

using test::ExactCopy;

constexpr std::string_view kExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

Traceparent example() {
  return {.is_present = 1,
          .flags = 1,
          .trace_id = {0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c,
                       0x80, 0x31, 0x9c},
          .parent_id = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}};
}

std::string with(size_t at, std::string_view text) {
  return std::string(kExample).replace(at, text.size(), text);
}

TEST(Traceparent, TheStandardsExampleIsReadToTheByte) {
  const ExactCopy exact(kExample);
  EXPECT_EQ(parse_traceparent(exact.view()), example());
}

TEST(Traceparent, FlagsAreKeptAsTheyCame) {
  EXPECT_EQ(parse_traceparent(with(53, "00")).value().flags, 0x00);
  EXPECT_EQ(parse_traceparent(with(53, "ff")).value().flags, 0xff);
}

TEST(Traceparent, AnythingShorterIsIgnored) {
  for (size_t size = 0; size < kExample.size(); ++size) {
    const ExactCopy part(kExample.substr(0, size));
    EXPECT_EQ(parse_traceparent(part.view()), std::nullopt) << size;
  }
}

TEST(Traceparent, EachByteMustBeALowerCaseDigitOrADashInItsPlace) {
  for (size_t at = 0; at < kExample.size(); ++at) {
    for (const std::string_view wrong : {"A", "F", "g", "/", ":", "`", " ", "\xff", "x"}) {
      EXPECT_EQ(parse_traceparent(with(at, wrong)), std::nullopt) << at << wrong;
    }
    const bool is_dash = kExample[at] == '-';
    EXPECT_EQ(parse_traceparent(with(at, is_dash ? "1" : "-")), std::nullopt) << at;
  }
}

TEST(Traceparent, IdsOfZeroesAreNone) {
  EXPECT_EQ(parse_traceparent(with(3, std::string(32, '0'))), std::nullopt);
  EXPECT_EQ(parse_traceparent(with(36, std::string(16, '0'))), std::nullopt);
  EXPECT_TRUE(parse_traceparent(with(3, std::string(31, '0') + "1")).has_value());
  EXPECT_TRUE(parse_traceparent(with(36, std::string(15, '0') + "1")).has_value());
}

TEST(Traceparent, Version00EndsBehindItsFlags) {
  for (const std::string_view more : {"-", "-00", "0", " "}) {
    EXPECT_EQ(parse_traceparent(std::string(kExample) + std::string(more)), std::nullopt) << more;
  }
}

TEST(Traceparent, OfAVersionToComeTheFourFieldsThatAreKnownAreRead) {
  for (const std::string_view version : {"01", "cc", "fe"}) {
    EXPECT_EQ(parse_traceparent(with(0, version)), example()) << version;
    EXPECT_EQ(parse_traceparent(with(0, version) + "-what the future brings"), example());
    EXPECT_EQ(parse_traceparent(with(0, version) + "-"), example());
    EXPECT_EQ(parse_traceparent(with(0, version) + "0"), std::nullopt);
  }
  EXPECT_EQ(parse_traceparent(with(0, "ff")), std::nullopt);
  EXPECT_EQ(parse_traceparent(with(0, "ff") + "-x"), std::nullopt);
}

// --- in a head -----------------------------------------------------------------------------------

// A copy: a head's views are of the text, which is gone here.
struct Head {
  HeadProgress progress;
  std::string traceparent;
};

Head head_with(std::string_view lines) {
  const std::string text = "POST / HTTP/1.1\r\nHost: x\r\n" + std::string(lines) + "\r\n";
  const HeadResult result = parse_http_head(text);
  return {result.progress, std::string(result.head.traceparent)};
}

TEST(Traceparent, AHeadCarriesItAsItWasSent) {
  EXPECT_EQ(head_with("").traceparent, "");
  EXPECT_EQ(head_with("traceparent: 00-a\r\n").traceparent, "00-a");
  EXPECT_EQ(head_with("TraceParent: \t 00-a \r\n").traceparent, "00-a");
  EXPECT_EQ(head_with("traceparenu: 00-a\r\ntracestate: b=1\r\n").traceparent, "");
}

TEST(Traceparent, OfSeveralInAHeadNoneCountsAndTheRequestIsNoWorse) {
  for (const std::string_view lines :
       {"traceparent: a\r\ntraceparent: a\r\n", "traceparent:\r\ntraceparent: a\r\n",
        "traceparent: a\r\ntraceparent: b\r\ntraceparent: c\r\n"}) {
    const Head result = head_with(lines);
    ASSERT_EQ(result.progress, HeadProgress::kComplete);
    EXPECT_EQ(result.traceparent, "") << lines;
  }
}

}  // namespace
}  // namespace lumen::wire
