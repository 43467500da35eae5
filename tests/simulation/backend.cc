// See the header.
#include "simulation/backend.h"

#include "simulation/fibers.h"
#include "simulation/network.h"
#include "support/wrapping_backend.h"

#include <lumen/models/model_repository.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace lumen::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

// The first value of a request, or of those that are packed into one, by which it fails; 0: there
// is none.
float failing_value(const models::InferRequest& request) {
  const TensorView& input = request.inputs[0];
  for (size_t i = 0; i < input.byte_size; i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, input.data + i, sizeof(value));
    if (value < -1) return value;
  }
  return 0;
}

Status failed(float value) {
  return Status::error(Code::kInternal, "%s", failure_of(value).c_str());
}

using Done = void (*)(models::InferRequest&) noexcept;

class SimInstance final : public models::Instance {
 public:
  explicit SimInstance(std::unique_ptr<models::Instance> inner) : inner_(std::move(inner)) {}
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }

  models::StartOutcome start(models::InferRequest& request, Done done) noexcept override {
    // A client's request alone. The engine's measurements at a start or a change, and the packs
    // made then, take as long for many rows as for one, so that packing is worth it.
    if (request.times.received_ns == 0) {
      let_time_pass_ns(10'000);
    } else if (random().one_in(2)) {
      let_time_pass_ns(random().below(random().one_in(50) ? 80 * kMs : 100'000));
    }
    const float value = failing_value(request);
    if (value < 0 && static_cast<int>(value) % kWaysToFail == 0) {
      request.status = failed(value);
      return models::StartOutcome::kDone;
    }
    const auto expected = done_.emplace(&request, done).first;
    // No exception crosses a backend's face.
    try {
      if (value < 0 && static_cast<int>(value) % kWaysToFail == -1) {
        throw std::runtime_error(failure_of(value));
      }
      const models::StartOutcome outcome = inner_->start(request, &SimInstance::on_done);
      if (outcome == models::StartOutcome::kPending) return outcome;
      end_run(request);
    } catch (const std::exception& error) {
      request.status = Status::error(Code::kInternal, "%s", error.what());
    }
    done_.erase(expected);
    return models::StartOutcome::kDone;
  }

 private:
  static void end_run(models::InferRequest& request) noexcept {
    const float value = failing_value(request);
    if (value < 0) request.status = failed(value);
  }
  static void on_done(models::InferRequest& request) noexcept {
    end_run(request);
    if (request.cancelled.was_set() && random().one_in(2)) {
      request.status = Status::error(Code::kCancelled, "the device has noticed the cancel");
    }
    const Done done = done_.extract(&request).mapped();
    done(request);
    if (faults.double_completion && random().one_in(16)) done(request);
  }

  static inline std::map<const models::InferRequest*, Done> done_;
  std::unique_ptr<models::Instance> inner_;
};

}  // namespace

float added_by(const std::string& model) {
  if (model == kEnsembles[0]) return added_by(kModels[0]) + added_by(kModels[1]);
  if (model == kEnsembles[1]) return added_by(kModels[0]) + added_by(kModelThatGoes);
  if (model == kModels[0]) return 1;
  if (model == kModelWithState) return 4;
  return model == kModels[1] ? 2 : 3;
}

std::string failure_of(float value) {
  char text[64];
  std::snprintf(text, sizeof(text), "a run with %.0f fails, as the test wants",
                static_cast<double>(value));
  return text;
}

std::shared_ptr<models::FakeControl> some_control() {
  auto control = std::make_shared<models::FakeControl>();
  control->asynchronous = random().one_in(2);
  control->max_in_flight = static_cast<uint32_t>(1 + random().below(4));
  control->traits.batches_in_flight = random().one_in(2);
  control->traits.loads_in_parallel = random().one_in(2);
  control->seed = random().next();
  control->models_that_fail_to_load.insert(kModelThatDoesNotLoad);
  for (const char* model : {kModels[0], kModels[1], kModelThatGoes, kModelWithState}) {
    control->adds[model] = added_by(model);
  }
  control->models_with_a_state.insert(kModelWithState);
  control->models_told_of_a_start.insert(kModelWithState);
  return control;
}

std::unique_ptr<models::Backend> make_backend(std::shared_ptr<models::FakeControl> control,
                                              Regions& regions) {
  return std::make_unique<models::WrappingBackend>(
      models::make_fake_backend(std::move(control)),
      [](std::unique_ptr<models::Instance> inner) {
        return std::unique_ptr<models::Instance>(std::make_unique<SimInstance>(std::move(inner)));
      },
      [&regions](std::span<std::byte> region) { regions.push_back(region); });
}

}  // namespace lumen::sim
