// Slots: an instance with several runs under way at once, for libraries whose call comes back when
// the run has ended. Each slot is a synchronous instance and a thread that waits in its call, so
// that the worker does not.
// Threads: start() by one, its worker's; `done` is called by the slot's thread. Memory: a list of
// one place a slot, at construction. Errors: as the instances of the slots say.
#pragma once

#include <lumen/models/backend.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lumen::backends {

class Slots final : public models::Instance {
 public:
  using Done = void (*)(models::InferRequest&) noexcept;

  // `slots`: one at least; each is run by one thread at a time.
  explicit Slots(std::vector<std::unique_ptr<models::Instance>> slots);
  ~Slots() override;
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  [[nodiscard]] models::StartOutcome start(models::InferRequest& request,
                                           Done done) noexcept override;
  [[nodiscard]] uint32_t max_in_flight() const noexcept override {
    return static_cast<uint32_t>(slots_.size());
  }

 private:
  struct Job {
    models::InferRequest* request = nullptr;  // nullptr: the end
    Done done = nullptr;
  };

  void run_slot(models::Instance& instance);
  [[nodiscard]] Job take();

  const std::vector<std::unique_ptr<models::Instance>> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;  // a ring: no more than slots wait
  size_t first_ = 0;
  size_t waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lumen::backends
