// The sequences of `lumen bench --sequence-length`: their ids, and requests that name them.
#include <lumen/client/sequence_walk.h>

#include <lumen/client/model_info.h>
#include <lumen/memory/request_memory.h>
#include <lumen/wire/grpc_infer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace lumen::client {
namespace {

using testing::HasSubstr;

constexpr uint64_t kAnyNumber = UINT64_MAX / 2;

ModelInfo named_like_a_parameter() {
  ModelInfo model;
  model.name = "sequence_id";
  model.inputs = {{"\"sequence_id\":", ElementType::kFp32, {}}};
  return model;
}

TEST(SequenceWalk, EachSequenceHasItsLengthAndAnotherId) {
  SequenceWalk walk(3, kAnyNumber, 0, 4);
  std::set<uint32_t> ids;
  for (int sequence = 0; sequence < 50; ++sequence) {
    const SequencePlace first = walk.next();
    EXPECT_TRUE(first.starts && !first.ends);
    EXPECT_TRUE(ids.insert(first.id).second);
    const SequencePlace second = walk.next();
    EXPECT_TRUE(!second.starts && !second.ends && second.id == first.id);
    const SequencePlace third = walk.next();
    EXPECT_TRUE(!third.starts && third.ends && third.id == first.id);
  }
}

TEST(SequenceWalk, OneRequestIsASequence) {
  SequenceWalk walk(1, kAnyNumber, 0, 1);
  const SequencePlace one = walk.next();
  EXPECT_TRUE(one.starts && one.ends);
  EXPECT_NE(walk.next().id, one.id);
}

TEST(SequenceWalk, WalksShareNoIdAndAllHaveNineDigits) {
  constexpr uint64_t kWalks = 5;
  std::set<uint32_t> ids;
  for (uint64_t index = 0; index < kWalks; ++index) {
    SequenceWalk walk(1, kAnyNumber, index, kWalks);
    for (int i = 0; i < 1000; ++i) {
      const uint32_t id = walk.next().id;
      EXPECT_TRUE(ids.insert(id).second) << id;
      EXPECT_EQ(std::to_string(id).size(), 9u);
    }
  }
}

TEST(SequenceWalk, AFailureBeginsAnotherSequence) {
  SequenceWalk walk(10, kAnyNumber, 0, 1);
  const uint32_t before = walk.next().id;
  walk.begin_another();
  const SequencePlace after = walk.next();
  EXPECT_TRUE(after.starts);
  EXPECT_NE(after.id, before);
}

TEST(SequencePlaces, AreThoseOfARequestOverHttp) {
  const ModelInfo model = named_like_a_parameter();
  SequencePlaces places;
  const std::vector<InputTensor> inputs = {
      {model.inputs[0].name, ElementType::kFp32, {}, "\"sequence_id\":1"}};
  std::string request =
      build_request(Target{}, model, inputs, "\"sequence_end\":", ConnectionUse::kKept, &places);
  const size_t bytes = request.size();
  places.write({.id = 987'654'321, .starts = true, .ends = false}, request.data());
  EXPECT_EQ(request.size(), bytes);
  EXPECT_THAT(request,
              HasSubstr(R"("parameters":{"binary_data_output":true,"sequence_id":987654321,)"
                        R"("sequence_start": true,"sequence_end":false}})"));
  places.write({.id = SequencePlace::kLeastId, .starts = false, .ends = true}, request.data());
  EXPECT_THAT(request, HasSubstr(R"("sequence_id":268435456,"sequence_start":false,)"
                                 R"("sequence_end": true}})"));
  EXPECT_EQ(request.substr(request.size() - 15), "\"sequence_id\":1") << "the input's own bytes";
}

TEST(SequencePlaces, AreThoseOfARequestOverGrpc) {
  const ModelInfo model = named_like_a_parameter();
  SequencePlaces places;
  const std::vector<InputTensor> inputs = {
      {model.inputs[0].name, ElementType::kFp32, {}, std::string(4, 's')}};
  std::string request = build_grpc_request(model, inputs, &places);
  for (const SequencePlace& place : {SequencePlace{SequencePlace::kLeastId, false, true},
                                     SequencePlace{SequencePlace::kMostId, true, false}}) {
    places.write(place, request.data());
    auto memory = std::move(RequestMemory::create(1 << 20)).value();
    const auto read =
        wire::parse_grpc_infer(std::string_view(request).substr(wire::kGrpcPrefixBytes), memory);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->model, model.name);
    EXPECT_EQ(read->head.sequence.number, place.id);
    EXPECT_EQ(read->head.sequence.starts, place.starts);
    EXPECT_EQ(read->head.sequence.ends, place.ends);
    ASSERT_EQ(read->head.inputs.size(), 1u);
    EXPECT_EQ(read->head.inputs[0].tensor.byte_size, 4u);
  }
}

}  // namespace
}  // namespace lumen::client
