// The fields that change a request's key and those that do not, over many fields; and the two
// hashes.
#include "answers/fingerprint.h"

#include "unit/service/service_support.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lumen::answers {
namespace {

using service::Call;
using service::make_arena;
using service::OneModel;

const KeyedHash kHash(7);

// All that a request may say, as a value that tests change.
struct Asked {
  struct Input {
    ElementType type = ElementType::kFp32;
    std::vector<int64_t> shape = {1, 4};
    std::string bytes = std::string(16, 'x');
  };
  uint64_t generation = 1;
  std::vector<Input> inputs = std::vector<Input>(2);
  std::vector<uint16_t> outputs;
  std::vector<wire::InferParameter> parameters;
  std::optional<uint64_t> ttl_ms;
  uint64_t deadline_ns = UINT64_MAX;
};

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() {
    const auto control = std::make_shared<models::FakeControl>();
    control->inputs.push_back({"second", ElementType::kFp32, models::FakeControl::row_of_four()});
    control->outputs.push_back({"z", ElementType::kFp32, models::FakeControl::row_of_four()});
    models.emplace(control);
  }
  HashPair pair_of(const Asked& asked, const KeyedHash& hash = kHash) {
    Asked copy = asked;
    Arena scratch = make_arena(size_t{1} << 20);
    std::vector<TensorView> inputs;
    for (Asked::Input& input : copy.inputs) {
      TensorView tensor{.type = input.type,
                        .shape = {},
                        .data = reinterpret_cast<std::byte*>(input.bytes.data()),
                        .byte_size = input.bytes.size()};
      for (const int64_t size : input.shape) LUMEN_CHECK(tensor.shape.append(size));
      inputs.push_back(tensor);
    }
    Call call{.owner = nullptr, .scratch = &scratch, .reply_memory = &scratch};
    call.infer.model = models->model;
    call.infer.inputs = inputs;
    call.infer.outputs_wanted = copy.outputs;
    call.infer.deadline_ns = copy.deadline_ns;
    call.cache_wishes.ttl_ms = copy.ttl_ms;
    call.cache_wishes.parameters = copy.parameters;
    std::optional<Fingerprint> print = Fingerprint::of(call, copy.generation, hash);
    LUMEN_CHECK(print.has_value());
    return print->pair(call, hash);
  }
  std::optional<OneModel> models;
};

TEST_F(FingerprintTest, IsTheSameForTheSameRequest) { EXPECT_EQ(pair_of({}), pair_of({})); }

TEST_F(FingerprintTest, IsAnotherUnderAnotherSecret) {
  const HashPair one = pair_of({});
  const HashPair other = pair_of({}, KeyedHash(8));
  EXPECT_NE(one.key, other.key);
  EXPECT_NE(one.check, other.check);
  EXPECT_NE(pair_of({}, KeyedHash()).key, pair_of({}, KeyedHash()).key) << "drawn at random";
}

// Each changes one thing. All of them, and all pairs of two, are different requests by both hashes.
TEST_F(FingerprintTest, IsAnotherForAllThatMayChangeTheAnswer) {
  const std::vector<std::pair<const char*, std::function<void(Asked&)>>> changes = {
      {"another load of the model", [](Asked& a) { a.generation = 2; }},
      {"a byte of the first input", [](Asked& a) { a.inputs[0].bytes[0] = 'y'; }},
      {"a byte of the second", [](Asked& a) { a.inputs[1].bytes[15] = 'z'; }},
      {"a datatype of the same size", [](Asked& a) { a.inputs[0].type = ElementType::kInt32; }},
      {"another of the same size", [](Asked& a) { a.inputs[1].type = ElementType::kUint32; }},
      {"a shape of the same bytes", [](Asked& a) { a.inputs[0].shape = {4, 1}; }},
      {"a rank of the same bytes", [](Asked& a) { a.inputs[1].shape = {4}; }},
      {"one output", [](Asked& a) { a.outputs = {0}; }},
      {"another", [](Asked& a) { a.outputs = {1}; }},
      {"both in another order", [](Asked& a) { a.outputs = {1, 0}; }},
      {"a parameter", [](Asked& a) { a.parameters.push_back({"", "p", "1"}); }},
      {"its value", [](Asked& a) { a.parameters.push_back({"", "p", "2"}); }},
      {"its name", [](Asked& a) { a.parameters.push_back({"", "q", "1"}); }},
      {"whose it is", [](Asked& a) { a.parameters.push_back({"x", "p", "1"}); }},
  };
  std::map<Hash128, std::string> keys;
  std::map<Hash128, std::string> checks;
  const auto add = [&](const std::string& what, const Asked& asked) {
    const HashPair pair = pair_of(asked);
    const auto [key, key_is_new] = keys.emplace(pair.key, what);
    EXPECT_TRUE(key_is_new) << what << " is as " << key->second;
    const auto [check, check_is_new] = checks.emplace(pair.check, what);
    EXPECT_TRUE(check_is_new) << what << " is as " << check->second;
  };
  add("nothing", {});
  for (size_t i = 0; i < changes.size(); ++i) {
    Asked one;
    changes[i].second(one);
    add(changes[i].first, one);
  }
}

