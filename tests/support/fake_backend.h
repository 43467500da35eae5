// FakeBackend: a backend that needs no library, for tests of the engine and of all above it, under
// TSan too. Its model adds one to FP32 tensors; requests can be held, failed and counted. It may
// also sum over its rows (a first axis that is no batch), take a given time and run out of
// instances. Synchronous by default; asynchronous it stages inputs to a "device" buffer, and a
// thread of its own completes later and out of order.
// Threads: as Backend says; FakeControl from any. Memory: the heap, as it likes.
// Errors: where the test asked for it.
#pragma once

#include <lumen/base/check.h>
#include <lumen/models/backend.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace lumen::models {

// The settings that a test and the fake share. Set the plain members before the backend is used.
class FakeControl {
 public:
  std::string backend_name = "fake";
  BackendTraits traits{.has_independent_rows = true};
  std::string why_not_available;     // empty: it is
  size_t largest_region = SIZE_MAX;  // that it lets itself be offered
  bool asynchronous = false;
  uint32_t max_in_flight = 1;
  uint64_t seed = 1;  // of the order in which the asynchronous device completes
  // The metadata of every model but its name and version; as many outputs as inputs.
  std::vector<TensorSpec> inputs = {{"x", ElementType::kFp32, row_of_four()}};
  std::vector<TensorSpec> outputs = {{"y", ElementType::kFp32, row_of_four()}};
  std::set<std::string> models_that_fail_to_load;
  std::function<void()> on_load = [] {};      // in each load, on its thread
  std::function<void()> on_instance = [] {};  // while an instance is made, on its thread
  std::set<std::string> models_without_instance;
  std::string model_that_fails;  // each of its requests
  // A call fails whose first input holds this value anywhere; NaN: none does.
  float value_that_fails = std::numeric_limits<float>::quiet_NaN();
  std::map<std::string, float> adds;  // the number that a model adds, if it is not one
  // Every row of an output becomes the sum over all rows: the first axis is no batch.
  std::set<std::string> models_that_sum_rows;
  // Every row of an output holds its input row so many times, one after the other; of inputs with
  // rows. Then `outputs` says so, too.
  size_t repeats = 1;
  // They have a second input, `h`, and a second output, `h_out`. Both outputs are the sum of the
  // inputs and the model's number, so that a kept `h` holds the sum of a sequence so far. Rows are
  // not repeated.
  std::set<std::string> models_with_a_state;
  // Of these: they have a third input, `start`, of one number a row, which is added as well.
  std::set<std::string> models_told_of_a_start;
  // The least time of a call with so many rows, polled on the thread that starts it, an
  // asynchronous device's calls too; nullptr: as long as it takes.
  uint64_t (*cost_ns)(uint64_t rows) = nullptr;

  // Memory that a synchronous instance touches when it is made, and in its first run.
  size_t instance_bytes = 0;
  size_t first_run_bytes = 0;

  // Instances that are made from now on fail once there are so many.
  std::atomic<uint32_t> most_instances{UINT32_MAX};
  std::atomic<uint32_t> instances{0};       // made so far
  std::atomic<uint32_t> live_instances{0};  // of them those that are still there
  std::atomic<uint64_t> starts{0};
  std::atomic<uint64_t> registered_bytes{0};

  // Of models that are loaded from now on; on any thread.
  void let_add(const std::string& model, float number) {
    const std::lock_guard lock(mutex_);
    adds[model] = number;
  }
  void let_load(const std::string& model, bool well) {
    const std::lock_guard lock(mutex_);
    well ? (void)models_that_fail_to_load.erase(model)
         : (void)models_that_fail_to_load.insert(model);
  }
  [[nodiscard]] float number_added_by(const std::string& model) {
    const std::lock_guard lock(mutex_);
    const auto found = adds.find(model);
    return found == adds.end() ? 1 : found->second;
  }
  [[nodiscard]] bool fails_to_load(const std::string& model) {
    const std::lock_guard lock(mutex_);
    return models_that_fail_to_load.contains(model);
  }

  // While held, a thread that is about to run the model (the worker, or the device's thread) waits.
  void hold();
  void release();
  // Waits until `count` requests wait at the gate at once.
  void wait_until_held(uint32_t count);
  // The same for so long at most; false: they did not come.
  bool wait_until_held(uint32_t count, uint64_t at_most_ns);
  void pass_gate();  // called by the fake
  // Rows of each call so far, in the order of the calls; forgets them.
  [[nodiscard]] std::vector<uint64_t> take_rows_run();
  void note_rows_run(uint64_t rows);  // called by the fake

  [[nodiscard]] static Shape row_of_four() {
    Shape shape;
    LUMEN_CHECK(shape.append(Shape::kDynamic) && shape.append(4));
    return shape;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  uint32_t waiting_ = 0;
  std::vector<uint64_t> rows_run_;
};

[[nodiscard]] std::unique_ptr<Backend> make_fake_backend(std::shared_ptr<FakeControl> control);

}  // namespace lumen::models
