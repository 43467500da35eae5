// lumen_engine._bus: Listener, Connection and connect(). Threads: a listener any, the rest as in
// C++.
// Errors: Python exceptions.
#include <lumen/base/clock.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "handles.h"

namespace lumen::bus::python {
namespace {

Role role_of(const std::string& name) {
  if (name == "publish") return Role::kPublish;
  if (name == "subscribe") return Role::kSubscribe;
  if (name == "lossy") return Role::kSubscribeLossy;
  if (name == "both") return Role::kBoth;
  throw nb::value_error(
      ("role: got '" + name + "', wanted 'publish', 'subscribe', 'lossy' or 'both'").c_str());
}

struct ConnectionHandle {
  std::shared_ptr<ConnectionState> state;
  std::shared_ptr<Holds> holds;
};

ConnectionHandle handle_of(Connection connection) {
  auto state = std::make_shared<ConnectionState>(std::move(connection));
  auto holds = std::make_shared<Holds>(state);
  return {std::move(state), std::move(holds)};
}

ListenerHandle listen(const std::string& path, const std::string& role, uint64_t capacity,
                      uint32_t slots, uint64_t area_bytes, uint32_t max_connections,
                      double max_hold, std::vector<uint32_t> users) {
  ListenerOptions options;
  options.role = role_of(role);
  options.capacity = capacity;
  options.slots = slots;
  options.area_bytes = area_bytes;
  options.max_connections = max_connections;
  options.max_connections_per_user = max_connections;
  options.max_hold_ns = max_hold < 0 ? UINT64_MAX : static_cast<uint64_t>(max_hold * 1e9);
  options.users.assign(users.begin(), users.end());
  auto listener = Listener::create(path, options);
  if (!listener.ok()) raise_bus_error(std::string(listener.status().message()));
  return {std::shared_ptr<Listener>(std::move(listener).value())};
}

ConnectionHandle accept(const ListenerHandle& self, std::optional<double> timeout) {
  return handle_of(next_connection(self, timeout));
}

ConnectionHandle connect_to(const std::string& path, const std::string& role,
                            std::optional<double> timeout, bool wait) {
  return handle_of(connect_interruptibly(path, role_of(role), timeout, wait));
}

nb::object publisher_of(const ConnectionHandle& self) {
  auto& publisher = self.state->connection.publisher;
  if (!publisher) return nb::none();
  return nb::cast(
      PublisherHandle{&*publisher, self.state->publisher_state, self.state, self.state});
}

nb::object subscriber_of(const ConnectionHandle& self) {
  if (!self.state->connection.subscriber) return nb::none();
  return nb::cast(SubscriberHandle{self.state, self.holds});
}

// Copies the next frame: (data, lost, type_id, id), or None at the end of the stream.
nb::object read_lossy(const ConnectionHandle& self, std::optional<double> timeout) {
  self.state->check_open();
  auto& subscriber = self.state->connection.lossy_subscriber;
  if (!subscriber) throw nb::value_error("read: only with role='lossy'");
  const Use use(self.state->subscriber_busy);
  const uint64_t deadline_ns = deadline_of(timeout);
  std::string bytes(4096, '\0');
  for (;;) {
    const Outcome outcome =
        wait_interruptibly(deadline_ns, [&](uint64_t until) { return subscriber->wait(until); });
    if (outcome == Outcome::kClosed) return nb::none();
    if (outcome != Outcome::kOk) raise(outcome);
    const auto got = subscriber->try_read(std::as_writable_bytes(std::span(bytes)));
    if (!got) continue;
    if (got->size > bytes.size()) {
      // Its beginning alone was copied: it counts as missed, and the next one of its size is not.
      bytes.resize(got->size);
      continue;
    }
    return nb::make_tuple(nb::bytes(bytes.data(), got->size), got->lost, got->type_id, got->id);
  }
}

}  // namespace

void bind_connections(nb::module_& module) {
  nb::class_<ConnectionHandle>(module, "Connection", "Rings that two processes share.")
      .def_prop_ro("publisher", &publisher_of, nb::sig("def publisher(self) -> Publisher | None"))
      .def_prop_ro("subscriber", &subscriber_of,
                   nb::sig("def subscriber(self) -> Subscriber | None"))
      .def(
          "read", &read_lossy, nb::arg("timeout") = nb::none(),
          nb::sig(
              "def read(self, timeout: float | None = None) -> tuple[bytes, int, int, int] | None"),
          "With role='lossy': (data, frames missed before it, type_id, id), or None at the end.")
      .def_prop_ro("lost",
                   [](const ConnectionHandle& self) {
                     const auto& lossy = self.state->connection.lossy_subscriber;
                     return lossy ? lossy->lost() : 0;
                   })
      .def_prop_ro("peer_pid",
                   [](const ConnectionHandle& self) {
                     return self.state->connection.peer->credentials().pid;
                   })
      .def_prop_ro(
          "is_alive",
          [](const ConnectionHandle& self) {
            return self.state->connection.peer->look() == Outcome::kOk;
          },
          "Whether the other side is there.")
      .def_prop_ro("closed",
                   [](const ConnectionHandle& self) { return self.state->is_closed.load(); })
      .def(
          "close", [](const ConnectionHandle& self) { self.state->close(); },
          "End it; views stay readable.");
  nb::class_<ListenerHandle>(module, "Listener", "Where processes connect to the bus.")
      .def(nb::new_(&listen), nb::arg("path"), nb::arg("role") = "subscribe",
           nb::arg("capacity") = uint64_t{1} << 20, nb::arg("slots") = 0, nb::arg("area_bytes") = 0,
           nb::arg("max_connections") = 64, nb::arg("max_hold") = 1.0,
           nb::arg("users") = std::vector<uint32_t>())
      .def("accept", &accept, nb::arg("timeout") = nb::none(), "The next connection.")
      .def_prop_ro(
          "publisher",
          [](const ListenerHandle& self) {
            Publisher& publisher = self.open().publisher();
            return PublisherHandle{&publisher, self.publisher_state, self.listener, nullptr};
          },
          "With role='publish': its one publisher.")
      .def_prop_ro("connections",
                   [](const ListenerHandle& self) { return self.open().counts().connections; })
      .def_prop_ro("path", [](const ListenerHandle& self) { return self.open().path(); })
      .def("fileno", [](const ListenerHandle& self) { return self.open().fd(); })
      .def("close", [](ListenerHandle& self) {
        self.publisher_state->is_closed = true;
        const std::shared_ptr<Listener> listener = std::move(self.listener);
        const Unlocked without_lock;
        self.listener.reset();
      });
  module.def("connect", &connect_to, nb::arg("path"), nb::arg("role") = "subscribe",
             nb::arg("timeout") = 10.0, nb::arg("wait") = true);
}

}  // namespace lumen::bus::python
