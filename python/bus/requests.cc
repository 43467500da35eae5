// lumen_engine._bus: Requester and Responder. Threads: one at a time. Errors: Python exceptions.
#include <lumen/bus/request_reply.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "handles.h"

namespace lumen::bus::python {
namespace {

std::span<const std::byte> bytes_of(const Buffer& buffer) {
  return {static_cast<const std::byte*>(buffer.view().buf), buffer.size()};
}
// A buffer, or a list of them.
std::deque<Buffer> buffers_of(nb::handle data) {
  std::deque<Buffer> buffers;  // a Buffer does not move
  if (!nb::isinstance<nb::list>(data)) {
    buffers.emplace_back(data, PyBUF_C_CONTIGUOUS);
    return buffers;
  }
  for (const nb::handle part : nb::borrow<nb::list>(data)) {
    buffers.emplace_back(part, PyBUF_C_CONTIGUOUS);
  }
  return buffers;
}
nb::bytes copy_of(std::span<const std::byte> data) {
  return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

class RequesterHandle {
 public:
  RequesterHandle(const std::string& path, std::optional<double> timeout, uint32_t in_flight)
      : requester_(connect_interruptibly(path, Role::kBoth, timeout, true), in_flight) {}

  // Its id, or None where no more may be in flight.
  std::optional<uint64_t> send(nb::handle data, uint32_t type_id, std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const Buffer buffer(data, PyBUF_C_CONTIGUOUS);
    const Requester::Sent sent = requester_.send(bytes_of(buffer), type_id, deadline_of(timeout));
    if (sent.outcome == Outcome::kNotNow) return std::nullopt;
    if (sent.outcome != Outcome::kOk) raise(sent.outcome);
    return sent.id;
  }
  bool cancel(uint64_t id) {
    check();
    const Use use(busy_);
    return requester_.cancel(id);
  }
  // (id, timed out, status, type_id, data) or None.
  nb::object try_take() {
    check();
    const Use use(busy_);
    const std::optional<Requester::Reply> reply = requester_.try_take();
    if (!reply) {
      requester_.release();  // of replies that came too late
      return nb::none();
    }
    nb::object taken = nb::make_tuple(reply->id, reply->outcome != Outcome::kOk, reply->status,
                                      reply->type_id, copy_of(reply->data));
    requester_.release();
    return taken;
  }
  // Until try_take() has something; false once the time is over or nothing is in flight.
  bool wait(std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const uint64_t deadline_ns = deadline_of(timeout);
    const Outcome outcome =
        wait_interruptibly(deadline_ns, [&](uint64_t until) { return requester_.wait(until); });
    if (outcome == Outcome::kTimedOut || outcome == Outcome::kNotNow) return false;
    if (outcome != Outcome::kOk) raise(outcome);
    return true;
  }
  // (status, type_id, data)
  nb::object call(nb::handle data, uint32_t type_id, std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const Buffer buffer(data, PyBUF_C_CONTIGUOUS);
    const uint64_t deadline_ns = deadline_of(timeout);
    // As Requester::call(), but a signal whose handler returns does not end it.
    const uint64_t id = send_for_call(bytes_of(buffer), type_id, deadline_ns);
    const Requester::Reply reply = wait_for_reply(id, deadline_ns);
    nb::object taken = nb::make_tuple(reply.status, reply.type_id, copy_of(reply.data));
    requester_.release();
    return taken;
  }
  // For an event loop: the descriptors to watch. announce() before it sleeps: true: don't,
  // something is there.
  std::vector<int> descriptors() {
    std::vector<int> found;
    for (const pollfd& fd : requester_.connection().subscriber->polls()) {
      if (fd.fd >= 0) found.push_back(fd.fd);
    }
    return found;
  }
  bool announce() {
    Subscriber& subscriber = *requester_.connection().subscriber;
    subscriber.announce_sleep();
    return subscriber.ready() != 0 || subscriber.look_now();
  }
  void woken() { requester_.connection().subscriber->woken(); }
  // Raises the cause that has ended the connection, if there is one.
  void check_peer() {
    const Outcome outcome = requester_.connection().peer->look();
    if (outcome != Outcome::kOk) raise(outcome);
  }
  uint32_t in_flight() const { return requester_.in_flight(); }
  void close() {
    if (is_closed_ || fork_count() != born_) return;
    is_closed_ = true;
    const Use use(busy_);
    requester_.connection().publisher->flush();
    requester_.connection().peer->close(Goodbye::kClosed);
  }

 private:
  uint64_t send_for_call(std::span<const std::byte> data, uint32_t type_id, uint64_t deadline_ns) {
    requester_.release();
    for (;;) {
      const Requester::Sent sent = requester_.send(data, type_id, deadline_ns);
      if (sent.outcome == Outcome::kOk) return sent.id;
      if (sent.outcome != Outcome::kNotNow) raise(sent.outcome);
      // Replies to requests that were given up fill the ring: they are dropped.
      while (requester_.try_take()) {
      }
      requester_.release();
      Publisher& publisher = *requester_.connection().publisher;
      const Outcome outcome = wait_interruptibly(deadline_ns, [&](uint64_t until) {
        return publisher.reserve(sizeof(MessageTrailer) + data.size(), until).outcome;
      });
      if (outcome != Outcome::kOk) raise(outcome);
    }
  }
  Requester::Reply wait_for_reply(uint64_t id, uint64_t deadline_ns) {
    for (;;) {
      while (const std::optional<Requester::Reply> reply = requester_.try_take()) {
        if (reply->id != id) {
          requester_.release();
          continue;
        }
        if (reply->outcome != Outcome::kOk) raise(reply->outcome);
        return *reply;
      }
      requester_.release();  // of late replies
      Outcome outcome = Outcome::kOk;
      try {
        outcome =
            wait_interruptibly(deadline_ns, [&](uint64_t until) { return requester_.wait(until); });
      } catch (...) {
        (void)requester_.cancel(id);
        throw;
      }
      if (outcome == Outcome::kOk) continue;
      (void)requester_.cancel(id);
      raise(outcome);
    }
  }
  void check() const {
    if (is_closed_) raise_bus_error("bus: this connection is closed");
    if (fork_count() != born_) raise(Outcome::kForked);
  }

  Requester requester_;
  std::atomic<bool> busy_{false};
  bool is_closed_ = false;
  const uint32_t born_ = fork_count();
};

class ResponderHandle {
 public:
  // Of the next process that connects.
  ResponderHandle(const ListenerHandle& listener, std::optional<double> timeout)
      : responder_(next_connection(listener, timeout)) {}

  // (id, type_id, data, is a cancel), or None at the end of the stream.
  nb::object take(std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const uint64_t deadline_ns = deadline_of(timeout);
    for (;;) {
      if (const auto request = responder_.try_take()) {
        nb::object taken = nb::make_tuple(request->id, request->type_id, copy_of(request->data),
                                          request->kind == MessageKind::kCancel);
        responder_.release();
        return taken;
      }
      responder_.release();  // of late requests, which try_take() has dropped
      const Outcome outcome =
          wait_interruptibly(deadline_ns, [&](uint64_t until) { return responder_.wait(until); });
      if (outcome == Outcome::kClosed) return nb::none();
      if (outcome != Outcome::kOk) raise(outcome);
    }
  }
  void reply(uint64_t id, nb::handle data, uint32_t type_id, uint32_t status,
             std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const std::deque<Buffer> buffers = buffers_of(data);
    std::vector<std::span<const std::byte>> parts;
    parts.reserve(buffers.size());
    for (const Buffer& buffer : buffers) parts.push_back(bytes_of(buffer));
    const uint64_t deadline_ns = deadline_of(timeout);
    const Outcome outcome = wait_interruptibly(deadline_ns, [&](uint64_t until) {
      return responder_.reply_parts(id, parts, type_id, status, until);
    });
    if (outcome != Outcome::kOk) raise(outcome);
  }
  void close() { responder_.connection().peer->close(Goodbye::kClosed); }

 private:
  void check() const {
    if (fork_count() != born_) raise(Outcome::kForked);
  }
  Responder responder_;
  std::atomic<bool> busy_{false};
  const uint32_t born_ = fork_count();
};

}  // namespace

void bind_requests(nb::module_& module) {
  nb::class_<RequesterHandle>(module, "RequesterBase",
                              "Requests over a ring, replies over another.")
      .def(nb::init<const std::string&, std::optional<double>, uint32_t>(), nb::arg("path"),
           nb::arg("timeout") = 10.0, nb::arg("in_flight") = 1024)
      .def("send", &RequesterHandle::send, nb::arg("data"), nb::arg("type_id") = 0,
           nb::arg("timeout") = nb::none())
      .def("cancel", &RequesterHandle::cancel, nb::arg("id"))
      .def("try_take", &RequesterHandle::try_take,
           nb::sig("def try_take(self) -> tuple[int, bool, int, int, bytes] | None"))
      .def("wait", &RequesterHandle::wait, nb::arg("timeout") = nb::none())
      .def(
          "call_raw", &RequesterHandle::call, nb::arg("data"), nb::arg("type_id") = 0,
          nb::arg("timeout") = nb::none(),
          nb::sig("def call_raw(self, data: object, type_id: int = 0, timeout: float | None = None)"
                  " -> tuple[int, int, bytes]"))
      .def("descriptors", &RequesterHandle::descriptors)
      .def("announce", &RequesterHandle::announce)
      .def("woken", &RequesterHandle::woken)
      .def("check_peer", &RequesterHandle::check_peer)
      .def_prop_ro("in_flight", &RequesterHandle::in_flight)
      .def("close", &RequesterHandle::close);
  nb::class_<ResponderHandle>(module, "ResponderBase", "Answers requests.")
      .def(nb::init<const ListenerHandle&, std::optional<double>>(), nb::arg("listener"),
           nb::arg("timeout") = nb::none())
      .def("take_raw", &ResponderHandle::take, nb::arg("timeout") = nb::none(),
           nb::sig("def take_raw(self, timeout: float | None = None)"
                   " -> tuple[int, int, bytes, bool] | None"))
      .def("reply", &ResponderHandle::reply, nb::arg("id"), nb::arg("data"), nb::arg("type_id") = 0,
           nb::arg("status") = 0, nb::arg("timeout") = nb::none())
      .def("close", &ResponderHandle::close);
}

}  // namespace lumen::bus::python
