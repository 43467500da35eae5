// See the header.
#include <lumen/wire/content_coding.h>

#include <lumen/wire/accept.h>

#include "wire/ascii.h"

#include <algorithm>

namespace lumen::wire {

std::optional<ContentCoding> parse_content_coding(std::string_view value) noexcept {
  if (value.empty() || equals_ignoring_case(value, "identity")) return ContentCoding::kIdentity;
  if (equals_ignoring_case(value, "gzip") || equals_ignoring_case(value, "x-gzip")) {
    return ContentCoding::kGzip;
  }
  if (equals_ignoring_case(value, "deflate")) return ContentCoding::kDeflate;
  return std::nullopt;
}

std::string_view content_encoding_line(ContentCoding coding) noexcept {
  switch (coding) {
    case ContentCoding::kGzip: return "Content-Encoding: gzip\r\n";
    case ContentCoding::kDeflate: return "Content-Encoding: deflate\r\n";
    default: return {};
  }
}

ContentCoding reply_coding(std::string_view accept_encoding, bool only_alone) noexcept {
  if (accept_encoding.empty()) return ContentCoding::kIdentity;
  if (only_alone && elements_of(accept_encoding) != 1) return ContentCoding::kIdentity;
  const int gzip =
      std::max(quality_of(accept_encoding, "gzip"), quality_of(accept_encoding, "x-gzip"));
  const int deflate = quality_of(accept_encoding, "deflate");
  const int best = std::max(gzip, deflate);
  if (best <= 0 || best < quality_of(accept_encoding, "identity")) return ContentCoding::kIdentity;
  return gzip >= deflate ? ContentCoding::kGzip : ContentCoding::kDeflate;
}

}  // namespace lumen::wire
