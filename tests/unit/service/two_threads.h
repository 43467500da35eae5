// TwoThreads: an engine with the fake model "m" and the calls of two I/O threads, `a` and `b`, that
// pass the same steps. Threads: one turns both. Memory: the heap. Errors: LUMEN_CHECK.
#pragma once

#include <lumen/engine/engine.h>

#include "unit/service/slot_transport.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace lumen::service {

class TwoThreads : public testing::Test {
 protected:
  // The engine goes first, since it completes its requests, and steps are members of derived
  // classes.
  void TearDown() override { engine.reset(); }

  void start_engine(std::string_view config, uint32_t queue_capacity, uint32_t workers = 1) {
    models.emplace(control, config);
    engine::EngineOptions options;
    options.config = {.thread_count = workers,
                      .queue_capacity = queue_capacity,
                      .default_timeout_us = default_timeout_us};
    options.submitter_count = 2;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(engine::Engine::create(options, *models->repository).value());
  }
  void start_threads(std::span<Step* const> steps) {
    a.emplace(engine->submitter(0), *models->counters, steps);
    b.emplace(engine->submitter(1), *models->counters, steps);
    starts_before = control->starts.load();
  }
  // Nothing runs until release(), and submitted requests wait behind this one, of `a`.
  void hold_behind_another() {
    control->hold();
    const CacheWishes wishes = std::exchange(a->wishes, {.is_off = true});
    ASSERT_TRUE(a->send(63, *models->model, -1));
    a->wishes = wishes;
    a->turn();
    control->wait_until_held(1);
  }
  bool send(SlotTransport& transport, uint32_t slot, float value = kSame,
            uint64_t deadline_ns = UINT64_MAX) {
    const auto outcome = transport.send(slot, *models->model, value, deadline_ns);
    transport.turn();
    return outcome;
  }
  void run_until(const std::function<bool()>& done) {
    while (!done()) {
      a->turn();
      b->turn();
      std::this_thread::yield();
    }
  }
  virtual void wait_for(size_t of_a, size_t of_b) {
    run_until([&] { return a->done.size() >= of_a && b->done.size() >= of_b; });
    EXPECT_EQ(a->done.size(), of_a);
    EXPECT_EQ(b->done.size(), of_b);
  }
  uint64_t runs() const { return control->starts.load() - starts_before; }

  static constexpr float kSame = 10;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  uint64_t default_timeout_us = 0;
  uint64_t starts_before = 0;
  std::optional<OneModel> models;
  std::optional<SlotTransport> a;
  std::optional<SlotTransport> b;
  std::unique_ptr<engine::Engine> engine;
};

}  // namespace lumen::service
