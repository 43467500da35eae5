// See the header for threads, memory and errors.
#include <lumen/bus_client/infer_client.h>

#include <cstring>
#include <utility>

namespace lumen::bus_client {
namespace {

// Replies that a server may have in its ring at once, and their lists: virtual until touched.
constexpr size_t kFirstBytes = size_t{1} << 16;
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

Result<InferClient> InferClient::connect(const std::string& path, uint64_t deadline_ns) {
  Result<bus::Connection> connection =
      bus::connect(path, {.role = bus::Role::kBoth, .deadline_ns = deadline_ns});
  if (!connection.ok()) return connection.status();
  return over(std::move(*connection), path);
}

Result<InferClient> InferClient::over(bus::Connection connection, const std::string& path) {
  if (connection.area.empty() || !connection.publisher || !connection.subscriber) {
    return Status::error(
        Code::kInvalidArgument,
        "bus %s: the process that listens there is no inference server; wanted a path of "
        "`lumen serve --bus`",
        path.c_str());
  }
  Result<Arena> memory = Arena::create_growing(kFirstBytes, kMostBytes);
  if (!memory.ok()) return memory.status();
  return InferClient(std::move(connection), std::move(*memory));
}

Sent InferClient::send(const wire::BusRequest& request, wire::BusVerb verb, uint64_t id) noexcept {
  const std::optional<size_t> bytes = frame_bytes(request);
  if (!bytes) return {bus::Outcome::kTooLarge};
  const bus::Publisher::Place place = connection_.publisher->try_reserve(*bytes);
  if (!place) return {place.outcome};
  wire::write_bus_request(request, place.bytes);
  if (id == 0) id = ++last_id_;
  connection_.publisher->commit(*bytes, static_cast<uint32_t>(verb), id);
  return {bus::Outcome::kOk, id};
}

Sent InferClient::ask(wire::BusVerb verb) noexcept {
  const bus::Publisher::Place place = connection_.publisher->try_reserve(0);
  if (!place) return {place.outcome};
  connection_.publisher->commit(0, static_cast<uint32_t>(verb), ++last_id_);
  return {bus::Outcome::kOk, last_id_};
}

bus::Outcome InferClient::cancel(uint64_t id) noexcept {
  const bus::Publisher::Place place = connection_.publisher->try_reserve(0);
  if (!place) return place.outcome;
  connection_.publisher->commit(0, static_cast<uint32_t>(wire::BusVerb::kCancel), id);
  flush();
  return bus::Outcome::kOk;
}

std::optional<Reply> InferClient::try_take() noexcept {
  const std::optional<bus::Frame> frame = connection_.subscriber->try_take();
  if (!frame) return std::nullopt;
  const std::span copy = memory_.allocate_array<std::byte>(frame->data.size());
  if (!copy.empty()) std::memcpy(copy.data(), frame->data.data(), copy.size());
  Result<wire::BusReply> reply = wire::parse_bus_reply(copy, memory_);
  const bool is_reply = frame->type_id == static_cast<uint32_t>(wire::BusVerb::kReply);
  if (!is_reply || !reply.ok()) {
    connection_.peer->quarantine();
    return std::nullopt;
  }
  return Reply{frame->id, *reply};
}

void InferClient::release() noexcept {
  connection_.subscriber->release();
  memory_.reset();
}

}  // namespace lumen::bus_client
