// SchedulerTest: an engine of one fake model "m", and requests that a test makes for it.
// Threads: the test's and the engine's. Memory: the heap. Errors: by gtest.
#pragma once

#include <lumen/engine/engine.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/submit_now.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <thread>

namespace lumen::engine {

// The smallest size that holds the rows is the cheapest, by more than the noise of a measurement.
inline uint64_t slowly_rising(uint64_t rows) { return 200'000 + 30'000 * rows; }

class SchedulerTest : public testing::Test {
 protected:
  void start(const EngineConfig& config, uint32_t submitters = 1) {
    files.add_model("m");
    repository = std::move(
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
            .value());
    if (known_row_ns != 0) {
      constexpr uint64_t kRowBytes = 4 * sizeof(float);
      repository->find("m", "")->known_costs().request = {.ns = known_row_ns,
                                                          .input_bytes = kRowBytes};
    }
    EngineOptions options;
    options.config = config;
    options.submitter_count = submitters;
    options.pin_threads.mode = PinThreads::Mode::kOff;
    options.cpu_count = cpu_count;
    engine = std::move(Engine::create(options, *repository).value());
    model = repository->find("m", "");
    (void)control->take_rows_run();
  }
  models::PendingRequest& make(float value = 1) {
    all.push_back(std::make_unique<models::PendingRequest>(model, 4096));
    all.back()->add_input<float>(ElementType::kFp32, {1, 4}, {value, value, value, value});
    return *all.back();
  }
  SubmitOutcome submit(float value = 1) { return submit_now(*engine, make(value).request); }
  // An I/O thread's turns, until the last request made is complete.
  void turn_until_complete() {
    while (all.back()->times_completed() == 0) {
      if (engine->submitter(0).end_turn() == 0) std::this_thread::yield();
    }
  }

  uint32_t cpu_count = 0;  // as the machine has
  // The time of a request of one row, as if it had been measured before. 0: it is measured, and
  // looks long where this process loses its CPU meanwhile.
  uint64_t known_row_ns = 0;
  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  models::Model* model = nullptr;
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  std::unique_ptr<Engine> engine;  // goes first: it completes its requests
};

}  // namespace lumen::engine
