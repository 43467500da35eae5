// RowSampler as a step: which rows of which requests are in the sample. One thread.
#include <lumen/service/row_sampler.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "unit/service/service_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lumen::service {
namespace {

using models::FakeControl;
using models::Model;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMaxBytes = 1 << 20;

class RowSamplerTest : public testing::Test {
 protected:
  void start(std::string_view config = "{}") { models.emplace(control, config); }
  std::shared_ptr<Model> model() const { return models->repository->models().front(); }
  Status begin(uint32_t rows) { return sampler.begin(model(), rows); }
  // A request whose rows hold `values`, each four times.
  void send(const std::vector<float>& values) {
    std::vector<float> data;
    for (const float value : values) data.insert(data.end(), 4, value);
    send({static_cast<int64_t>(values.size()), 4}, data);
  }
  void send(const std::vector<int64_t>& shape, const std::vector<float>& data) {
    models::PendingRequest request(model().get());
    request.add_input<float>(ElementType::kFp32, shape, data);
    pass(request);
  }
  void pass(models::PendingRequest& request) {
    Call call;
    call.infer.model = request.request.model;
    call.infer.inputs = request.request.inputs;
    EXPECT_EQ(sampler.before(call), StepOutcome::kNext);
  }
  static std::vector<float> floats(const TensorView& tensor) {
    std::vector<float> values(tensor.byte_size / sizeof(float));
    std::memcpy(values.data(), tensor.data, tensor.byte_size);
    return values;
  }
  // The first number of each row that is kept.
  std::vector<float> kept() {
    sampler.end();
    std::vector<float> values;
    for (uint32_t i = 0; i < sampler.count().kept; ++i) {
      const std::vector<TensorView> row = sampler.row(i);
      EXPECT_EQ(row.size(), model()->metadata().inputs.size());
      values.push_back(floats(row[0]).front());
    }
    EXPECT_THAT(sampler.row(static_cast<uint32_t>(values.size())), IsEmpty());
    return values;
  }

  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::optional<OneModel> models;
  uint32_t waits = 0;
  RowSampler sampler{kMaxBytes, [this] { ++waits; }};
};

TEST_F(RowSamplerTest, KeepsNothingBeforeItBeginsAndAfterItHasEnded) {
  start();
  send({1});
  ASSERT_TRUE(begin(4).ok());
  send({2});
  sampler.end();
  EXPECT_EQ(waits, 1u) << "a thread may have been in before()";
  send({3});
  EXPECT_THAT(kept(), ElementsAre(2));
  EXPECT_EQ(sampler.count().seen, 1u);
  EXPECT_EQ(waits, 1u) << "the second end waits for nobody";
}

TEST_F(RowSamplerTest, GivesNoRowWhileItGoesOn) {
  start();
  ASSERT_TRUE(begin(4).ok());
  send({1});
  EXPECT_THAT(sampler.row(0), IsEmpty());
}

TEST_F(RowSamplerTest, TakesEachRowOfARequestWithTheShapeOfOne) {
  start();
  ASSERT_TRUE(begin(8).ok());
  send({1, 2, 3});
  send({4});
  EXPECT_THAT(kept(), ElementsAre(1, 2, 3, 4));
  const TensorView tensor = sampler.row(2)[0];
  EXPECT_THAT(tensor.shape.dimensions(), ElementsAre(1, 4));
  EXPECT_THAT(floats(tensor), ElementsAre(3, 3, 3, 3));
}

TEST_F(RowSamplerTest, ARequestWithoutRowsIsLeftOut) {
  start();
  ASSERT_TRUE(begin(8).ok());
  send({0, 4}, {});
  EXPECT_THAT(kept(), IsEmpty());
  EXPECT_EQ(sampler.count().left_out, 1u);
}

// The sum over all rows is no answer for one of them, so the request is one row of the sample.
TEST_F(RowSamplerTest, ARequestWhoseRowsBelongTogetherIsOneRow) {
  control->traits.has_independent_rows = false;
  control->models_that_sum_rows = {"m"};
  start();
  ASSERT_NE(model()->why_not_packed(), "");
  ASSERT_TRUE(begin(2).ok());
  send({1, 2, 3});
  send({4});
  EXPECT_THAT(kept(), ElementsAre(1, 4));
  EXPECT_THAT(sampler.row(0)[0].shape.dimensions(), ElementsAre(3, 4));
  EXPECT_THAT(floats(sampler.row(0)[0]), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
}

TEST_F(RowSamplerTest, RowsOfAFreeSizeKeepTheirShapes) {
  Shape shape;
  ASSERT_TRUE(shape.append(Shape::kDynamic) && shape.append(Shape::kDynamic));
  control->inputs[0].shape = control->outputs[0].shape = shape;
  start();
  ASSERT_TRUE(begin(4).ok());
  send({1, 2}, {1, 2});
  send({2, 3}, {3, 4, 5, 6, 7, 8});
  EXPECT_THAT(kept(), ElementsAre(1, 3, 6));
  EXPECT_THAT(sampler.row(0)[0].shape.dimensions(), ElementsAre(1, 2));
  EXPECT_THAT(floats(sampler.row(2)[0]), ElementsAre(6, 7, 8));
}

TEST_F(RowSamplerTest, ARowLargerThanItsPlaceIsLeftOutAndCounted) {
  Shape shape;
  ASSERT_TRUE(shape.append(Shape::kDynamic) && shape.append(Shape::kDynamic));
  control->inputs[0].shape = control->outputs[0].shape = shape;
  start();
  ASSERT_TRUE(begin(1024).ok()) << "1024 bytes for each row";
  send({2, 256}, std::vector<float>(512, 1));
  send({1, 128}, std::vector<float>(128, 2));
  EXPECT_THAT(kept(), ElementsAre(2));
  EXPECT_EQ(sampler.count().left_out, 2u);
  EXPECT_EQ(sampler.count().seen, 1u);
}

TEST_F(RowSamplerTest, RequestsOfAnotherModelAreNotTaken) {
  start();
  const OneModel other(control);
  ASSERT_TRUE(begin(4).ok());
  models::PendingRequest request(other.model);
  request.add_input<float>(ElementType::kFp32, {1, 4}, {1, 2, 3, 4});
  pass(request);
  EXPECT_THAT(kept(), IsEmpty());
}

TEST_F(RowSamplerTest, OneSampleAtATimeAndTheNextOnceItIsDropped) {
  start();
  ASSERT_TRUE(begin(4).ok());
  send({1});
  EXPECT_EQ(begin(4).code(), Code::kAlreadyExists);
  sampler.end();
  EXPECT_EQ(begin(4).code(), Code::kAlreadyExists) << "its rows may still be asked for";
  sampler.drop();
  EXPECT_THAT(sampler.row(0), IsEmpty());
  ASSERT_TRUE(begin(4).ok());
  send({2});
  EXPECT_THAT(kept(), ElementsAre(2));
}

TEST_F(RowSamplerTest, BytesAreRefused) {
  control->inputs[0].type = ElementType::kBytes;
  start();
  const Status status = begin(4);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("input 'x' is BYTES"));
}

TEST_F(RowSamplerTest, RowsOfAModelThatKeepsStatesAreRefused) {
  control->models_with_a_state.insert("m");
  start(R"({"sequences": {"states": [{"input": "h", "output": "h_out"}]}})");
  const Status status = begin(4);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("model 'm' keeps states of sequences"));
}

