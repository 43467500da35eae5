// The codings of bodies (RFC 9110, 8.4): a request's, and the one that a reply may have.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lumen::wire {

enum class ContentCoding : uint8_t { kIdentity, kGzip, kDeflate };

// The value of Content-Encoding; nullopt: another coding, or several.
[[nodiscard]] std::optional<ContentCoding> parse_content_coding(std::string_view value) noexcept;

// The header line with its CRLF; nothing for the identity.
[[nodiscard]] std::string_view content_encoding_line(ContentCoding coding) noexcept;

// The coding of a reply to a client that sent this Accept-Encoding: gzip or deflate where the list
// names it, the one that the client wants more, gzip of two alike; the identity where the client
// wants that more. `only_alone`: the identity, too, where the list names anything else. Libraries
// send a list of all codings that they know; a client that names one asks for it.
[[nodiscard]] ContentCoding reply_coding(std::string_view accept_encoding,
                                         bool only_alone) noexcept;

}  // namespace lumen::wire
