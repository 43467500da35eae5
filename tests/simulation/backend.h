// The backend of a simulated world: the fake, whose runs take their time and fail as a request's
// first value says, and whose instances can't always be made.
// Threads: fibers. Memory: the heap. Errors: those that are wanted.
#pragma once

#include "support/fake_backend.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lumen::sim {

// Served all the time; the number that each adds to its input says whose reply one is.
inline constexpr const char* kModels[] = {"plus_one", "plus_two"};
inline constexpr const char* kModelThatGoes = "plus_three";
// Of the two models, and of the first one and the model that goes.
inline constexpr const char* kEnsembles[] = {"plus_one_and_two", "plus_one_and_three"};
inline constexpr const char* kModelThatDoesNotLoad = "broken";
// It keeps the sum of a sequence so far.
inline constexpr const char* kModelWithState = "sum_so_far";
// Its sums begin with a state of kFirstState, and it is told of a start by kToldOfStart.
inline constexpr float kFirstState = 7;
inline constexpr float kToldOfStart = 1000;
float added_by(const std::string& model);

// A request with a value below -1, which the engine does not measure with, fails, and its error
// names the value.
std::string failure_of(float value);
// As many as there are ways to fail, by the remainder: start() says so at once, the run throws, and
// at the end of the run.
inline constexpr int kWaysToFail = 3;

// The memory of the world's requests.
using Regions = std::vector<std::span<std::byte>>;

std::shared_ptr<models::FakeControl> some_control();
std::unique_ptr<models::Backend> make_backend(std::shared_ptr<models::FakeControl> control,
                                              Regions& regions);

}  // namespace lumen::sim
