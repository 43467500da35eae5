// PictureModel around a model that answers at once, and around one that answers later from another
// thread, as devices do: requests get their own status, outputs and inputs back.
#include "models/picture_model.h"

#include <lumen/memory/request_memory.h>

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

constexpr int64_t kHeight = 2;
constexpr int64_t kWidth = 4;
constexpr size_t kValues = kHeight * kWidth * 3;

// Gives its first input back as its output.
class Echo final : public Instance {
 public:
  explicit Echo(bool is_late) : is_late_(is_late) {}
  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    if (!is_late_) {
      answer(request);
      return StartOutcome::kDone;
    }
    thread_ = std::jthread([&request, done] {
      answer(request);
      done(request);
    });
    return StartOutcome::kPending;
  }

 private:
  static void answer(InferRequest& request) noexcept {
    request.outputs = request.memory->allocate_array<TensorView>(1);
    request.outputs[0] = request.inputs[0];
    request.times.inferred_ns = 7;
  }
  const bool is_late_;
  std::jthread thread_;
};

class EchoModel final : public LoadedModel {
 public:
  explicit EchoModel(bool is_late) : is_late_(is_late) {
    TensorSpec input{.name = "x", .type = ElementType::kFp32, .shape = {}};
    for (const int64_t size : {int64_t{-1}, int64_t{3}, kHeight, kWidth}) {
      EXPECT_TRUE(input.shape.append(size));
    }
    metadata_.inputs = {input};
    metadata_.outputs = {input};
    metadata_.outputs[0].name = "y";
    metadata_.ties = {{0, 2, 0, 3}};
  }
  const ModelMetadata& metadata() const noexcept override { return metadata_; }
  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    return std::unique_ptr<Instance>(std::make_unique<Echo>(is_late_));
  }

 private:
  const bool is_late_;
  ModelMetadata metadata_;
};

std::unique_ptr<LoadedModel> pictured(bool is_late, const PictureOptions& options = {}) {
  auto model = std::make_unique<EchoModel>(is_late);
  auto planned = plan_pictures({{"x", options}}, model->metadata().inputs);
  EXPECT_TRUE(planned.ok());
  return make_picture_model(std::move(model), std::move(*planned), false);
}

struct Request {
  Request() : memory(std::move(made.value())), pixels(kValues) {
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i);
    view.type = ElementType::kUint8;
    for (const int64_t size : {int64_t{1}, kHeight, kWidth, int64_t{3}}) {
      EXPECT_TRUE(view.shape.append(size));
    }
    view.data = pixels.data();
    view.byte_size = pixels.size();
    infer.inputs = {&view, 1};
    infer.memory = &memory;
    infer.owner = this;
  }
  void run(LoadedModel& model) {
    const Result<std::unique_ptr<Instance>> instance = model.create_instance({});
    ASSERT_TRUE(instance.ok());
    const auto on_done = [](InferRequest& request) noexcept {
      static_cast<Request*>(request.owner)->was_told = true;
    };
    outcome = (*instance)->start(infer, on_done);
  }  // the instance's thread has ended

  Result<RequestMemory> made = RequestMemory::create(1 << 20);
  RequestMemory memory;
  std::vector<std::byte> pixels;
  TensorView view;
  InferRequest infer;
  StartOutcome outcome{};
  bool was_told = false;
};

TEST(PictureModel, ARequestGetsTheAnswerToItsPixelsAndKeepsItsInputs) {
  for (const bool is_late : {false, true}) {
    const auto model = pictured(is_late);
    Request request;
    request.run(*model);
    EXPECT_EQ(request.outcome, is_late ? StartOutcome::kPending : StartOutcome::kDone);
    EXPECT_EQ(request.was_told, is_late);
    ASSERT_TRUE(request.infer.status.ok());
    EXPECT_EQ(request.infer.owner, &request);
    EXPECT_EQ(request.infer.inputs.data(), &request.view);
    EXPECT_EQ(request.infer.times.inferred_ns, 7u);
    ASSERT_EQ(request.infer.outputs.size(), 1u);
    const TensorView& output = request.infer.outputs[0];
    EXPECT_EQ(output.shape[1], 3);
    ASSERT_EQ(output.byte_size, kValues * sizeof(float));
    for (size_t i = 0; i < kValues; ++i) {
      float value = 0;
      std::memcpy(&value, output.data + i * sizeof(float), sizeof(value));
      const size_t places = kHeight * kWidth;
      const size_t channel = i / places;
      EXPECT_EQ(value, static_cast<float>(i % places * 3 + channel));
    }
  }
}

TEST(PictureModel, ARequestWithoutRoomForItsNumbersIsRefusedAtOnce) {
  const auto model = pictured(true);
  Request request;
  while (request.memory.allocate(64, 64) != nullptr) continue;
  request.run(*model);
  EXPECT_EQ(request.outcome, StartOutcome::kDone);
  EXPECT_EQ(request.infer.status.code(), Code::kTooLarge);
}

TEST(PictureModel, AFileThatIsNoneEndsItsRequestAlone) {
  const auto model = pictured(true, {.form = PictureOptions::Form::kFiles});
  EXPECT_EQ(model->metadata().inputs[0].type, ElementType::kBytes);
  EXPECT_EQ(model->metadata().inputs[0].shape.rank(), 1u);
  Request request;
  std::vector<std::byte> file = {std::byte{2}, {}, {}, {}, std::byte{'G'}, std::byte{'I'}};
  request.view.type = ElementType::kBytes;
  request.view.shape = {};
  EXPECT_TRUE(request.view.shape.append(1));
  request.view.data = file.data();
  request.view.byte_size = file.size();
  request.run(*model);
  EXPECT_EQ(request.outcome, StartOutcome::kDone);
  EXPECT_EQ(request.infer.status.message(),
            "input 'x': element 0 has 2 bytes, of which the first are 47 49, wanted a JPEG or PNG "
            "file");
}

// The axes of height and width are fixed now, and no axis of the input is where it was.
TEST(PictureModel, TiesOfAxesThatAreGoneAreForgotten) {
  EXPECT_TRUE(pictured(false)->metadata().ties.empty());
  EXPECT_EQ(pictured(false)->metadata().prepared_bytes, kValues * sizeof(float));
}

}  // namespace
}  // namespace lumen::models
