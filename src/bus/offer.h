// Offer: a listener's preparation for one connection: the welcome with its descriptors, and this
// side's half.
// Threads: the listener's. Memory: shared memory, reserved at once. Errors: Result.
#pragma once

#include <lumen/bus/connection.h>

#include <memory>
#include <optional>
#include <vector>

#include "bus/handshake.h"
#include "bus/registry.h"
#include "bus/segments.h"

namespace lumen::bus {

class Offer {
 public:
  // The first stream is read by this side; with Role::kBoth there is a second one, which it writes.
  [[nodiscard]] static Result<Offer> make(const Geometry& geometry, Role role, uint64_t area_bytes);

  // False: the process that connects is gone or does not read.
  [[nodiscard]] bool send(int socket) const noexcept {
    return send_with_descriptors(socket, message_, descriptors_);
  }
  [[nodiscard]] Registry::Entry entry(const PeerCredentials& credentials) const;
  // This side's half, without its lease. Once.
  [[nodiscard]] Connection take(std::shared_ptr<Peer> peer);

 private:
  struct Stream {
    OwnPublisherFile publisher;
    OwnCursorFile cursor;
    BellPair bells;
    bool we_publish = false;
  };

  Offer() = default;
  Status add_stream(const Geometry& geometry, bool we_publish);
  Status add_area(uint64_t bytes);

  Welcome message_;
  std::vector<int> descriptors_;  // of the members below; closed with it, once they are sent
  std::vector<Stream> streams_;
  std::optional<OwnArea> area_;
  uint64_t bytes_ = 0;
};

}  // namespace lumen::bus
