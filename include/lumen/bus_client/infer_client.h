// InferClient: the client's side of inference over the bus (`lumen serve --bus PATH`): several
// requests in flight, replies in any order, tensors in memory that the server reads and writes in
// place.
//
//   auto client = InferClient::connect("/run/user/1000/lumen.bus");
//   fill(client->area().subspan(0, 64));                       // the input, where the client likes
//   auto sent = client->send({.model = "mlp", .reply_offset = 4096, .reply_room = 4096, .inputs = inputs});
//   client->flush();
//   while (client->wait(deadline) == bus::Outcome::kOk)
//     while (auto reply = client->try_take()) use(*reply);     // by reply->id
//   client->release();                                         // of all taken replies
//
// Threads: one at a time. Memory: at connect(), and one region for replies that were taken and not
// released.
// Errors: connect() a Status; then bus::Outcome; a refusal of the server has a status of HTTP and a
// text.
#pragma once

#include <lumen/base/result.h>
#include <lumen/bus/connection.h>
#include <lumen/memory/arena.h>
#include <lumen/wire/bus_infer.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lumen::bus_client {

struct Sent {
  bus::Outcome outcome = bus::Outcome::kNotNow;  // kNotNow: no room; take replies, and send again
  uint64_t id = 0;
};

struct Reply {
  uint64_t id = 0;
  wire::BusReply reply;  // its strings and lists are valid until release()
};

class InferClient {
 public:
  // `deadline_ns`: CLOCK_MONOTONIC; 0: one second from now.
  [[nodiscard]] static Result<InferClient> connect(const std::string& path,
                                                   uint64_t deadline_ns = 0);

  // Over a connection that stands already; `path` is for the error's text.
  [[nodiscard]] static Result<InferClient> over(bus::Connection connection,
                                                const std::string& path);

  // Both sides map it, and this side decides its use. From send() to the reply a request's inputs
  // stay as they are, and its room for outputs is the server's.
  [[nodiscard]] std::span<std::byte> area() const noexcept { return connection_.area; }

  // Not seen by the server before flush(). `id`: comes back with the reply; 0: the next number.
  // kTooLarge: more than a frame can say.
  [[nodiscard]] Sent send(const wire::BusRequest& request,
                          wire::BusVerb verb = wire::BusVerb::kInfer, uint64_t id = 0) noexcept;
  // Verbs without a body: server metadata, server ready.
  [[nodiscard]] Sent ask(wire::BusVerb verb) noexcept;
  // The request is not wanted any more; it is answered all the same, with 499 if it has not run.
  bus::Outcome cancel(uint64_t id) noexcept;
  void flush() noexcept { connection_.publisher->flush(); }

  // kOk: try_take() has something; else why not.
  bus::Outcome wait(uint64_t deadline_ns = UINT64_MAX) noexcept {
    flush();
    return connection_.subscriber->wait(deadline_ns);
  }
  [[nodiscard]] std::optional<Reply> try_take() noexcept;
  void release() noexcept;
  // Why try_take() has nothing: kOk while the server is there.
  [[nodiscard]] bus::Outcome state() noexcept { return connection_.subscriber->state(); }
  [[nodiscard]] bus::Connection& connection() noexcept { return connection_; }

 private:
  InferClient(bus::Connection connection, Arena memory) noexcept
      : connection_(std::move(connection)), memory_(std::move(memory)) {}

  bus::Connection connection_;
  Arena memory_;  // replies are copied before they are read
  uint64_t last_id_ = 0;
};

}  // namespace lumen::bus_client
