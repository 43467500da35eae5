// BusConnection: one client on the bus: takes its requests, and answers them in any order.
//
//   ring of requests ─► take_requests(): copy the head, parse, bind ─► engine
//   area             ◄────────────── the model reads inputs and writes outputs there
//   ring of replies  ◄─ answer()
//
// A request is taken only where its reply has room in the ring, so that no reply ever waits for its
// client. A client that goes takes nobody with it: its calls are cancelled, and its memory stays
// until they are back.
//
// Threads: its I/O thread. Memory: none after it was made. Errors: replies with a status.
#pragma once

#include "transports/shm/request.h"

#include <lumen/bus/connection.h>
#include <lumen/net/loop.h>
#include <lumen/service/catalog.h>
#include <lumen/service/request_recorder.h>
#include <lumen/wire/bus_infer.h>

#include <array>
#include <string>

namespace lumen::shm {

// The longest refusal: its head, an empty version, and the text of a Status.
inline constexpr uint64_t kRefusalBytes =
    bus::payload_bytes(sizeof(wire::BusReplyHead) + sizeof(uint16_t) + Status::kMaxMessage);
// Of a model's outputs, or a refusal.
[[nodiscard]] uint64_t longest_reply(const models::ModelMetadata& model) noexcept;

class BusConnection final : public net::WatchHandler {
 public:
  BusConnection(BusTransport& host, bus::Connection bus);
  BusConnection(const BusConnection&) = delete;
  BusConnection& operator=(const BusConnection&) = delete;
  ~BusConnection();
  [[nodiscard]] Status watch();

  // `at_most` is 1 or more. Returns how many.
  size_t take_requests(uint64_t now_ns, size_t at_most) noexcept;
  [[nodiscard]] bool has_requests() noexcept;
  void before_sleep() noexcept;
  void after_sleep() noexcept;
  // The engine's result of a request; `out`: now.
  void on_returned(Request& request, const service::ReplyMoment& out) noexcept;
  // Replies so far are seen by the client.
  void flush() noexcept;
  // The client is gone, or has broken the protocol: cancels the requests in flight.
  void close() noexcept;
  void on_ready(net::Watch& watch, bool hung_up) noexcept override;

  [[nodiscard]] bool has_ended() noexcept;
  // Nothing of it is in the engine.
  [[nodiscard]] bool is_idle() const noexcept { return requests_ == nullptr; }
  // The snapshot that models were looked up in is no longer the newest.
  void forget_models() noexcept { known_.entry = nullptr; }

 private:
  // The model of the last request, so that the next one need not look for it.
  struct KnownModel {
    const service::CatalogModel* entry = nullptr;
    std::string name;
    std::string version;
    uint64_t reply_bytes = 0;  // the longest reply
  };

  void handle(const bus::Frame& frame, uint64_t now_ns) noexcept;
  [[nodiscard]] Status handle_parsed(Request& request, const bus::Frame& frame) noexcept;
  [[nodiscard]] Status submit(Request& request, const wire::BusRequest& head) noexcept;
  [[nodiscard]] Status bind(Request& request, const wire::BusRequest& head) noexcept;
  [[nodiscard]] const service::CatalogModel* find(const wire::BusRequest& head) noexcept;
  [[nodiscard]] Status answer_document(Request& request, wire::BusVerb verb,
                                       const wire::BusRequest& head) noexcept;
  void cancel(uint64_t id) noexcept;
  void answer_outputs(Request& request, const service::ReplyMoment& out) noexcept;
  void refuse(Request& request, const Status& refused, const service::ReplyMoment& out) noexcept;
  // Returns the status that HTTP has for it.
  int refuse(uint64_t id, const Status& status) noexcept;
  void write_reply(uint64_t id, const wire::BusReply& reply) noexcept;
  void release(Request& request) noexcept;
  [[nodiscard]] bool has_reply_room(uint64_t bytes) noexcept;

  BusTransport& host_;
  bus::Connection bus_;
  std::array<net::Watch, 4> watches_;  // both bells, the socket, the process
  KnownModel known_;
  Request* requests_ = nullptr;  // that are in the engine
  uint64_t reserved_bytes_ = 0;  // of the reply ring, for these
  bool waits_for_room_ = false;  // requests stay in their ring
  bool is_announced_ = false;    // the loop is about to sleep
  bool announced_room_ = false;
  bool has_replies_ = false;  // that were not flushed
  bool is_closed_ = false;
};

}  // namespace lumen::shm
