// Request and reply as a transport of two_processes.h: the producer requests, the consumer replies.
// Threads: one a process. Memory: the bus's. Errors: exit 2 with the bus's own words.
#pragma once

#include "lumen_bus.h"

#include <lumen/bus/request_reply.h>

#include <optional>

namespace lumen::bench {

class CallEnd {
 public:
  CallEnd(LumenEnd end, Side side) : listener_(end.take_listener()) {
    if (side == Side::kProducer) {
      requester_.emplace(std::move(end.connection()));
    } else {
      responder_.emplace(std::move(end.connection()));
    }
  }
  template <typename Fill>
  void send(size_t size, Fill&& fill) {
    const bus::Publisher::Place place =
        requester_ ? requester_->try_reserve(size) : responder_->try_reserve(size);
    must(place.outcome);
    fill(place.bytes.data());
    if (requester_) {
      must(requester_->send_reserved(size, 1).outcome);
    } else {
      responder_->reply_reserved(request_, size, 1);
    }
  }
  void flush() { requester_ ? requester_->flush() : responder_->flush(); }
  template <typename Use>
  size_t receive(Use&& use) {
    if (requester_) {
      const auto reply = requester_->try_take();
      if (!reply) return 0;
      must(reply->outcome);
      use(reply->data.data());
    } else {
      const auto request = responder_->try_take();
      if (!request) return 0;
      request_ = request->id;
      use(request->data.data());
    }
    ++held_;
    return 1;
  }
  void give_back() {
    if (held_ < kFlushEvery) return;
    requester_ ? requester_->release() : responder_->release();
    held_ = 0;
  }

 private:
  std::unique_ptr<bus::Listener> listener_;
  std::optional<bus::Requester> requester_;
  std::optional<bus::Responder> responder_;
  uint64_t request_ = 0;
  uint32_t held_ = 0;
};

struct CallTransport {
  LumenTransport transport;
  [[nodiscard]] CallEnd open(Side side) const { return {transport.open(side), side}; }
};

}  // namespace lumen::bench
