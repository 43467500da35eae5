// A call's inputs and outputs before the engine sees it: names, places, bytes that arrive in
// pieces, bytes that another process can change. Wrong shapes: validate_test.cc.
#include "unit/service/service_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

namespace lumen::service {
namespace {

using testing::HasSubstr;

constexpr ElementType kFp32 = ElementType::kFp32;

class BinderTest : public testing::Test {
 protected:
  void open() {
    models.emplace(control);
    call.scratch = &scratch;
    call.reply_memory = &scratch;
  }
  Binder binder() { return {call, *models->model}; }
  static Shape shape_of(int64_t only) {
    Shape shape;
    LUMEN_CHECK(shape.append(only));
    return shape;
  }

  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::optional<OneModel> models;
  Arena scratch = make_arena();
  Call call;
};

TEST_F(BinderTest, GivesInputsToReceiveAlignedPlacesInTheirOrder) {
  control->inputs = {{"a", kFp32, shape_of(-1)}, {"b", kFp32, shape_of(-1)}};
  open();
  Binder bind = binder();
  ASSERT_TRUE(bind.input("b", tensor_of(kFp32, {3}, 12), InputBytes::kToReceive).ok());
  ASSERT_TRUE(bind.input("a", tensor_of(kFp32, {1}, 4), InputBytes::kToReceive).ok());
  ASSERT_TRUE(bind.inputs_named().ok());
  const std::string bytes = "bbbbBBBBbbbbaaaa";
  for (const char& byte : bytes) {  // pieces as small as there are
    ASSERT_FALSE(call.to_receive.empty());
    EXPECT_EQ(call.to_receive.fill({&byte, 1}), 1u);
  }
  EXPECT_TRUE(call.to_receive.empty());
  EXPECT_EQ(call.to_receive.fill("more"), 0u) << "nothing is written behind the last place";
  ASSERT_EQ(call.infer.inputs.size(), 2u) << "in the model's order";
  EXPECT_EQ(std::memcmp(call.infer.inputs[0].data, "aaaa", 4), 0);
  EXPECT_EQ(std::memcmp(call.infer.inputs[1].data, "bbbbBBBBbbbb", 12), 0);
  for (const TensorView& input : call.infer.inputs) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(input.data) % 64, 0u);
  }
}

TEST_F(BinderTest, ReadsNumbersInPlaceWhereverTheyLie) {
  open();
  std::array<float, 4> values{1, 2, 3, 4};
  auto* data = reinterpret_cast<std::byte*>(values.data());
  for (const InputBytes bytes : {InputBytes::kPresent, InputBytes::kShared}) {
    Binder bind = binder();
    ASSERT_TRUE(bind.input("x", tensor_of(kFp32, {1, 4}, 16, data), bytes).ok());
    ASSERT_TRUE(bind.inputs_named().ok());
    EXPECT_TRUE(call.to_receive.empty());
    EXPECT_EQ(call.infer.inputs[0].data, data);
  }
}

// The lengths inside would otherwise be checked, changed, and then believed.
TEST_F(BinderTest, ABytesTensorInSharedMemoryIsCopiedBeforeItsLengthsAreChecked) {
  control->inputs = {{"s", ElementType::kBytes, shape_of(-1)}};
  open();
  std::string shared("\1\0\0\0a\2\0\0\0bc", 11);
  Binder bind = binder();
  const TensorView tensor = tensor_of(ElementType::kBytes, {2}, shared.size(),
                                      reinterpret_cast<std::byte*>(shared.data()));
  ASSERT_TRUE(bind.input("s", tensor, InputBytes::kShared).ok());
  ASSERT_TRUE(bind.inputs_named().ok());
  shared.assign(11, '\xff');  // by the other process
  EXPECT_TRUE(inputs_arrived(call).ok());
  EXPECT_EQ(std::memcmp(call.infer.inputs[0].data, "\1\0\0\0a\2\0\0\0bc", 11), 0);
}

// A kernel may check an index, and read it once more.
TEST_F(BinderTest, IntegersThatMayBeIndicesAreCopiedOutOfSharedMemoryAndOthersAreNot) {
  for (const ElementType type :
       {ElementType::kInt32, ElementType::kUint32, ElementType::kInt64, ElementType::kUint64,
        ElementType::kUint8, ElementType::kFp32, ElementType::kBool}) {
    control->inputs = {{"i", type, shape_of(-1)}};
    open();
    call = {.owner = nullptr, .scratch = &scratch, .reply_memory = &scratch};
    alignas(8) std::array<std::byte, 16> shared{std::byte{1}};
    const size_t bytes = 2 * element_size(type);
    Binder bind = binder();
    ASSERT_TRUE(
        bind.input("i", tensor_of(type, {2}, bytes, shared.data()), InputBytes::kShared).ok());
    ASSERT_TRUE(bind.inputs_named().ok());
    shared.fill(std::byte{0xff});  // by the other process
    const bool is_copied = element_size(type) >= 4 && type != ElementType::kFp32;
    EXPECT_EQ(call.infer.inputs[0].data != shared.data(), is_copied) << element_type_name(type);
    EXPECT_EQ(call.infer.inputs[0].data[0], is_copied ? std::byte{1} : std::byte{0xff});
  }
}

