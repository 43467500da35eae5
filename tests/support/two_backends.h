// TwoBackends: the fixture of tests in which a repository may choose between two fake backends.
// Threads: the test's. Memory: the heap. Errors: failed expectations.
#pragma once

#include <lumen/models/backends.h>
#include <lumen/models/model_repository.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace lumen::models {

class TwoBackends : public testing::Test {
 protected:
  TwoBackends() {
    first->backend_name = "first";
    second->backend_name = "second";
  }
  [[nodiscard]] Backends both() const {
    Backends backends;
    backends.add(make_fake_backend(first));
    backends.add(make_fake_backend(second));
    return backends;
  }
  void open(Backends backends) {
    auto opened = ModelRepository::open(files.path(), std::move(backends), *counters, options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
  }
  void open() { open(both()); }

  TempRepository files;
  LoadOptions options;
  std::shared_ptr<FakeControl> first = std::make_shared<FakeControl>();
  std::shared_ptr<FakeControl> second = std::make_shared<FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<ModelRepository> repository;
};

}  // namespace lumen::models
