// See the header.
#include "models/picture_model.h"

#include <lumen/base/limits.h>

#include "models/picture_steps.h"

#include <algorithm>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace lumen::models {
namespace {

struct Step {
  PictureInput picture;
  std::string name;
  std::optional<PixelNumbers> numbers;  // where the model within does not take pixels
};

class PictureInstance final : public Instance {
 public:
  PictureInstance(std::unique_ptr<Instance> inner, const std::vector<Step>& steps)
      : inner_(std::move(inner)), steps_(steps) {}

  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    Result<Run*> run = prepare(request, done);
    if (!run.ok()) {
      request.status = run.status();
      return StartOutcome::kDone;
    }
    const StartOutcome outcome = inner_->start((*run)->prepared, finish_later);
    if (outcome == StartOutcome::kDone) give_back(**run);
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }
  const void* last_bound_input(size_t index) const noexcept override {
    return inner_->last_bound_input(index);
  }
  uint64_t memory_number() const noexcept override { return inner_->memory_number(); }
  uint64_t times_rebuilt() const noexcept override { return inner_->times_rebuilt(); }

 private:
  // A request with the tensors that the model within takes, in the memory of the request that it
  // stands for: a backend may still read it after start() has returned.
  struct Run {
    InferRequest prepared;
    InferRequest* request = nullptr;
    void (*done)(InferRequest&) noexcept = nullptr;
  };

  Result<Run*> prepare(InferRequest& request, void (*done)(InferRequest&) noexcept) const noexcept {
    // Not where outputs go: over the bus that is the client's own, with room for outputs alone.
    Allocator& memory = request.list_memory();
    void* const place = memory.allocate(sizeof(Run), alignof(Run));
    const std::span<TensorView> inputs = memory.allocate_array<TensorView>(request.inputs.size());
    if (place == nullptr || inputs.size() != request.inputs.size()) {
      return Status::error(Code::kTooLarge, "no room for the list of inputs");
    }
    std::ranges::copy(request.inputs, inputs.begin());
    for (const Step& step : steps_) {
      TensorView& input = inputs[step.picture.index];
      Result<TensorView> prepared = to_pixels(step.picture, step.name, input, memory);
      if (prepared.ok() && step.numbers) {
        prepared = to_numbers(step.picture, step.name, *step.numbers, *prepared, memory);
      }
      if (!prepared.ok()) return prepared.status();
      input = *prepared;
    }
    Run* const run = ::new (place) Run{.prepared = request, .request = &request, .done = done};
    run->prepared.inputs = inputs;
    run->prepared.owner = run;
    return run;
  }

  static void give_back(Run& run) noexcept {
    run.request->status = std::move(run.prepared.status);
    run.request->outputs = run.prepared.outputs;
    run.request->times = run.prepared.times;
    run.~Run();
  }

  static void finish_later(InferRequest& prepared) noexcept {
    Run& run = *static_cast<Run*>(prepared.owner);
    InferRequest& request = *run.request;
    const auto done = run.done;
    give_back(run);
    done(request);
  }

  const std::unique_ptr<Instance> inner_;
  const std::vector<Step>& steps_;
};

class PictureModel final : public LoadedModel {
 public:
  PictureModel(std::unique_ptr<LoadedModel> inner, std::vector<PictureInput> pictures,
               bool takes_pixels)
      : inner_(std::move(inner)), metadata_(inner_->metadata()) {
    for (PictureInput& picture : pictures) {
      TensorSpec& input = metadata_.inputs[picture.index];
      add_need(picture, takes_pixels);
      Shape shape = picture.pixel_shape();
      if (picture.form == PictureOptions::Form::kFiles) {
        input.type = ElementType::kBytes;
        shape = {};
        (void)shape.append(picture.rows);
      } else {
        input.type = ElementType::kUint8;
        if (picture.is_resized) shape[1] = shape[2] = Shape::kDynamic;
      }
      input.shape = shape;
      forget_ties(picture.index);
      Step step{.picture = std::move(picture), .name = input.name, .numbers = std::nullopt};
      if (!takes_pixels && step.picture.has_numbers) step.numbers.emplace(step.picture);
      steps_.push_back(std::move(step));
    }
  }

  const ModelMetadata& metadata() const noexcept override { return metadata_; }

  Result<std::unique_ptr<Instance>> create_instance(
      std::span<const uint32_t> batch_sizes) override {
    Result<std::unique_ptr<Instance>> inner = inner_->create_instance(batch_sizes);
    if (!inner.ok()) return inner;
    return std::unique_ptr<Instance>(std::make_unique<PictureInstance>(std::move(*inner), steps_));
  }

 private:
  // Pictures of one request with the pixels and numbers of each.
  void add_need(const PictureInput& picture, bool takes_pixels) {
    const bool is_files = picture.form == PictureOptions::Form::kFiles;
    size_t bytes = 0;
    if (is_files || picture.is_resized) bytes += picture.values();
    if (!takes_pixels && picture.has_numbers) bytes += picture.values() * sizeof(float);
    metadata_.prepared_bytes += bytes;
    if (is_files) metadata_.inputs[picture.index].usual_bytes = usual_file_bytes(picture);
  }
  // A file of fewer bytes for so many pixels is rare: a JPEG has 5 to 10 times fewer bytes than
  // pixels of three channels have, after it was made smaller.
  static size_t usual_file_bytes(const PictureInput& picture) {
    constexpr size_t kReduction = 20;
    return std::max<size_t>(picture.values() / kReduction, 64);
  }

  // Only the axis of rows is left of those that the backend tied.
  void forget_ties(size_t input) {
    std::erase_if(metadata_.ties, [input](const TiedAxes& tie) {
      return (tie.input == input && tie.axis != 0) ||
             (tie.other_input == input && tie.other_axis != 0);
    });
  }

  const std::unique_ptr<LoadedModel> inner_;
  ModelMetadata metadata_;
  std::vector<Step> steps_;
};

}  // namespace

std::unique_ptr<LoadedModel> make_picture_model(std::unique_ptr<LoadedModel> inner,
                                                std::vector<PictureInput> pictures,
                                                bool takes_pixels) {
  return std::make_unique<PictureModel>(std::move(inner), std::move(pictures), takes_pixels);
}

}  // namespace lumen::models
