// See the header.
#include "bus/offer.h"

#include <utility>

#include "bus/subscriber_link.h"

namespace lumen::bus {

Result<Offer> Offer::make(const Geometry& geometry, Role role, uint64_t area_bytes) {
  Offer offer;
  LUMEN_RETURN_IF_ERROR(offer.add_stream(geometry, false));
  if (role == Role::kBoth) LUMEN_RETURN_IF_ERROR(offer.add_stream(geometry, true));
  if (area_bytes != 0) LUMEN_RETURN_IF_ERROR(offer.add_area(area_bytes));
  return offer;
}

Status Offer::add_stream(const Geometry& geometry, bool we_publish) {
  auto publisher = make_publisher_file(geometry, we_publish);
  if (!publisher.ok()) return publisher.status();
  auto cursor = make_cursor_file(!we_publish);
  if (!cursor.ok()) return cursor.status();
  auto bells = make_bells();
  if (!bells.ok()) return bells.status();
  const Stream& stream =
      streams_.emplace_back(Stream{std::move(publisher).value(), std::move(cursor).value(),
                                   std::move(bells).value(), we_publish});
  descriptors_.insert(descriptors_.end(), {stream.publisher.file.fd(), stream.cursor.file.fd(),
                                           stream.bells.theirs.get()});
  message_.stream[message_.streams].capacity = geometry.capacity;
  message_.stream[message_.streams].slots = geometry.slots;
  ++message_.streams;
  bytes_ += geometry.file_bytes() + sizeof(CursorPage);
  return {};
}

Status Offer::add_area(uint64_t bytes) {
  auto own = make_area(bytes);
  if (!own.ok()) return own.status();
  area_.emplace(std::move(own).value());
  descriptors_.push_back(area_->file.fd());
  message_.has_area = 1;
  message_.area_bytes = bytes;
  bytes_ += bytes;
  return {};
}

Registry::Entry Offer::entry(const PeerCredentials& credentials) const {
  Registry::Entry entry{credentials, bytes_, {}};
  for (const Stream& stream : streams_) {
    entry.rings.push_back({.memory = stream.publisher.memory,
                           .cursor = stream.cursor.memory,
                           .they_publish = !stream.we_publish,
                           .is_lapped = false});
  }
  return entry;
}

Connection Offer::take(std::shared_ptr<Peer> peer) {
  Connection connection;
  connection.peer = std::move(peer);
  for (Stream& stream : streams_) {
    if (stream.we_publish) {
      auto link = std::make_unique<SubscriberLink>();
      link->cursor = stream.cursor.memory;
      link->peer = connection.peer;
      link->bell = Bell(std::move(stream.bells.ours));
      connection.publisher.emplace(stream.publisher.memory, std::move(link));
    } else {
      connection.subscriber.emplace(SubscriberParts{stream.publisher.memory, stream.cursor.memory,
                                                    connection.peer,
                                                    Bell(std::move(stream.bells.ours))});
    }
  }
  if (area_) {
    connection.area = {area_->mapping->data(), message_.area_bytes};
    connection.area_memory = area_->mapping;
  }
  return connection;
}

}  // namespace lumen::bus
