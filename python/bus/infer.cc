// lumen_engine._bus: InferBase, the client's side of inference over the bus; lumen_engine/client.py
// is its face.
// Threads: one at a time. Memory: the area stays mapped while arrays over it live. Errors: Python
// exceptions.
#include <lumen/bus_client/infer_client.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "handles.h"

namespace lumen::bus::python {
namespace {

using bus_client::InferClient;
using wire::BusTensor;
using wire::BusVerb;

// name, number of its datatype, shape, offset and bytes in the area
using Tensor = std::tuple<std::string, uint8_t, std::vector<int64_t>, uint64_t, uint64_t>;

BusTensor tensor_of(const Tensor& given) {
  const auto& [name, datatype, dimensions, offset, bytes] = given;
  BusTensor tensor{.name = name, .shape = {}, .offset = offset, .bytes = bytes};
  if (datatype > static_cast<uint8_t>(ElementType::kBytes)) throw nb::value_error("datatype");
  tensor.type = static_cast<ElementType>(datatype);
  for (const int64_t dimension : dimensions) {
    if (!tensor.shape.append(dimension)) throw nb::value_error("shape: at most 8 dimensions");
  }
  return tensor;
}

Tensor tensor_of(const BusTensor& got) {
  const auto dimensions = got.shape.dimensions();
  return {std::string(got.name), static_cast<uint8_t>(got.type),
          std::vector<int64_t>(dimensions.begin(), dimensions.end()), got.offset, got.bytes};
}

// Which texts echo bytes of the request is the client's own doing.
nb::object text_of(std::string_view text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

class InferHandle {
 public:
  InferHandle(const std::string& path, std::optional<double> timeout)
      : client_(connected(path, timeout)) {}

  // Of bytes, which this side and the server may write.
  nb::object area() {
    const auto area = client_.area();
    auto* keeps = new std::shared_ptr<const void>(client_.connection().area_memory);
    const nb::capsule owner(keeps, [](void* memory) noexcept {
      delete static_cast<std::shared_ptr<const void>*>(memory);
    });
    const size_t shape[] = {area.size()};
    return nb::cast(nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>>(area.data(), 1, shape, owner));
  }
  // Its id; None while the ring has no room. flush() lets the server see it.
  std::optional<uint64_t> send(uint32_t verb, const std::string& model, const std::string& version,
                               const std::vector<Tensor>& inputs,
                               const std::vector<std::string>& outputs, uint64_t reply_offset,
                               uint64_t reply_room, std::optional<uint64_t> timeout_us,
                               bool no_cache, std::optional<uint64_t> ttl_ms, uint32_t priority,
                               uint64_t sequence_id, bool sequence_start, bool sequence_end) {
    check();
    const Use use(busy_);
    std::vector<BusTensor> tensors;
    tensors.reserve(inputs.size());
    for (const Tensor& input : inputs) tensors.push_back(tensor_of(input));
    const std::vector<std::string_view> names(outputs.begin(), outputs.end());
    const bus_client::Sent sent = client_.send({.model = model,
                                                .version = version,
                                                .timeout_us = timeout_us,
                                                .no_cache = no_cache,
                                                .ttl_ms = ttl_ms,
                                                .sequence = {.number = sequence_id,
                                                             .text = {},
                                                             .starts = sequence_start,
                                                             .ends = sequence_end},
                                                .priority = priority,
                                                .reply_offset = reply_offset,
                                                .reply_room = reply_room,
                                                .inputs = tensors,
                                                .outputs = names},
                                               static_cast<BusVerb>(verb));
    if (sent.outcome == Outcome::kNotNow) return std::nullopt;
    if (sent.outcome != Outcome::kOk) raise(sent.outcome, "a request");
    return sent.id;
  }
  void cancel(uint64_t id) {
    check();
    const Use use(busy_);
    (void)client_.cancel(id);
  }
  void flush() {
    check();
    const Use use(busy_);
    client_.flush();
  }
  // (id, status, version, outputs, text) or None.
  nb::object try_take() {
    check();
    const Use use(busy_);
    const std::optional<bus_client::Reply> reply = client_.try_take();
    if (!reply) return nb::none();
    nb::list outputs;
    for (const BusTensor& output : reply->reply.outputs) outputs.append(tensor_of(output));
    nb::object taken = nb::make_tuple(reply->id, reply->reply.status, text_of(reply->reply.version),
                                      outputs, text_of(reply->reply.text));
    client_.release();
    return taken;
  }
  // Until try_take() has something; false once the time is over.
  bool wait(std::optional<double> timeout) {
    check();
    const Use use(busy_);
    const uint64_t deadline_ns = deadline_of(timeout);
    const Outcome outcome =
        wait_interruptibly(deadline_ns, [&](uint64_t until) { return client_.wait(until); });
    if (outcome == Outcome::kTimedOut) return false;
    if (outcome != Outcome::kOk) raise(outcome);
    return true;
  }
  // For an event loop: the descriptors to watch. announce() before it sleeps: true: don't,
  // something is there.
  std::vector<int> descriptors() {
    std::vector<int> found;
    for (const pollfd& fd : client_.connection().subscriber->polls()) {
      if (fd.fd >= 0) found.push_back(fd.fd);
    }
    return found;
  }
  bool announce() {
    Subscriber& subscriber = *client_.connection().subscriber;
    subscriber.announce_sleep();
    return subscriber.ready() != 0 || subscriber.look_now();
  }
  void woken() { client_.connection().subscriber->woken(); }
  bool is_alive() { return !is_closed_ && client_.connection().peer->look() == Outcome::kOk; }
  void close() {
    if (fork_count() != born_) return;
    is_closed_ = true;
    client_.connection().peer->close(Goodbye::kClosed);
  }

 private:
  static InferClient connected(const std::string& path, std::optional<double> timeout) {
    Result<InferClient> client =
        InferClient::over(connect_interruptibly(path, Role::kBoth, timeout, true), path);
    if (!client.ok()) raise_bus_error(std::string(client.status().message()));
    return std::move(*client);
  }
  void check() const {
    if (is_closed_) raise_bus_error("bus: this connection is closed");
    if (fork_count() != born_) raise(Outcome::kForked);
  }

  InferClient client_;
  std::atomic<bool> busy_{false};
  bool is_closed_ = false;
  const uint32_t born_ = fork_count();
};

}  // namespace

void bind_infer(nb::module_& module) {
  nb::class_<InferHandle>(module, "InferBase", "Inference over the bus.")
      .def(nb::init<const std::string&, std::optional<double>>(), nb::arg("path"),
           nb::arg("timeout") = 10.0)
      .def_prop_ro("area", &InferHandle::area,
                   nb::sig("def area(self) -> numpy.typing.NDArray[numpy.uint8]"))
      .def("send", &InferHandle::send, nb::arg("verb"), nb::arg("model"), nb::arg("version"),
           nb::arg("inputs"), nb::arg("outputs"), nb::arg("reply_offset"), nb::arg("reply_room"),
           nb::arg("timeout_us") = nb::none(), nb::arg("no_cache") = false,
           nb::arg("ttl_ms") = nb::none(), nb::arg("priority") = 0, nb::arg("sequence_id") = 0,
           nb::arg("sequence_start") = false, nb::arg("sequence_end") = false)
      .def("cancel", &InferHandle::cancel, nb::arg("id"))
      .def("flush", &InferHandle::flush)
      .def("try_take", &InferHandle::try_take,
           nb::sig("def try_take(self) -> tuple[int, int, str, list[tuple[str, int, list[int], int,"
                   " int]], str] | None"))
      .def("wait", &InferHandle::wait, nb::arg("timeout") = nb::none())
      .def("descriptors", &InferHandle::descriptors)
      .def("announce", &InferHandle::announce)
      .def("woken", &InferHandle::woken)
      .def_prop_ro("is_alive", &InferHandle::is_alive)
      .def("close", &InferHandle::close);
}

}  // namespace lumen::bus::python