TEST_F(BinderTest, LengthsThatLieAreRefusedHoweverTheBytesCame) {
  control->inputs = {{"s", ElementType::kBytes, shape_of(-1)}};
  std::string lie("\5\0\0\0a", 5);
  for (const InputBytes bytes :
       {InputBytes::kToReceive, InputBytes::kPresent, InputBytes::kShared}) {
    open();
    call = {.owner = nullptr, .scratch = &scratch, .reply_memory = &scratch};
    Binder bind = binder();
    const TensorView tensor =
        tensor_of(ElementType::kBytes, {1}, lie.size(), reinterpret_cast<std::byte*>(lie.data()));
    ASSERT_TRUE(bind.input("s", tensor, bytes).ok());
    ASSERT_TRUE(bind.inputs_named().ok());
    (void)call.to_receive.fill(lie);
    const Status status = inputs_arrived(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'s'"));
  }
}

TEST_F(BinderTest, AnAddressThatItsElementsCanNotHaveIsRefused) {
  open();
  alignas(float) std::array<std::byte, 32> bytes{};
  Binder bind = binder();
  const Status status =
      bind.input("x", tensor_of(kFp32, {1, 4}, 16, bytes.data() + 1), InputBytes::kShared);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'x'"));
}

TEST_F(BinderTest, SaysWhichInputIsUnknownGivenTwiceOrMissing) {
  control->inputs = {{"a", kFp32, shape_of(-1)}, {"b", kFp32, shape_of(-1)}};
  open();
  Binder bind = binder();
  const TensorView one = tensor_of(kFp32, {1}, 4);
  EXPECT_THAT(std::string(bind.input("c", one, InputBytes::kToReceive).message()),
              HasSubstr("no input 'c'"));
  ASSERT_TRUE(bind.input("a", one, InputBytes::kToReceive).ok());
  EXPECT_THAT(std::string(bind.input("a", one, InputBytes::kToReceive).message()),
              HasSubstr("'a' is given twice"));
  EXPECT_THAT(std::string(bind.inputs_named().message()),
              HasSubstr("'b' of model 'm' is missing: got 1 inputs, wanted 2"));
}

TEST_F(BinderTest, OutputsAreWantedInTheOrderAskedForEachOnce) {
  control->outputs = {{"y", kFp32, shape_of(-1)}, {"z", kFp32, shape_of(-1)}};
  control->inputs = {{"a", kFp32, shape_of(-1)}, {"b", kFp32, shape_of(-1)}};
  open();
  Binder bind = binder();
  ASSERT_TRUE(bind.output("z").ok());
  EXPECT_THAT(std::string(bind.output("z").message()), HasSubstr("'z' is requested twice"));
  EXPECT_THAT(std::string(bind.output("q").message()), HasSubstr("no output 'q'"));
  ASSERT_TRUE(bind.output("y").ok());
  EXPECT_THAT(call.infer.outputs_wanted, testing::ElementsAre(1, 0));
}

TEST_F(BinderTest, ATensorWithoutANameFillsTheAxisThatIsFree) {
  open();
  Binder bind = binder();
  ASSERT_TRUE(bind.only_input(48).ok());
  ASSERT_TRUE(bind.inputs_named().ok());
  EXPECT_EQ(call.infer.inputs[0].shape[0], 3);
  Call other{.owner = nullptr, .scratch = &scratch, .reply_memory = &scratch};
  Binder refuses(other, *models->model);
  EXPECT_THAT(std::string(refuses.only_input(50).message()), HasSubstr("50 bytes"));
}

TEST_F(BinderTest, MemoryThatDoesNotSufficeIsTooLarge) {
  open();
  Arena small = make_arena(4096);
  call.scratch = &small;
  Binder bind = binder();
  const Status status = bind.input("x", tensor_of(kFp32, {1024, 4}, 16384), InputBytes::kToReceive);
  EXPECT_EQ(status.code(), Code::kTooLarge);
}

}  // namespace
}  // namespace lumen::service