TEST_F(FingerprintTest, IsTheSameForTheRest) {
  const HashPair plain = pair_of({});
  Asked asked;
  asked.ttl_ms = 5;
  EXPECT_EQ(pair_of(asked), plain);
  asked.deadline_ns = 12345;
  EXPECT_EQ(pair_of(asked), plain) << "its timeout";
  asked.outputs = {0, 1};
  EXPECT_EQ(pair_of(asked), plain) << "all outputs by name";
  Asked ordered;
  ordered.parameters = {{"", "a", "1"}, {"", "b", "2"}, {"x", "a", "3"}};
  Asked turned;
  turned.parameters = {{"x", "a", "3"}, {"", "b", "2"}, {"", "a", "1"}};
  EXPECT_EQ(pair_of(ordered), pair_of(turned)) << "the order of parameters";
}

// Bytes move between two inputs, lengths of texts between two parameters: the same bytes in all,
// never the same request.
TEST_F(FingerprintTest, NothingMovesBetweenNeighbours) {
  std::set<Hash128> keys;
  for (int64_t elements = 0; elements <= 8; ++elements) {
    Asked asked;
    asked.inputs[0] = {ElementType::kUint8, {elements}, std::string(size_t(elements), 'x')};
    asked.inputs[1] = {ElementType::kUint8, {8 - elements}, std::string(size_t(8 - elements), 'x')};
    EXPECT_TRUE(keys.insert(pair_of(asked).key).second) << elements;
  }
  const std::string text = "abcdef";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Asked asked;
    asked.parameters = {
        {"", std::string_view(text).substr(0, cut), std::string_view(text).substr(cut)}};
    EXPECT_TRUE(keys.insert(pair_of(asked).key).second) << cut;
  }
}

// Any single bit of inputs of any size, by both hashes: also of those that go through other
// kernels.
TEST_F(FingerprintTest, EachBitOfAnInputCounts) {
  std::mt19937_64 random(3);
  for (const size_t size :
       {1U, 3U, 16U, 17U, 128U, 129U, 240U, 241U, 1024U, 4096U, 4097U, 70'000U}) {
    Asked asked;
    asked.inputs[0] = {ElementType::kUint8, {int64_t(size)}, std::string(size, '\0')};
    for (char& byte : asked.inputs[0].bytes) byte = static_cast<char>(random());
    const HashPair before = pair_of(asked);
    for (int flip = 0; flip < 64; ++flip) {
      Asked other = asked;
      const size_t bit = random() % (size * 8);
      other.inputs[0].bytes[bit / 8] =
          static_cast<char>(other.inputs[0].bytes[bit / 8] ^ 1 << bit % 8);
      const HashPair after = pair_of(other);
      EXPECT_NE(after.key, before.key) << size << " bytes, bit " << bit;
      EXPECT_NE(after.check, before.check) << size << " bytes, bit " << bit;
    }
  }
}

}  // namespace
}  // namespace lumen::answers
