// Backends by name: which model gets which, the error for an unknown name, and which backends hear
// of memory when.
#include "support/two_backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BackendsTest : public TwoBackends {
 protected:
  void add_model(const std::string& name, const std::string& backend) {
    files.add_model(name);
    files.write(name + "/config.json", R"({"backend": ")" + backend + R"("})");
  }
  uint64_t known_to(const FakeControl& control) const {
    return control.registered_bytes.load(std::memory_order_relaxed);  // relaxed: a statistic
  }

  std::array<std::byte, 100> region{};
  std::array<std::byte, 10> other_region{};
};

TEST_F(BackendsTest, AModelIsLoadedByTheBackendThatItsConfigNamesOrByTheFirst) {
  add_model("a", "second");
  files.add_model("b");
  first->models_that_fail_to_load = {"a"};
  second->models_that_fail_to_load = {"b"};
  open();
  EXPECT_EQ(repository->find("a", "")->state(), ModelState::kReady);
  EXPECT_EQ(repository->find("b", "")->state(), ModelState::kReady);
}

TEST_F(BackendsTest, AnUnknownNameIsToldTheKnownOnesAndTheNearest) {
  add_model("a", "secund");
  files.add_model("b");
  open();
  EXPECT_EQ(repository->find("a", "")->state(), ModelState::kUnavailable);
  EXPECT_THAT(repository->find("a", "")->reason(),
              AllOf(HasSubstr("\"backend\": got \"secund\""), HasSubstr("\"first\", \"second\""),
                    HasSubstr("did you mean \"second\"?")));
  EXPECT_EQ(repository->find("b", "")->state(), ModelState::kReady);
}

TEST_F(BackendsTest, WithoutAnyBackendEachModelSaysSo) {
  files.add_model("a");
  add_model("b", "first");
  open({});
  for (const char* model : {"a", "b"}) {
    EXPECT_EQ(repository->find(model, "")->state(), ModelState::kUnavailable);
    EXPECT_THAT(repository->find(model, "")->reason(), HasSubstr("has no backend"));
  }
  EXPECT_EQ(repository->backends().description(), "no backend");
  EXPECT_TRUE(repository->backends().register_memory(region).ok());
}

TEST_F(BackendsTest, MemoryIsTheBusinessOfThoseThatHaveAModel) {
  add_model("a", "first");
  open();
  ASSERT_TRUE(repository->backends().register_memory(region).ok());
  EXPECT_EQ(known_to(*first), 100u);
  EXPECT_EQ(known_to(*second), 0u);
}

TEST_F(BackendsTest, ABackendThatGetsAModelLaterHearsOfTheMemoryThatIsRegisteredByThen) {
  Backends backends = both();
  ASSERT_TRUE(backends.register_memory(region).ok());
  ASSERT_TRUE(backends.register_memory(other_region).ok());
  backends.unregister_memory(region);
  ASSERT_TRUE(backends.use(**backends.find("second")).ok());
  ASSERT_TRUE(backends.use(**backends.find("second")).ok());
  EXPECT_EQ(known_to(*second), 10u);
  backends.unregister_memory(other_region);
  backends.unregister_memory(other_region);  // nothing any more
  EXPECT_EQ(known_to(*second), 0u);
  EXPECT_EQ(known_to(*first), 0u);
}

TEST_F(BackendsTest, ARegionThatOneRefusesIsKnownToNone) {
  second->largest_region = 50;
  Backends backends = both();
  ASSERT_TRUE(backends.use(**backends.find("first")).ok());
  ASSERT_TRUE(backends.use(**backends.find("second")).ok());
  EXPECT_FALSE(backends.register_memory(region).ok());
  EXPECT_EQ(known_to(*first), 0u);
  EXPECT_TRUE(backends.register_memory(other_region).ok());
}

TEST_F(BackendsTest, AModelWhoseBackendRefusesTheMemoryThatIsThereIsNotLoaded) {
  second->largest_region = 50;
  Backends backends = both();
  ASSERT_TRUE(backends.register_memory(other_region).ok());
  ASSERT_TRUE(backends.register_memory(region).ok());
  add_model("a", "second");
  open(std::move(backends));
  EXPECT_EQ(repository->find("a", "")->state(), ModelState::kUnavailable);
  EXPECT_THAT(repository->find("a", "")->reason(), HasSubstr("region of 100 bytes"));
  EXPECT_EQ(known_to(*second), 0u);
}

}  // namespace
}  // namespace lumen::models
