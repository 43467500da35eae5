// See the header.
#include <lumen/client/sequence_walk.h>

#include <lumen/wire/protobuf.h>

#include <charconv>
#include <cstring>

namespace lumen::client {

void SequencePlaces::write(const SequencePlace& place, char* request) const noexcept {
  if (is_grpc) {
    wire::ProtobufWriter(request + id).varint(place.id);
    request[starts] = static_cast<char>(place.starts);
    request[ends] = static_cast<char>(place.ends);
    return;
  }
  constexpr size_t kDigits = 9;
  std::to_chars(request + id, request + id + kDigits, place.id);
  // JSON takes the space; both texts are of one length.
  std::memcpy(request + starts, place.starts ? " true" : "false", 5);
  std::memcpy(request + ends, place.ends ? " true" : "false", 5);
}

}  // namespace lumen::client
