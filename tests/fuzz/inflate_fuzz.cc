// Inflater: whole and in pieces a body gives the same bytes, end and verdict, and never more than
// there is room for. The first byte of the input is the coding, the second the size of the pieces.
#include <lumen/wire/inflate.h>

#include "fuzz/fuzz_support.h"

#include <algorithm>
#include <string>
#include <vector>

using lumen::fuzz::Copy;
using lumen::wire::ContentCoding;
using lumen::wire::Inflater;

namespace {

// A bomb ends here.
constexpr size_t kMostBytes = 256 * 1024;

struct Outcome {
  bool is_refused = false;
  bool is_at_end = false;
  bool is_too_long = false;
  std::string body;
  bool operator==(const Outcome&) const = default;
};

Outcome inflate(ContentCoding coding, std::string_view input, size_t piece, size_t room) {
  std::vector<std::byte> memory(Inflater::kMemoryBytes);
  Inflater& inflater = *Inflater::create(coding, memory);
  Outcome outcome;
  size_t at = 0;
  Inflater::State state = Inflater::State::kNeedMore;
  while (at < input.size() || state == Inflater::State::kFull) {
    const Copy part(input.substr(at, piece));
    std::string out(room, '\0');
    const Inflater::Step step = inflater.step(part.view(), out);
    LUMEN_CHECK(step.consumed <= part.view().size() && step.produced <= room);
    at += step.consumed;
    state = step.state;
    if (state == Inflater::State::kRefused) {
      LUMEN_CHECK(step.refusal.status == 400 && !step.refusal.reason.empty());
      // The bytes before the damage were given piece by piece, or not at all.
      outcome.body.clear();
      outcome.is_refused = true;
      return outcome;
    }
    LUMEN_CHECK(state != Inflater::State::kNeedMore || step.consumed == part.view().size());
    LUMEN_CHECK(state != Inflater::State::kFull || step.produced == room);
    outcome.body.append(out, 0, step.produced);
    if (outcome.body.size() > kMostBytes) {
      outcome.body.clear();
      outcome.is_too_long = true;
      return outcome;
    }
  }
  outcome.is_at_end = inflater.is_at_end();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const ContentCoding coding = data[0] % 2 == 0 ? ContentCoding::kGzip : ContentCoding::kDeflate;
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Outcome whole = inflate(coding, input, std::max<size_t>(input.size(), 1), 4096);
  const size_t piece = size_t{1} + data[1];
  const Outcome pieces = inflate(coding, input, piece, piece);
  // A refusal may come before or behind the bound.
  if (whole.is_too_long || pieces.is_too_long) return 0;
  LUMEN_CHECK(pieces == whole);
  return 0;
}
