// The C face of the bus over the C++ one. Threads, memory and errors: lumen/c/bus.h.
#include <lumen/bus/connection.h>
#include <lumen/bus/listener.h>
#include <lumen/c/bus.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace bus = lumen::bus;

struct lumen_bus_listener {
  std::unique_ptr<bus::Listener> listener;
};
struct lumen_bus_connection {
  bus::Connection connection;
};

namespace {

lumen_bus_outcome to_c(bus::Outcome outcome) noexcept {
  return static_cast<lumen_bus_outcome>(outcome);
}
static_assert(LUMEN_BUS_OK == static_cast<int>(bus::Outcome::kOk));
static_assert(LUMEN_BUS_HELD == static_cast<int>(bus::Outcome::kHeld));
static_assert(LUMEN_BUS_FORKED == static_cast<int>(bus::Outcome::kForked));
static_assert(LUMEN_BUS_BOTH == static_cast<int>(bus::Role::kBoth));
static_assert(LUMEN_BUS_SUBSCRIBE == static_cast<int>(bus::Role::kSubscribe));

// The handles of publishers and subscribers are those of C++: they have no state of their own.
bus::Publisher& of(lumen_bus_publisher* publisher) noexcept {
  return *reinterpret_cast<bus::Publisher*>(publisher);
}
bus::Subscriber& of(lumen_bus_subscriber* subscriber) noexcept {
  return *reinterpret_cast<bus::Subscriber*>(subscriber);
}
template <typename Handle, typename T>
Handle* handle_of(std::optional<T>& one) noexcept {
  return one ? reinterpret_cast<Handle*>(&*one) : nullptr;
}

void tell(char** message, std::string_view text) noexcept {
  if (message == nullptr) return;
  *message = static_cast<char*>(std::malloc(text.size() + 1));
  if (*message == nullptr) return;
  std::memcpy(*message, text.data(), text.size());
  (*message)[text.size()] = '\0';
}

}  // namespace

extern "C" {

lumen_bus_options lumen_bus_default_options(lumen_bus_role role) {
  const bus::ListenerOptions defaults;
  return {sizeof(lumen_bus_options), role, defaults.capacity, defaults.slots,
          defaults.max_connections};
}

const char* lumen_bus_outcome_name(lumen_bus_outcome outcome) {
  return bus::name_of(static_cast<bus::Outcome>(outcome));
}

void lumen_bus_free_message(char* message) { std::free(message); }

lumen_bus_listener* lumen_bus_listen(const char* path, const lumen_bus_options* options,
                                     char** message) {
  bus::ListenerOptions wanted;
  if (options == nullptr || options->size != sizeof(lumen_bus_options)) {
    tell(message, "bus: options of another size; begin with lumen_bus_default_options()");
    return nullptr;
  }
  wanted.role = static_cast<bus::Role>(options->role);
  wanted.capacity = options->capacity;
  wanted.slots = options->slots;
  wanted.max_connections = options->max_connections;
  auto listener = bus::Listener::create(path, wanted);
  if (!listener.ok()) {
    tell(message, listener.status().message());
    return nullptr;
  }
  return new (std::nothrow) lumen_bus_listener{std::move(listener).value()};
}

void lumen_bus_listener_close(lumen_bus_listener* listener) { delete listener; }

lumen_bus_connection* lumen_bus_accept(lumen_bus_listener* listener, uint64_t deadline_ns,
                                       lumen_bus_outcome* outcome) {
  bus::Listener::Accepted accepted = listener->listener->accept(deadline_ns);
  if (outcome != nullptr) *outcome = to_c(accepted.outcome);
  if (!accepted.connection) return nullptr;
  return new (std::nothrow) lumen_bus_connection{std::move(*accepted.connection)};
}

lumen_bus_publisher* lumen_bus_listener_publisher(lumen_bus_listener* listener) {
  return reinterpret_cast<lumen_bus_publisher*>(&listener->listener->publisher());
}

lumen_bus_connection* lumen_bus_connect(const char* path, lumen_bus_role role, uint64_t deadline_ns,
                                        bool wait_for_listener, char** message) {
  auto connection = bus::connect(
      path, {static_cast<bus::Role>(role), std::max<uint64_t>(deadline_ns, 1), wait_for_listener});
  if (!connection.ok()) {
    tell(message, connection.status().message());
    return nullptr;
  }
  return new (std::nothrow) lumen_bus_connection{std::move(connection).value()};
}

void lumen_bus_close(lumen_bus_connection* connection) { delete connection; }

lumen_bus_publisher* lumen_bus_connection_publisher(lumen_bus_connection* connection) {
  return handle_of<lumen_bus_publisher>(connection->connection.publisher);
}

lumen_bus_subscriber* lumen_bus_connection_subscriber(lumen_bus_connection* connection) {
  return handle_of<lumen_bus_subscriber>(connection->connection.subscriber);
}

lumen_bus_outcome lumen_bus_reserve(lumen_bus_publisher* publisher, size_t size,
                                    uint64_t deadline_ns, void** data) {
  bus::Publisher::Place place = of(publisher).try_reserve(size);
  if (place.outcome == bus::Outcome::kNotNow) place = of(publisher).reserve(size, deadline_ns);
  *data = place.bytes.data();
  return to_c(place.outcome);
}

void lumen_bus_commit(lumen_bus_publisher* publisher, size_t size, uint32_t type_id, uint64_t id) {
  of(publisher).commit(size, type_id, id);
}

void lumen_bus_flush(lumen_bus_publisher* publisher) { of(publisher).flush(); }

lumen_bus_outcome lumen_bus_send(lumen_bus_publisher* publisher, const void* data, size_t size,
                                 uint32_t type_id, uint64_t id, uint64_t deadline_ns) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return to_c(of(publisher).send({bytes, size}, type_id, id, deadline_ns));
}

lumen_bus_outcome lumen_bus_wait_for_subscribers(lumen_bus_publisher* publisher, size_t count,
                                                 uint64_t deadline_ns) {
  return to_c(of(publisher).wait_for_subscribers(count, deadline_ns));
}

lumen_bus_outcome lumen_bus_wait(lumen_bus_subscriber* subscriber, uint64_t deadline_ns) {
  return to_c(of(subscriber).wait(deadline_ns));
}

size_t lumen_bus_take(lumen_bus_subscriber* subscriber, lumen_bus_frame* frames, size_t most) {
  size_t count = 0;
  while (count < most) {
    const std::optional<bus::Frame> frame = of(subscriber).try_take();
    if (!frame) break;
    frames[count++] = {frame->data.data(), frame->data.size(), frame->type_id, frame->id};
  }
  return count;
}

void lumen_bus_release(lumen_bus_subscriber* subscriber) { of(subscriber).release(); }

}  // extern "C"
