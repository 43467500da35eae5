// Exceptions, deadlines and item types. See support.h.
#include "support.h"

#include <lumen/base/clock.h>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <dlfcn.h>
#include <cmath>
#include <string_view>

namespace lumen::bus::python {
namespace {

// Owned by the module, for the process's life.
struct Errors {
  PyObject* bus = nullptr;
  PyObject* closed = nullptr;
  PyObject* died = nullptr;
  PyObject* dropped = nullptr;
  PyObject* invalid = nullptr;
  PyObject* forked = nullptr;
  PyObject* held = nullptr;
};
Errors errors;

// Python's name for it has changed, and the extension is the same for all versions: the one that
// runs is asked. No version has neither.
using IsFinalizing = int (*)();
IsFinalizing find_is_finalizing() noexcept {
  void* found = ::dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");  // before 3.13
  return reinterpret_cast<IsFinalizing>(found);
}

PyObject* make(nb::module_& module, const char* name, PyObject* base, const char* doc) {
  const std::string full = std::string("lumen_engine._bus.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  module.attr(name) = nb::borrow(type);
  return type;
}

PyObject* type_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kTimedOut:
    case Outcome::kNotNow: return PyExc_TimeoutError;
    case Outcome::kTooLarge: return PyExc_ValueError;
    case Outcome::kHeld: return errors.held;
    case Outcome::kClosed: return errors.closed;
    case Outcome::kDied: return errors.died;
    case Outcome::kDropped: return errors.dropped;
    case Outcome::kInvalid: return errors.invalid;
    case Outcome::kForked: return errors.forked;
    default: return errors.bus;
  }
}

}  // namespace

bool Unlocked::is_finalizing() noexcept {
  static const IsFinalizing ask = find_is_finalizing();
  return ask != nullptr && ask() != 0;
}

void bind_errors(nb::module_& module) {
  errors.bus = make(module, "BusError", PyExc_ConnectionError, "The bus can't go on.");
  errors.closed =
      make(module, "PeerClosed", errors.bus, "The other side has closed the connection.");
  errors.died =
      make(module, "PeerDied", errors.bus, "The other side has ended without closing it.");
  errors.dropped = make(module, "Dropped", errors.bus,
                        "The publisher has dropped this subscriber, which held the ring too long.");
  errors.invalid = make(module, "PeerInvalid", errors.bus,
                        "The other side has broken the protocol and is not listened to any more.");
  errors.forked = make(module, "ForkedError", errors.bus,
                       "This handle belongs to the parent process: connect anew in the child.");
  errors.held = make(module, "HeldError", PyExc_BufferError,
                     "Nothing can come: the publisher waits for room that this process holds.");
}

void raise(Outcome outcome, const std::string& what) {
  std::string text = std::string("bus: ") + name_of(outcome);
  if (!what.empty()) text += ": " + what;
  PyErr_SetString(type_of(outcome), text.c_str());
  throw nb::python_error();
}

void raise_bus_error(const std::string& message) {
  PyErr_SetString(errors.bus, message.c_str());
  throw nb::python_error();
}

uint64_t deadline_of(std::optional<double> timeout) {
  if (!timeout) return UINT64_MAX;
  if (std::isnan(*timeout)) throw nb::value_error("timeout: got NaN, wanted seconds or None");
  // Beyond a century it is never, and the sum below can't overflow.
  constexpr double kCentury = 3.2e9;
  if (*timeout >= kCentury) return UINT64_MAX;
  return now_ns() + (*timeout <= 0 ? 0 : static_cast<uint64_t>(*timeout * 1e9));
}

ItemType item_type(nb::handle dtype) {
  // NumPy's own view of the name, so that all its spellings count.
  const nb::object found = nb::module_::import_("numpy").attr("dtype")(dtype);
  const auto kind = nb::cast<std::string>(found.attr("kind"));
  const auto bytes = nb::cast<size_t>(found.attr("itemsize"));
  const bool is_native = nb::cast<bool>(found.attr("isnative"));
  nb::dlpack::dtype_code code{};
  if (kind == "f") {
    code = nb::dlpack::dtype_code::Float;
  } else if (kind == "i") {
    code = nb::dlpack::dtype_code::Int;
  } else if (kind == "u") {
    code = nb::dlpack::dtype_code::UInt;
  } else if (kind == "c") {
    code = nb::dlpack::dtype_code::Complex;
  } else if (kind == "b") {
    code = nb::dlpack::dtype_code::Bool;
  } else {
    throw nb::value_error(
        "dtype: wanted a boolean, integer, float or complex type of this machine's byte order");
  }
  if (!is_native || bytes == 0 || bytes > 16) {
    throw nb::value_error("dtype: wanted this machine's byte order, and at most 16 bytes an item");
  }
  return {{static_cast<uint8_t>(code), static_cast<uint8_t>(8 * bytes), 1}, bytes};
}

}  // namespace lumen::bus::python
