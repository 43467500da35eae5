// A repository opened with one backend, and instances that a test runs by itself: the parts that
// the tests of each real backend share.
// Threads: the test's. Memory: the heap. Errors: a failed expectation.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/model_repository.h>

#include "support/pending_request.h"
#include "support/source_dir.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace lumen::models {

inline const std::filesystem::path kBackendFixtures = test::source_path("tests/fixtures/backend");
inline const std::filesystem::path kFailingFixtures = test::source_path("tests/fixtures/models");

class OneBackendTest : public testing::Test {
 protected:
  explicit OneBackendTest(std::unique_ptr<Backend> (*make)()) : make_(make) {}

  void open(const std::filesystem::path& directory = kBackendFixtures) {
    auto opened = ModelRepository::open(directory, make_(), *counters);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
  }
  std::unique_ptr<Instance> instance_of(const char* model) {
    Model* found = repository->find(model, "");
    EXPECT_EQ(found->state(), ModelState::kReady) << found->reason();
    auto made = found->loaded()->create_instance({});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
  static Status status_of(Instance& instance, PendingRequest& pending) {
    EXPECT_EQ(instance.start(pending.request, nullptr), StartOutcome::kDone);
    return pending.request.status;
  }
  // Expects it to succeed.
  static void run(Instance& instance, PendingRequest& pending) {
    const Status status = status_of(instance, pending);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  template <typename T>
  void expect_identity(const char* model, ElementType type, const std::vector<T>& values) {
    SCOPED_TRACE(model);
    PendingRequest pending(repository->find(model, ""));
    EXPECT_EQ(pending.request.model->metadata().inputs[0].type, type);
    pending.add_input(type, {static_cast<int64_t>(values.size())}, values);
    const auto instance = instance_of(model);
    run(*instance, pending);
    EXPECT_EQ(pending.request.outputs[0].type, type);
    EXPECT_EQ(pending.output<T>(0), values);
  }

  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<ModelRepository> repository;

 private:
  std::unique_ptr<Backend> (*make_)();
};

}  // namespace lumen::models
