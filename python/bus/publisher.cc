// lumen_engine._bus.Publisher. Threads: one at a time. Errors: Python exceptions.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>

#include "handles.h"

namespace lumen::bus::python {
namespace {

void check(const PublisherHandle& self) {
  if (self.connection != nullptr) self.connection->check_open();
  if (self.state->is_closed) raise_bus_error("bus: this listener is closed");
  if (fork_count() != self.born) raise(Outcome::kForked);
}

// A frame that is sent while a place is reserved would take that very place.
void check_nothing_is_reserved(const PublisherHandle& self) {
  if (self.state->has_reservation) {
    throw nb::value_error("a reserved place is open: commit or abandon it first");
  }
}

Publisher::Places wait_for_places(PublisherHandle& self, size_t size, size_t most,
                                  std::optional<double> timeout) {
  Publisher::Places places = self.publisher->try_reserve_batch(size, most);
  if (places.outcome == Outcome::kNotNow) {
    const uint64_t deadline_ns = deadline_of(timeout);
    (void)wait_interruptibly(deadline_ns, [&](uint64_t until) {
      places = self.publisher->reserve_batch(size, most, until);
      return places.outcome;
    });
  }
  if (!places) {
    raise(places.outcome, places.outcome == Outcome::kTooLarge
                              ? "got " + std::to_string(size) + " bytes, the ring has " +
                                    std::to_string(self.publisher->geometry().capacity)
                              : std::string());
  }
  return places;
}

void send(PublisherHandle& self, nb::handle data, uint32_t type_id, uint64_t id,
          std::optional<double> timeout, bool flush) {
  check(self);
  const Use use(self.state->busy);
  check_nothing_is_reserved(self);
  const Buffer buffer(data, PyBUF_C_CONTIGUOUS);
  const Publisher::Places places = wait_for_places(self, buffer.size(), 1, timeout);
  if (buffer.size() != 0) std::memcpy(places.data, buffer.view().buf, buffer.size());
  self.publisher->commit(buffer.size(), type_id, id);
  if (flush) self.publisher->flush();
}

// Each item of the first axis is a frame.
size_t send_batch(PublisherHandle& self, nb::handle array, uint32_t type_id,
                  std::optional<double> timeout) {
  check(self);
  const Use use(self.state->busy);
  check_nothing_is_reserved(self);
  const Buffer buffer(array, PyBUF_C_CONTIGUOUS);
  const Py_buffer& view = buffer.view();
  if (view.ndim < 1)
    throw nb::value_error("send_batch: wanted an array whose first axis counts frames");
  const auto rows = static_cast<size_t>(view.shape[0]);
  if (rows == 0) return 0;
  const size_t size = buffer.size() / rows;
  const auto* from = static_cast<const std::byte*>(view.buf);
  for (size_t sent = 0; sent < rows;) {
    const Publisher::Places places = wait_for_places(self, size, rows - sent, timeout);
    const Unlocked without_lock;
    const size_t count = std::min(places.count, rows - sent);
    if (places.stride == size) {
      if (size != 0) std::memcpy(places.data, from + sent * size, count * size);
    } else {
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(places.data + i * places.stride, from + (sent + i) * size, size);
      }
    }
    self.publisher->commit_batch(size, count, type_id);
    self.publisher->flush();
    sent += count;
  }
  return rows;
}

// Room for a frame, written in place: a writable buffer until it is committed or abandoned.
struct Reservation {
  nb::object owner;  // the handle
  PublisherHandle* handle;
  std::byte* data;
  size_t size;
  uint32_t type_id;
  uint64_t id;
  bool is_open = true;
  int exports = 0;
};

int get_buffer(PyObject* object, Py_buffer* view, int flags) noexcept {
  auto& self = *nb::inst_ptr<Reservation>(object);
  if (!self.is_open) {
    PyErr_SetString(PyExc_BufferError, "this place was committed or abandoned");
    return -1;
  }
  const int failed =
      PyBuffer_FillInfo(view, object, self.data, static_cast<Py_ssize_t>(self.size), 0, flags);
  if (failed == 0) ++self.exports;
  return failed;
}
void release_buffer(PyObject* object, Py_buffer*) noexcept {
  --nb::inst_ptr<Reservation>(object)->exports;
}

PyType_Slot reservation_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

void close_reservation(Reservation& self, bool commit, std::optional<size_t> size, bool flush) {
  if (!self.is_open) throw nb::value_error("this place was committed or abandoned already");
  if (commit && self.exports != 0) {
    PyErr_SetString(PyExc_BufferError,
                    "views of the reserved place are alive, so it can't be committed: del them");
    throw nb::python_error();
  }
  if (size && *size > self.size) throw nb::value_error("commit: more bytes than were reserved");
  if (!commit) {  // nothing was written that anybody sees: also where the connection has ended
    self.is_open = false;
    self.handle->state->has_reservation = false;
    return;
  }
  check(*self.handle);
  const Use use(self.handle->state->busy);
  self.is_open = false;
  self.handle->state->has_reservation = false;
  self.handle->publisher->commit(size.value_or(self.size), self.type_id, self.id);
  if (flush) self.handle->publisher->flush();
}

Reservation* reserve(nb::handle_t<PublisherHandle> object, size_t size, uint32_t type_id,
                     uint64_t id, std::optional<double> timeout) {
  auto& self = nb::cast<PublisherHandle&>(object);
  check(self);
  const Use use(self.state->busy);
  check_nothing_is_reserved(self);
  const Publisher::Places places = wait_for_places(self, size, 1, timeout);
  self.state->has_reservation = true;
  return new Reservation{nb::borrow(object), &self, places.data, size, type_id, id};
}

}  // namespace

