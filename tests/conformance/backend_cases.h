// The backends that the conformance suites run over: the fake one in each of its ways, those that
// are built in, and the device of tests/device.
// Threads: the test's. Memory: the heap. Errors: none.
#pragma once

#include <lumen/backends/built_in.h>
#include <lumen/base/check.h>

#include "support/fake_backend.h"
#ifdef LUMEN_WITH_TEST_DEVICE
#include <lumen/backends/onnxruntime.h>

#include "support/test_device.h"
#endif

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lumen::engine {

struct MadeBackend {
  std::unique_ptr<models::Backend> backend;
  std::shared_ptr<models::FakeControl> control;  // of a fake one
};

struct BackendCase {
  std::string name;
  std::function<MadeBackend()> make;
};

inline MadeBackend make_fake(bool asynchronous, const models::BackendTraits& traits) {
  auto control = std::make_shared<models::FakeControl>();
  control->asynchronous = asynchronous;
  control->traits = traits;
  control->max_in_flight = 4;
  // One model for all tests: any number of rows and columns.
  Shape free;
  LUMEN_CHECK(free.append(Shape::kDynamic) && free.append(Shape::kDynamic));
  control->inputs[0].shape = free;
  control->outputs[0].shape = free;
  return {models::make_fake_backend(control), control};
}

inline std::vector<BackendCase> all_backends() {
  std::vector<BackendCase> cases = {
      {"FakeSync", [] { return make_fake(false, {}); }},
      {"FakeAsync", [] { return make_fake(true, {}); }},
      {"FakeAsyncInBatches", [] { return make_fake(true, {.batches_in_flight = true}); }},
      {"FakeAsyncShared",
       [] { return make_fake(true, {.shares_instances = true, .batches_in_flight = true}); }}};
  const size_t built_in = backends::built_in().size();
  for (size_t i = 0; i < built_in; ++i) {
    cases.push_back({std::string(backends::built_in()[i]->name()),
                     [i] { return MadeBackend{std::move(backends::built_in()[i]), nullptr}; }});
  }
#ifdef LUMEN_WITH_TEST_DEVICE
  const std::vector<std::string> devices = {"Device", "DeviceWithoutStreams", "DeviceInHostMemory"};
  for (uint32_t id = 0; id < devices.size(); ++id) {
    cases.push_back({devices[id], [id] {
                       models::ExecutionProvider provider = test::device_provider();
                       provider.device_id = id;
                       return MadeBackend{backends::make_device_backend(provider), nullptr};
                     }});
  }
#endif
  return cases;
}

}  // namespace lumen::engine
