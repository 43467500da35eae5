// ChunkedDecoder: whole, in pieces and in place it gives the same body, end and verdict.
// The first byte of the input is the size of the pieces.
#include <lumen/wire/http.h>

#include "fuzz/fuzz_support.h"

#include <string>

using lumen::fuzz::Copy;
using lumen::wire::ChunkedDecoder;

namespace {

constexpr uint64_t kMaxBodyBytes = 4096;

struct Outcome {
  ChunkedDecoder::State state = ChunkedDecoder::State::kNeedMore;
  int status = 0;
  size_t consumed = 0;
  std::string body;
  bool operator==(const Outcome&) const = default;
};

Outcome decode(std::string_view input, size_t piece) {
  ChunkedDecoder decoder(kMaxBodyBytes);
  Outcome outcome;
  while (outcome.consumed < input.size() && outcome.state == ChunkedDecoder::State::kNeedMore) {
    const Copy part(input.substr(outcome.consumed, piece));
    std::string out(part.view().size(), '\0');
    const ChunkedDecoder::Step step = decoder.decode(part.view(), out);
    LUMEN_CHECK(step.produced <= step.consumed && step.consumed <= out.size());
    LUMEN_CHECK(step.state != ChunkedDecoder::State::kNeedMore || step.consumed == out.size());
    outcome.body.append(out, 0, step.produced);
    outcome.consumed += step.consumed;
    outcome.state = step.state;
    outcome.status = step.refusal.status;
  }
  LUMEN_CHECK(decoder.body_bytes() == outcome.body.size());
  LUMEN_CHECK(outcome.body.size() <= kMaxBodyBytes);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = decode(input, input.size());
  LUMEN_CHECK(decode(input, 1 + data[0]) == whole);
  LUMEN_CHECK(decode(input, 1) == whole);
  std::string in_place(input);
  ChunkedDecoder decoder(kMaxBodyBytes);
  const ChunkedDecoder::Step step = decoder.decode(in_place, in_place);
  LUMEN_CHECK(in_place.compare(0, step.produced, whole.body) == 0);
  return 0;
}