void bind_publisher(nb::module_& module) {
  nb::class_<PublisherHandle>(module, "Publisher", "Writes frames into a ring.")
      .def("send", &send, nb::arg("data"), nb::arg("type_id") = 0, nb::arg("id") = 0,
           nb::arg("timeout") = nb::none(), nb::arg("flush") = true,
           "Copy a buffer into a frame of its own.")
      .def("send_batch", &send_batch, nb::arg("array"), nb::arg("type_id") = 0,
           nb::arg("timeout") = nb::none(),
           "Copy an array: each item of its first axis is a frame. Returns how many.")
      .def("reserve", &reserve, nb::arg("size"), nb::arg("type_id") = 0, nb::arg("id") = 0,
           nb::arg("timeout") = nb::none(), "Room for a frame that is written in place.",
           nb::rv_policy::take_ownership)
      .def(
          "flush",
          [](PublisherHandle& self) {
            check(self);
            const Use use(self.state->busy);
            self.publisher->flush();
          },
          "Publish all that was committed, and wake who sleeps.")
      .def(
          "wait_for_subscribers",
          [](PublisherHandle& self, size_t count, std::optional<double> timeout) {
            check(self);
            const Use use(self.state->busy);
            const uint64_t deadline_ns = deadline_of(timeout);
            const Outcome outcome = wait_interruptibly(deadline_ns, [&](uint64_t until) {
              return self.publisher->wait_for_subscribers(count, until);
            });
            if (outcome != Outcome::kOk) raise(outcome);
          },
          nb::arg("count") = 1, nb::arg("timeout") = nb::none(),
          "Until so many subscribers are attached.")
      .def_prop_ro("subscribers",
                   [](const PublisherHandle& self) { return self.publisher->subscribers(); })
      .def_prop_ro("capacity",
                   [](const PublisherHandle& self) { return self.publisher->geometry().capacity; })
      .def_prop_ro(
          "stalls", [](const PublisherHandle& self) { return self.publisher->stalls(); },
          "How often it had to wait for room.");
  nb::class_<Reservation>(module, "Reservation", nb::type_slots(reservation_slots),
                          "Room for a frame: a writable buffer until it is committed.")
      .def(
          "commit",
          [](Reservation& self, std::optional<size_t> size, bool flush) {
            close_reservation(self, true, size, flush);
          },
          nb::arg("size") = nb::none(), nb::arg("flush") = true, "Send it, or its beginning.")
      .def(
          "abandon", [](Reservation& self) { close_reservation(self, false, {}, false); },
          "Don't send it.")
      .def_prop_ro("is_open", [](const Reservation& self) { return self.is_open; })
      .def("__len__", [](const Reservation& self) { return self.size; });
}

}  // namespace lumen::bus::python
