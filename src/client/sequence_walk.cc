// See the header.
#include <lumen/client/sequence_walk.h>

#include <lumen/wire/protobuf.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace lumen::client {
namespace {

// Of one length; JSON takes the space.
constexpr std::string_view kTrue = " true";
constexpr std::string_view kFalse = "false";
static_assert(kTrue.size() == kFalse.size());

}  // namespace

void SequencePlaces::write(const SequencePlace& place, char* request) const noexcept {
  if (is_grpc) {
    wire::ProtobufWriter(request + id).varint(place.id);
    request[starts] = static_cast<char>(place.starts);
    request[ends] = static_cast<char>(place.ends);
    return;
  }
  constexpr size_t kDigits = 9;
  std::to_chars(request + id, request + id + kDigits, place.id);
  const auto text_of = [](bool is) -> std::string_view { return is ? kTrue : kFalse; };
  std::ranges::copy(text_of(place.starts), request + starts);
  std::ranges::copy(text_of(place.ends), request + ends);
}

}  // namespace lumen::client
