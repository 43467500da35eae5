// A publisher and a subscriber over one mapping of each file: two threads that stand for two
// processes. The sanitizer for threads knows a word by its address, so that two mappings of it are
// two words to it.
// Threads: each side one. Memory: control plane. Errors: CHECK.
#pragma once

#include <lumen/base/check.h>
#include <lumen/bus/publisher.h>
#include <lumen/bus/subscriber.h>

#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "bus/segments.h"
#include "bus/subscriber_link.h"

namespace lumen::test {

struct BusPair {
  explicit BusPair(const bus::Geometry& geometry) {
    auto ring = bus::SharedFile::create("lumen-test-ring", geometry.file_bytes());
    auto cursor_file = bus::SharedFile::create("lumen-test-cursor", sizeof(bus::CursorPage));
    LUMEN_CHECK(ring.ok() && cursor_file.ok());
    memory = bus::PublisherMemory::map(*ring, geometry, bus::Access::kReadWrite).value();
    cursor = bus::CursorMemory::map(*cursor_file, bus::Access::kReadWrite).value();
    memory->initialise();
    cursor->initialise();
    auto bells = bus::make_bells();
    std::array<int, 2> sockets{};
    LUMEN_CHECK(bells.ok() && ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets.data()) == 0);
    publisher_end =
        std::make_shared<bus::Peer>(UniqueFd(sockets[0]), UniqueFd(), PeerCredentials{});
    subscriber_end =
        std::make_shared<bus::Peer>(UniqueFd(sockets[1]), UniqueFd(), PeerCredentials{});
    auto link = std::make_unique<bus::SubscriberLink>();
    link->cursor = cursor;
    link->peer = publisher_end;
    link->bell = bus::Bell(std::move(bells->ours));
    publisher = std::make_unique<bus::Publisher>(memory, std::move(link));
    subscriber = std::make_unique<bus::Subscriber>(
        bus::SubscriberParts{memory, cursor, subscriber_end, bus::Bell(std::move(bells->theirs))});
  }

  std::shared_ptr<bus::PublisherMemory> memory;
  std::shared_ptr<bus::CursorMemory> cursor;
  std::shared_ptr<bus::Peer> publisher_end;
  std::shared_ptr<bus::Peer> subscriber_end;
  std::unique_ptr<bus::Publisher> publisher;
  std::unique_ptr<bus::Subscriber> subscriber;
};

}  // namespace lumen::test
