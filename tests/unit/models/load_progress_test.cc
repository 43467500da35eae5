// A start's lines about a repository that takes long to load: a line now and then, none where it is
// quick.
#include <lumen/models/load_progress.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kBegin = 5;

// Lines that a repository of four models gives, each of which takes `each_ns`.
std::vector<std::string> lines(uint64_t each_ns) {
  TempRepository files;
  for (const char* name : {"a", "b", "c", "d"}) files.add_model(name);
  auto control = std::make_shared<FakeControl>();
  control->models_that_fail_to_load = {"d"};
  const auto counters = std::make_unique<telemetry::Counters>();
  std::vector<std::string> said;
  LoadProgress progress(kBegin, [&said](std::string_view text) { said.emplace_back(text); });
  uint64_t now = kBegin;
  const auto opened = ModelRepository::open(files.path(), make_fake_backend(control), *counters, {},
                                            [&](const Model& model, size_t number, size_t count) {
                                              now += each_ns;
                                              progress.on_loaded(model, number, count, now);
                                            });
  EXPECT_TRUE(opened.ok());
  return said;
}

TEST(LoadProgress, SaysNothingOfARepositoryThatIsLoadedWithinItsPeriod) {
  EXPECT_THAT(lines(LoadProgress::kPeriodNs / 5), IsEmpty());
}

TEST(LoadProgress, SaysOneLineAPeriodWithTheCountTheTimeAndTheLastChoice) {
  EXPECT_THAT(lines(LoadProgress::kPeriodNs / 2),
              ElementsAre(AllOf(HasSubstr("2 of 4 loaded in 1 s"),
                                HasSubstr("b/1: fake, the only backend of this server")),
                          AllOf(HasSubstr("4 of 4 loaded in 2 s"), HasSubstr("d/1: unavailable"))));
}

}  // namespace
}  // namespace lumen::models
