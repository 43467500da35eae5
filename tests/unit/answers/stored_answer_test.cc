// A stored answer's comparison beside the key, which is the same here as if two requests collided:
// inputs up to 4 KiB byte by byte, larger ones by the second hash.
#include "answers/stored_answer.h"

#include "unit/service/service_support.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace lumen::answers {
namespace {

using service::Call;
using service::make_arena;
using service::OneModel;
using service::tensor_of;

const KeyedHash kHash(7);
const KeyedHash kOther(8);

// A call of one input of bytes, with its fingerprint.
struct Asked {
  Asked(models::Model* model, std::string given, std::string_view parameter = "1")
      : bytes(std::move(given)), parameters{{"", "p", parameter}} {
    inputs = {tensor_of(ElementType::kUint8, {static_cast<int64_t>(bytes.size())}, bytes.size(),
                        reinterpret_cast<std::byte*>(bytes.data()))};
    call.scratch = &scratch;
    call.infer.model = model;
    call.infer.inputs = inputs;
    call.cache_wishes.parameters = parameters;
    print = Fingerprint::of(call, 1, kHash);
    LUMEN_CHECK(print.has_value());
  }
  Arena scratch = make_arena(size_t{1} << 20);
  std::string bytes;
  std::vector<wire::InferParameter> parameters;
  std::vector<TensorView> inputs;
  Call call{};
  std::optional<Fingerprint> print;
};

class StoredAnswerTest : public testing::Test {
 protected:
  const StoredAnswer& store(Asked& asked) {
    memory.resize(StoredAnswer::bytes_for(asked.call, *asked.print) / sizeof(std::max_align_t) + 1);
    auto* const at = reinterpret_cast<std::byte*>(memory.data());
    StoredAnswer::write(at, asked.call, *asked.print, kHash, 1);
    return StoredAnswer::at(at);
  }
  bool answers(const StoredAnswer& stored, const std::string& bytes,
               std::string_view parameter = "1", const KeyedHash& hash = kHash) {
    Asked asked(models.model, bytes, parameter);
    return stored.answers(asked.call, *asked.print, hash);
  }
  OneModel models{std::make_shared<models::FakeControl>()};
  std::vector<std::max_align_t> memory;
};

TEST_F(StoredAnswerTest, IsNoOtherRequestsThoughTheKeyWereTheSame) {
  for (const size_t size : {1u, 16u, 4096u, 4097u, 70'000u}) {
    const std::string bytes(size, 'x');
    Asked asked(models.model, bytes);
    const StoredAnswer& stored = store(asked);
    EXPECT_TRUE(answers(stored, bytes)) << size;
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      std::string other = bytes;
      other[at] = 'y';
      EXPECT_FALSE(answers(stored, other)) << size << " bytes, another at " << at;
    }
    EXPECT_FALSE(answers(stored, bytes, "2")) << "another parameter";
    EXPECT_FALSE(answers(stored, bytes + "x")) << "another shape";
  }
}

// Under another secret a hash is another, and bytes are the same.
TEST_F(StoredAnswerTest, ComparesBytesUpTo4KiBAndASecondHashBeyond) {
  static_assert(StoredAnswer::kComparedBytes == 4096);
  Asked small(models.model, std::string(4096, 'x'));
  EXPECT_TRUE(answers(store(small), small.bytes, "1", kOther));
  Asked large(models.model, std::string(4097, 'x'));
  EXPECT_FALSE(answers(store(large), large.bytes, "1", kOther));
}

}  // namespace
}  // namespace lumen::answers
