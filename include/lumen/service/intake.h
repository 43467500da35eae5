// Intake: how an inference request enters the server, in one order for all transports. A transport
// that has read a request's head calls admit(); then it reads and binds the inputs and submits the
// call to the Dispatcher. leave() ends it, whatever has become of it.
//
//   admit():  find the model and hold it ─► is it ready? ─► has its queue room? ─► does the latency
//             budget allow it? ─► the transport's bounds on calls and memory (CallRoom)
//
// Threads: an I/O thread's own. Memory: none. Errors: Admission; the reason of a refusal is in the
// call's infer.status.
#pragma once

#include <lumen/memory/request_memory.h>
#include <lumen/service/call.h>
#include <lumen/service/catalog.h>
#include <lumen/service/memory_need.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::engine {
class Submitter;
}

namespace lumen::service {

// Why a request is refused that comes while the server drains.
[[nodiscard]] Status shutting_down() noexcept;

enum class Admission : uint8_t {
  kAdmitted,
  kNoRoom,   // all is well but CallRoom::take(): the transport may ask that again, or refuses
  kRefused,  // infer.status says why
};

// A request whose head has been read.
struct Arrival {
  std::string_view model{};    // its name, any bytes of a client
  std::string_view version{};  // empty: the highest
  BodySize body{};             // of its inputs, as far as the server has to take memory for them
  // For the latency budget: the time that it has lain in its socket, and that its reply will take.
  uint64_t outside_ns = 0;
};

// A transport's bounds on the calls that it holds, and on the memory behind them.
class CallRoom {
 public:
  // Counts the call among those of its model and reserves the memory that the model needs for such
  // a body, as far as the transport does not have it. False: not now. On the call's I/O thread.
  [[nodiscard]] virtual bool take(Call& call, const ModelNeed& model,
                                  const BodySize& body) noexcept = 0;

 protected:
  ~CallRoom() = default;
};

class Intake {
 public:
  Intake(Catalog::Reader& catalog, engine::Submitter& submitter) noexcept
      : catalog_(catalog), submitter_(submitter) {}
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // The models that are served, for this turn.
  [[nodiscard]] const CatalogSnapshot& catalog() const noexcept { return catalog_.now(); }

  // `call` has its times.received_ns; `memory` is the request's own, and is used as the engine's
  // allocator_type says from here on. The second form is for a caller that has found the model: its
  // `entry` is of catalog() in this turn.
  [[nodiscard]] Admission admit(const Arrival& arrival, Call& call, RequestMemory& memory,
                                CallRoom& room) noexcept;
  [[nodiscard]] Admission admit(const CatalogModel& entry, const Arrival& arrival, Call& call,
                                RequestMemory& memory, CallRoom& room) noexcept;
  // A place in a region of shared memory, which stays until leave(). In admit()'s turn or a later
  // one. `user`: the client's; over TCP the server's own. Errors: there is no such region
  // (kNotFound), it is another user's, or it has no such place.
  [[nodiscard]] Result<std::span<std::byte>> use_region(Call& call, const wire::SharedPlace& place,
                                                        uid_t user) noexcept;
  // The reply has been made, or the request refused: its regions are not used any more.
  void leave_regions(Call& call) noexcept;
  // The control plane waits for the call, so that its model or a region can go. A transport ends it
  // where its client is slow: one client must not hold up changes of the server.
  [[nodiscard]] bool is_awaited(const Call& call) const noexcept;
  // The transport is through with the call: its outputs, its model and its regions are let go.
  void leave(Call& call) noexcept;

  // How many more requests may wait for this thread, if it runs models; SIZE_MAX if it runs none. A
  // transport that can leave requests where they are takes no more than that.
  [[nodiscard]] size_t waiting_room() noexcept;

 private:
  // With the models of an ensemble's steps.
  void hold(const models::Model& model) noexcept;
  void release(const models::Model& model) noexcept;

  Catalog::Reader& catalog_;
  engine::Submitter& submitter_;
};

}  // namespace lumen::service
