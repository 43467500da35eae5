// Requests in flight, their deadlines and their replies. One thread at a time.
// Memory: the table, at construction. Errors: Outcome.
#include <lumen/bus/request_reply.h>

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace lumen::bus {

Requester::Requester(Connection connection, uint32_t in_flight)
    : connection_(std::move(connection)),
      slots_(std::bit_ceil(std::clamp(in_flight, 1u, kMostInFlight))) {
  LUMEN_CHECK(connection_.publisher && connection_.subscriber);
  free_.reserve(slots_.size());
  for (size_t i = slots_.size(); i-- > 0;) {
    slots_[i].id = i;
    free_.push_back(static_cast<uint32_t>(i));
  }
}

Requester::Sent Requester::send(std::span<const std::byte> data, uint32_t type_id,
                                uint64_t deadline_ns) noexcept {
  const Publisher::Place place = try_reserve(data.size());
  if (!place) {
    flush();
    return {place.outcome};
  }
  if (!data.empty()) std::memcpy(place.bytes.data(), data.data(), data.size());
  const Sent sent = send_reserved(data.size(), type_id, deadline_ns);
  flush();
  return sent;
}

bool Requester::cancel(uint64_t id) noexcept {
  Slot& slot = slots_[id & (slots_.size() - 1)];
  if (!slot.used || slot.id != id) return false;
  free(slot);
  // Without room the responder answers for nothing; the reply is dropped all the same.
  if (const Publisher::Place place = connection_.publisher->try_reserve(sizeof(MessageTrailer))) {
    MessageTrailer trailer;
    trailer.kind = static_cast<uint32_t>(MessageKind::kCancel);
    detail::commit(*connection_.publisher, place.bytes, trailer, 0, id);
    flush();
  }
  return true;
}

std::optional<Requester::Reply> Requester::take_expired() noexcept {
  const uint64_t now = now_ns();
  if (now < next_deadline_ns_) return std::nullopt;
  next_deadline_ns_ = UINT64_MAX;
  std::optional<Reply> expired;
  for (Slot& slot : slots_) {
    if (!slot.used) continue;
    if (!expired && slot.deadline_ns <= now) {
      expired = Reply{slot.id, Outcome::kTimedOut};
      free(slot);
      continue;
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, slot.deadline_ns);
  }
  return expired;
}

Outcome Requester::wait(uint64_t deadline_ns) noexcept {
  if (in_flight_ == 0) return Outcome::kNotNow;
  flush();
  const Outcome outcome = connection_.subscriber->wait(std::min(deadline_ns, next_deadline_ns_));
  const bool something_is_late = outcome == Outcome::kTimedOut && next_deadline_ns_ <= now_ns();
  return something_is_late ? Outcome::kOk : outcome;
}

Requester::Reply Requester::call(std::span<const std::byte> data, uint32_t type_id,
                                 uint64_t deadline_ns) noexcept {
  release();
  for (;;) {
    const Sent sent = send(data, type_id, deadline_ns);
    if (sent.outcome == Outcome::kNotNow) {
      // Replies to requests that were given up fill the ring: they are dropped.
      if (try_take()) continue;
      release();
      const Outcome outcome =
          connection_.publisher->reserve(sizeof(MessageTrailer) + data.size(), deadline_ns).outcome;
      if (outcome == Outcome::kOk) continue;
      return {0, outcome};
    }
    if (sent.outcome != Outcome::kOk) return {0, sent.outcome};
    for (;;) {
      while (const std::optional<Reply> reply = try_take()) {
        if (reply->id == sent.id) return *reply;
        release();
      }
      release();  // of late replies
      const Outcome outcome = wait(deadline_ns);
      if (outcome == Outcome::kOk) continue;
      (void)cancel(sent.id);
      return {sent.id, outcome};
    }
  }
}

Responder::Responder(Connection connection) : connection_(std::move(connection)) {
  LUMEN_CHECK(connection_.publisher && connection_.subscriber);
}

Outcome Responder::reply(uint64_t id, std::span<const std::byte> data, uint32_t type_id,
                         uint32_t status, uint64_t deadline_ns) noexcept {
  return reply_parts(id, {&data, 1}, type_id, status, deadline_ns);
}

Outcome Responder::reply_parts(uint64_t id, std::span<const std::span<const std::byte>> parts,
                               uint32_t type_id, uint32_t status, uint64_t deadline_ns) noexcept {
  size_t size = 0;
  for (const std::span<const std::byte> part : parts) size += part.size();
  const Publisher::Place place =
      detail::data_of(connection_.publisher->reserve(sizeof(MessageTrailer) + size, deadline_ns));
  if (!place) return place.outcome;
  std::byte* at = place.bytes.data();
  for (const std::span<const std::byte> part : parts) {
    if (!part.empty()) std::memcpy(at, part.data(), part.size());
    at += part.size();
  }
  reply_reserved(id, size, type_id, status);
  flush();
  return Outcome::kOk;
}

}  // namespace lumen::bus
