// Request heads that have broken servers: each row is sent whole, cut at every byte, and must be
// refused with its status, never taken for a request.
#include <lumen/wire/http.h>

#include "unit/wire/wire_support.h"

namespace lumen::wire {
namespace {

using namespace std::string_view_literals;

struct Attack {
  std::string_view name;
  std::string_view bytes;
  int status;
};

#define HEAD "POST / HTTP/1.1\r\nHost: x\r\n"
#define END "\r\n\r\n"

constexpr Attack kAttacks[] = {
    // Framing: two parsers could disagree about where the body ends.
    {"CL and TE", HEAD "Content-Length: 3\r\nTransfer-Encoding: chunked" END, 400},
    {"TE and CL", HEAD "Transfer-Encoding: chunked\r\nContent-Length: 3" END, 400},
    {"two differing CL", HEAD "Content-Length: 3\r\nContent-Length: 4" END, 400},
    {"two equal CL", HEAD "Content-Length: 3\r\nContent-Length: 3" END, 400},
    {"CL list", HEAD "Content-Length: 3, 3" END, 400},
    {"CL with plus", HEAD "Content-Length: +3" END, 400},
    {"CL with minus", HEAD "Content-Length: -3" END, 400},
    {"CL with space", HEAD "Content-Length: 3 4" END, 400},
    {"CL hexadecimal", HEAD "Content-Length: 0x3" END, 400},
    {"CL with point", HEAD "Content-Length: 3.0" END, 400},
    {"CL empty", HEAD "Content-Length:" END, 400},
    {"CL of 20 digits", HEAD "Content-Length: 00000000000000000003" END, 400},
    {"TE not ending in chunked", HEAD "Transfer-Encoding: chunked, gzip" END, 400},
    {"TE without chunked", HEAD "Transfer-Encoding: gzip" END, 400},
    {"TE identity", HEAD "Transfer-Encoding: identity" END, 400},
    {"TE chunked twice", HEAD "Transfer-Encoding: chunked, chunked" END, 400},
    {"TE sent twice", HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked" END, 400},
    {"TE empty", HEAD "Transfer-Encoding:" END, 400},
    {"TE with empty element", HEAD "Transfer-Encoding: chunked," END, 400},
    {"TE with parameter", HEAD "Transfer-Encoding: chunked;a=b" END, 400},
    {"TE with vertical tab",
     HEAD "Transfer-Encoding: \x0b"
          "chunked" END,
     400},
    {"TE xchunked", HEAD "Transfer-Encoding: xchunked" END, 501},
    {"TE unknown before chunked", HEAD "Transfer-Encoding: br, chunked" END, 501},
    {"TE gzip before chunked", HEAD "Transfer-Encoding: gzip, chunked" END, 501},
    {"TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked" END, 400},
    // Line ends and folding.
    {"bare LF after the request line", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
    {"bare LF after a header", "GET / HTTP/1.1\r\nHost: x\n\r\n", 400},
    {"bare LF first", "\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"only LFs", "GET / HTTP/1.1\nHost: x\n\n", 400},
    {"bare CR in a value", HEAD "A: b\rc" END, 400},
    {"bare CR before CR LF", HEAD "A: b\r" END, 400},
    {"bare CR at a line's start", HEAD "\rA: b" END, 400},
    {"bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"fold by space", HEAD "A: b\r\n c" END, 400},
    {"fold by tab", HEAD "A: b\r\n\tc" END, 400},
    {"fold of the first header", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
    // Names and values.
    {"space before the colon", HEAD "Content-Length : 3" END, 400},
    {"tab before the colon", HEAD "Content-Length\t: 3" END, 400},
    {"no colon", HEAD "Content-Length" END, 400},
    {"empty name", HEAD ": 3" END, 400},
    {"NUL in a name", "GET / HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n"sv, 400},
    {"NUL in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n"sv, 400},
    {"control in a name", HEAD "A\x01: b" END, 400},
    {"control in a value", HEAD "A: b\x01" END, 400},
    {"DEL in a value", HEAD "A: abcdefgh\x7fij" END, 400},
    {"non-ASCII in a name", HEAD "\xc3\xa4: b" END, 400},
    {"parenthesis in a name", HEAD "A(): b" END, 400},
    // Host.
    {"no Host", "GET / HTTP/1.1\r\nA: b\r\n\r\n", 400},
    {"two Hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
    {"two Hosts in different case", "GET / HTTP/1.1\r\nHost: x\r\nhOST: y\r\n\r\n", 400},
    {"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
    {"Host list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
    {"Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
    {"Host with userinfo", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
    {"absolute form, Host missing", "GET http://a/ HTTP/1.1\r\n\r\n", 400},
    {"absolute form, Host twice", "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"absolute form without host", "GET http:///a HTTP/1.1\r\nHost: b\r\n\r\n", 400},
    {"absolute form with userinfo", "GET http://u@b/ HTTP/1.1\r\nHost: b\r\n\r\n", 400},
    // Request line.
    {"no version", "GET /\r\nHost: x\r\n\r\n", 400},
    {"only a method", "GET\r\nHost: x\r\n\r\n", 400},
    {"empty target", "GET  HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"two spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"space at the end", "GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
    {"space in front", " GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"tab for space", "GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"space in the path", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"method no token", "G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"method NUL", "G\0T / HTTP/1.1\r\nHost: x\r\n\r\n"sv, 400},
    {"relative target", "GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n", 400},
    {"fragment", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"NUL in the path", "GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n"sv, 400},
    {"escaped NUL in the path", "GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"escaped NUL in the query", "GET /a?b%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"cut escape", "GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"bad escape", "GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"raw UTF-8 in the path", "GET /\xc0\xaf HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"HTTP/2.0", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
    {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"HTTP/0.9", "GET / HTTP/0.9\r\nHost: x\r\n\r\n", 505},
    {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505},
    {"http/1.1", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
    {"HTTP/1.1x", "GET / HTTP/1.1x\r\nHost: x\r\n\r\n", 400},
    {"HTTP/11", "GET / HTTP/11\r\nHost: x\r\n\r\n", 400},
    {"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"sv, 400},
    // Fields that Lumen reads.
    {"Expect other", HEAD "Expect: 200-ok" END, 417},
    {"IHCL negative", HEAD "Inference-Header-Content-Length: -1" END, 400},
    {"IHCL word", HEAD "Inference-Header-Content-Length: all" END, 400},
    {"IHCL empty", HEAD "Inference-Header-Content-Length:" END, 400},
    {"IHCL twice",
     HEAD "Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 1" END, 400},
    {"IHCL of 20 digits", HEAD "Inference-Header-Content-Length: 18446744073709551616" END, 400},
    {"two Content-Encodings", HEAD "Content-Encoding: gzip\r\nContent-Encoding: gzip" END, 415},
    {"two Origins", HEAD "Origin: a\r\nOrigin: b" END, 400},
};

TEST(HttpAttack, IsRefusedWithItsStatus) {
  for (const Attack& attack : kAttacks) {
    const test::ExactCopy bytes(attack.bytes);
    const HeadResult result = parse_http_head(bytes.view());
    EXPECT_EQ(result.progress, HeadProgress::kRefused) << attack.name;
    EXPECT_EQ(result.refusal.status, attack.status) << attack.name << ": " << result.refusal.reason;
    EXPECT_FALSE(result.refusal.reason.empty()) << attack.name;
  }
}

TEST(HttpAttack, IsNeverTakenForARequestWhereverItIsCut) {
  for (const Attack& attack : kAttacks) {
    for (size_t size = 0; size < attack.bytes.size(); ++size) {
      const test::ExactCopy part(attack.bytes.substr(0, size));
      EXPECT_NE(parse_http_head(part.view()).progress, HeadProgress::kComplete)
          << attack.name << " cut at " << size;
    }
  }
}

TEST(HttpAttack, IsRefusedAtEveryPositionOfAForbiddenByte) {
  constexpr std::string_view kGood =
      "GET /v2/health/ready HTTP/1.1\r\nHost: localhost:8000\r\nX-Custom-Header: some "
      "value\r\n\r\n";
  ASSERT_EQ(parse_http_head(kGood).progress, HeadProgress::kComplete);
  for (size_t i = 0; i < kGood.size() - 2; ++i) {
    for (const char c : {'\0', '\r', '\n', '\x0b', '\x7f'}) {
      if (kGood[i] == c) continue;
      std::string bad(kGood);
      bad[i] = c;
      EXPECT_NE(parse_http_head(bad).progress, HeadProgress::kComplete)
          << "byte " << int{c} << " at " << i;
    }
  }
}

}  // namespace
}  // namespace lumen::wire