TEST_F(RowSamplerTest, MoreThanItsMemoryIsRefusedWithTheNumberThatFits) {
  start();
  const Status status = begin(RowSampler::kMaxRows);
  EXPECT_EQ(status.code(), Code::kTooLarge);
  const std::string message(status.message());
  const size_t at = message.find("ask for ");
  ASSERT_NE(at, std::string::npos) << message;
  const auto fits = static_cast<uint32_t>(std::stoul(message.substr(at + 8)));
  EXPECT_EQ(begin(fits + 1).code(), Code::kTooLarge);
  EXPECT_TRUE(begin(fits).ok());
  EXPECT_LE(sampler.count().bytes, kMaxBytes);
}

TEST_F(RowSamplerTest, NoRowsAndTooManyAreRefused) {
  start();
  EXPECT_EQ(begin(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(begin(RowSampler::kMaxRows + 1).code(), Code::kInvalidArgument);
}

// Each row is kept with the same probability, whenever it came and in whichever request.
TEST_F(RowSamplerTest, EachRowIsAsLikelyToBeKeptAsAnyOther) {
  start();
  constexpr int kSent = 24;
  constexpr uint32_t kKept = 6;
  constexpr int kTrials = 3000;
  std::map<float, int> times;
  for (int trial = 0; trial < kTrials; ++trial) {
    ASSERT_TRUE(begin(kKept).ok());
    for (int row = 0; row < kSent; row += 3) {
      const auto first = static_cast<float>(row);
      send({first, first + 1, first + 2});
    }
    const std::vector<float> rows = kept();
    ASSERT_EQ(rows.size(), kKept);
    for (const float row : rows) ++times[row];
    sampler.drop();
  }
  const double share = static_cast<double>(kKept) / kSent;
  const double deviation = std::sqrt(kTrials * share * (1 - share));
  for (int row = 0; row < kSent; ++row) {
    // 7 standard deviations: once in 10^10 runs by chance. A bias of a fifth is 8 of them.
    EXPECT_NEAR(times[static_cast<float>(row)], kTrials * share, 7 * deviation) << row;
  }
}

}  // namespace
}  // namespace lumen::service
