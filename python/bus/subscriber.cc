// lumen_engine._bus.Subscriber: views of the ring as NumPy arrays and memoryviews, or copies of it.
// Threads: one at a time; views may end on any. Memory: views have none; a copy has its own on the
// heap.
// Errors: Python exceptions.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "handles.h"

namespace lumen::bus::python {
namespace {

using View = nb::ndarray<nb::numpy, const uint8_t>;
using Copy = nb::ndarray<nb::numpy, uint8_t>;

// Aligned as frames in the ring are: consumers that take an array as it is want that.
constexpr std::align_val_t kAlignment{64};
struct FreeCopy {
  void operator()(void* memory) const noexcept { ::operator delete(memory, kAlignment); }
};
using CopyMemory = std::unique_ptr<std::byte, FreeCopy>;

// kOk with frames to take, kClosed at the end of the stream; raises all else. Fewer than `least`,
// but some, once the time is over.
Outcome wait_for(SubscriberHandle& self, size_t least, std::optional<double> timeout) {
  Subscriber& subscriber = *self.state->connection.subscriber;
  const uint64_t deadline_ns = deadline_of(timeout);
  const Outcome outcome = wait_interruptibly(
      deadline_ns, [&](uint64_t until) { return subscriber.wait(until, least); });
  if (outcome == Outcome::kOk || outcome == Outcome::kClosed) return outcome;
  if (outcome == Outcome::kTimedOut && subscriber.ready() != 0) return Outcome::kOk;
  raise(outcome, outcome == Outcome::kHeld ? self.holds->description() : std::string());
}

// Two batches fit: the one that the loop's variable still holds while the next is waited for, and
// that.
size_t most_at_once(const Subscriber& subscriber, size_t most) {
  return std::max<size_t>(1, std::min<size_t>(most, subscriber.geometry().slots / 2));
}

std::optional<Batch> take(SubscriberHandle& self, size_t most, size_t least,
                          std::optional<double> timeout) {
  if (most == 0) throw nb::value_error("a batch of 0 frames: wanted at least one");
  Subscriber& subscriber = *self.state->connection.subscriber;
  if (subscriber.ready() < std::max<size_t>(least, 1) &&
      wait_for(self, std::min(least, most), timeout) == Outcome::kClosed) {
    return std::nullopt;
  }
  const Batch batch =
      subscriber.try_take_batch(most_at_once(subscriber, most), subscriber.geometry().capacity / 2);
  if (batch.count == 0) raise(subscriber.state());
  self.type_id = batch.type_id;
  return batch;
}

void check_divides(const SubscriberHandle& self, const Batch& batch, const Subscriber::Mark& before,
                   const ItemType& item) {
  if (batch.size % item.bytes == 0) return;
  self.state->connection.subscriber->put_back(before);
  throw nb::value_error(("frames of " + std::to_string(batch.size) +
                         " bytes are no whole number of items of " + std::to_string(item.bytes) +
                         " bytes; take them as uint8")
                            .c_str());
}

// Copies the rows of the batch that was taken last, and gives its slots back.
void drain(const SubscriberHandle& self, const Batch& batch, std::byte* to) {
  Holds::Hold* hold = Holds::make(self.holds, self.state->connection.subscriber->position());
  {
    const Unlocked without_lock;
    if (batch.stride == batch.size) {
      if (batch.size != 0) std::memcpy(to, batch.data, batch.count * batch.size);
    } else {
      for (size_t i = 0; i < batch.count; ++i) {
        std::memcpy(to + i * batch.size, batch.data + i * batch.stride, batch.size);
      }
    }
  }
  Holds::end(hold);
}

// drain() into memory of its own; `before` is where the batch begins.
CopyMemory copy_of(const SubscriberHandle& self, const Batch& batch,
                   const Subscriber::Mark& before) {
  CopyMemory memory(
      static_cast<std::byte*>(::operator new(batch.count * batch.size, kAlignment, std::nothrow)));
  if (memory == nullptr) {
    self.state->connection.subscriber->put_back(before);
    throw std::bad_alloc();
  }
  drain(self, batch, memory.get());
  return memory;
}

// (n, items) over the ring, or a copy that may be written to; None at the end of the stream.
nb::object take_batch(SubscriberHandle& self, size_t most, const ItemType& item, size_t least,
                      std::optional<double> timeout, bool copy) {
  self.state->check_open();
  const Use use(self.state->subscriber_busy);
  Subscriber& subscriber = *self.state->connection.subscriber;
  const Subscriber::Mark before = subscriber.mark();
  const std::optional<Batch> batch = take(self, most, least, timeout);
  if (!batch) return nb::none();
  check_divides(self, *batch, before, item);
  const size_t shape[2] = {batch->count, batch->size / item.bytes};
  if (copy) {
    CopyMemory memory = copy_of(self, *batch, before);
    std::byte* data = memory.get();
    const nb::capsule owner(memory.release(), [](void* copied) noexcept { FreeCopy()(copied); });
    return nb::cast(Copy(data, 2, shape, owner, nullptr, item.dtype));
  }
  Holds::Hold* hold = Holds::make(self.holds, subscriber.position());
  const nb::capsule owner(hold,
                          [](void* held) noexcept { Holds::end(static_cast<Holds::Hold*>(held)); });
  const int64_t strides[2] = {static_cast<int64_t>(batch->stride / item.bytes), 1};
  return nb::cast(View(batch->data, 2, shape, owner, strides, item.dtype));
}

// Copies frames into the rows of an array of the caller's and gives them back at once.
size_t read_into(SubscriberHandle& self, nb::handle array, size_t least,
                 std::optional<double> timeout) {
  self.state->check_open();
  const Use use(self.state->subscriber_busy);
  const Buffer buffer(array, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  const Py_buffer& view = buffer.view();
  if (view.ndim < 1 || view.shape[0] == 0) {
    throw nb::value_error("read_into: wanted an array whose first axis counts frames");
  }
  const auto rows = static_cast<size_t>(view.shape[0]);
  const size_t row = buffer.size() / rows;
  Subscriber& subscriber = *self.state->connection.subscriber;
  const Subscriber::Mark before = subscriber.mark();
  const std::optional<Batch> batch = take(self, rows, least, timeout);
  if (!batch) return 0;
  if (batch->size != row) {
    subscriber.put_back(before);
    throw nb::value_error(("frames of " + std::to_string(batch->size) +
                           " bytes don't fit rows of " + std::to_string(row))
                              .c_str());
  }
  drain(self, *batch, static_cast<std::byte*>(view.buf));
  return batch->count;
}

// One frame: a read-only buffer over the ring, or a copy that may be written to.
struct FrameHandle {
  bus::Frame frame;
  Holds::Hold* hold;  // none of a copy
  CopyMemory copy;
  int exports = 0;

  FrameHandle(bus::Frame f, Holds::Hold* h) : frame(f), hold(h) {}
  FrameHandle(bus::Frame f, CopyMemory memory) : frame(f), hold(nullptr), copy(std::move(memory)) {
    frame.data = {copy.get(), f.data.size()};
  }
  FrameHandle(const FrameHandle&) = delete;
  FrameHandle& operator=(const FrameHandle&) = delete;
  ~FrameHandle() {
    if (hold != nullptr) Holds::end(hold);
  }
  [[nodiscard]] bool is_released() const noexcept { return hold == nullptr && copy == nullptr; }
};

int get_buffer(PyObject* object, Py_buffer* view, int flags) noexcept {
  auto& self = *nb::inst_ptr<FrameHandle>(object);
  if (self.is_released()) {
    PyErr_SetString(PyExc_BufferError, "this frame was released");
    return -1;
  }
  auto* data = const_cast<std::byte*>(self.frame.data.data());
  const int read_only = self.copy == nullptr ? 1 : 0;
  const int failed = PyBuffer_FillInfo(
      view, object, data, static_cast<Py_ssize_t>(self.frame.data.size()), read_only, flags);
  if (failed == 0) ++self.exports;
  return failed;
}
void release_buffer(PyObject* object, Py_buffer*) noexcept {
  --nb::inst_ptr<FrameHandle>(object)->exports;
}

PyType_Slot frame_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

void release_frame(FrameHandle& self) {
  if (self.exports != 0) {
    PyErr_SetString(PyExc_BufferError,
                    "views of this frame are alive, so it can't be released: del them");
    throw nb::python_error();
  }
  if (self.hold != nullptr) Holds::end(std::exchange(self.hold, nullptr));
  self.copy.reset();
}

nb::object take_frame(SubscriberHandle& self, std::optional<double> timeout, bool copy) {
  self.state->check_open();
  const Use use(self.state->subscriber_busy);
  Subscriber& subscriber = *self.state->connection.subscriber;
  if (subscriber.ready() == 0 && wait_for(self, 1, timeout) == Outcome::kClosed) return nb::none();
  const Subscriber::Mark before = subscriber.mark();
  const std::optional<bus::Frame> frame = subscriber.try_take();
  if (!frame) raise(subscriber.state());
  self.type_id = frame->type_id;
  FrameHandle* handle = nullptr;
  if (copy) {
    const auto size = static_cast<uint32_t>(frame->data.size());
    const Batch alone{.data = frame->data.data(), .count = 1, .stride = size, .size = size};
    handle = new FrameHandle(*frame, copy_of(self, alone, before));
  } else {
    handle = new FrameHandle(*frame, Holds::make(self.holds, subscriber.position()));
  }
  return nb::cast(handle, nb::rv_policy::take_ownership);
}

void release_all(const SubscriberHandle& self) {
  const size_t alive = self.holds->alive();
  if (alive == 0) return;  // a frame without a view was given back already
  PyErr_SetString(PyExc_BufferError,
                  (std::to_string(alive) + " views of the ring are alive: del them, and their "
                                           "slots go back by themselves")
                      .c_str());
  throw nb::python_error();
}

}  // namespace

void bind_subscriber(nb::module_& module) {
  nb::class_<FrameHandle>(module, "Frame", nb::type_slots(frame_slots),
                          "One frame where it lies: a read-only buffer; or a writable copy of it.")
      .def_prop_ro(
          "data", [](nb::handle self) { return nb::steal(PyMemoryView_FromObject(self.ptr())); },
          nb::sig("def data(self) -> memoryview"))
      .def_prop_ro("type_id", [](const FrameHandle& self) { return self.frame.type_id; })
      .def_prop_ro("id", [](const FrameHandle& self) { return self.frame.id; })
      .def("__len__", [](const FrameHandle& self) { return self.frame.data.size(); })
      .def("release", &release_frame,
           "Give its slot back. BufferError while views of it are alive.");
  nb::class_<ItemType>(module, "Item",
                       "What the bytes of a frame are: a NumPy dtype, looked up once.")
      .def(
          "__init__",
          [](ItemType* self, nb::handle dtype) { new (self) ItemType(item_type(dtype)); },
          nb::arg("dtype"))
      .def_ro("bytes", &ItemType::bytes);
  nb::class_<SubscriberHandle>(module, "Subscriber", "Reads frames where they lie.")
      .def("take_batch", &take_batch, nb::arg("most"), nb::arg("item"), nb::arg("min") = 1,
           nb::arg("timeout") = nb::none(), nb::arg("copy") = false,
           nb::sig("def take_batch(self, most: int, item: Item, min: int = 1, timeout: float | "
                   "None = None, copy: bool = False) -> numpy.typing.NDArray[typing.Any] | None"),
           "A read-only view of the ring; copy: a writable copy, whose slots go back at once.")
      .def("take", &take_frame, nb::arg("timeout") = nb::none(), nb::arg("copy") = false,
           nb::sig("def take(self, timeout: float | None = None, copy: bool = False)"
                   " -> Frame | None"),
           "The next frame where it lies; copy: a writable copy, whose slot goes back at once.")
      .def("read_into", &read_into, nb::arg("array"), nb::arg("min") = 1,
           nb::arg("timeout") = nb::none())
      .def("release", &release_all)
      .def_prop_ro(
          "type_id", [](const SubscriberHandle& self) { return self.type_id; },
          "Of the frames that were taken last.")
      .def_prop_ro(
          "views", [](const SubscriberHandle& self) { return self.holds->alive(); },
          "How many views of the ring are alive.")
      .def_prop_ro("held_frames",
                   [](const SubscriberHandle& self) {
                     return self.state->connection.subscriber->held_frames();
                   })
      .def_prop_ro("capacity", [](const SubscriberHandle& self) {
        return self.state->connection.subscriber->geometry().capacity;
      });
}

}  // namespace lumen::bus::python
