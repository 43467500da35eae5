// parse_traceparent: no byte read beyond the value, and the answer of a reader that is written
// another way.
#include <lumen/wire/traceparent.h>

#include <cstdio>
#include <string>

#include "fuzz/fuzz_support.h"

using lumen::Traceparent;
using lumen::fuzz::Copy;

namespace {

std::string hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    char pair[3];
    (void)std::snprintf(pair, sizeof pair, "%02x", bytes[i]);
    text += pair;
  }
  return text;
}

// By the standard's rules for characters, instead of by fields.
bool is_valid(std::string_view value) {
  constexpr std::string_view kShape = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
  if (value.size() < kShape.size()) return false;
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool is_hex = std::string_view("0123456789abcdef").find(value[i]) != value.npos;
    if (kShape[i] == '-' ? value[i] != '-' : !is_hex) return false;
  }
  if (value.starts_with("ff")) return false;
  if (value.size() > kShape.size() && (value.starts_with("00") || value[kShape.size()] != '-')) {
    return false;
  }
  return value.substr(3, 32).find_first_not_of('0') != value.npos &&
         value.substr(36, 16).find_first_not_of('0') != value.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy value(std::string_view(reinterpret_cast<const char*>(data), size));
  const std::optional<Traceparent> parsed = lumen::wire::parse_traceparent(value.view());
  LUMEN_CHECK(parsed.has_value() == is_valid(value.view()));
  if (!parsed) return 0;
  LUMEN_CHECK(parsed->is_present == 1);
  const std::string again = hex(parsed->trace_id.data(), 16) + "-" +
                            hex(parsed->parent_id.data(), 8) + "-" + hex(&parsed->flags, 1);
  LUMEN_CHECK(again == value.view().substr(3, 52));
  return 0;
}
