// The frames of inference over the bus: a written frame is read back, and nothing else is read.
#include <lumen/base/limits.h>
#include <lumen/wire/bus_infer.h>

#include "unit/wire/wire_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace lumen::wire {
namespace {

using testing::HasSubstr;

class BusInfer : public testing::Test {
 protected:
  static BusTensor tensor(std::string_view name, std::initializer_list<int64_t> dimensions,
                          uint64_t offset) {
    BusTensor made{.name = name, .type = ElementType::kFp32, .shape = {}, .offset = offset};
    for (const int64_t dimension : dimensions) EXPECT_TRUE(made.shape.append(dimension));
    made.bytes = 4 * made.shape.element_count().value_or(0);
    return made;
  }
  // A request with all that there can be in one.
  BusRequest request() {
    return {.model = "mlp",
            .version = "2",
            .timeout_us = 5000,
            .reply_offset = 8192,
            .reply_room = 4096,
            .inputs = tensors,
            .outputs = names};
  }
  template <typename Frame>
  static std::vector<std::byte> written(const Frame& what) {
    std::vector<std::byte> frame(frame_bytes(what).value());
    if constexpr (std::is_same_v<Frame, BusRequest>) {
      write_bus_request(what, frame);
    } else {
      write_bus_reply(what, frame);
    }
    return frame;
  }
  std::string why_refused(const std::vector<std::byte>& frame) {
    const Result<BusRequest> parsed = parse_bus_request(frame, memory);
    return parsed.ok() ? "" : std::string(parsed.status().message());
  }
  template <typename T>
  static void put(std::vector<std::byte>& frame, size_t offset, T value) {
    ASSERT_LE(offset + sizeof(T), frame.size());
    std::memcpy(frame.data() + offset, &value, sizeof(T));
  }
  static void expect_equal(const BusTensor& a, const BusTensor& b) {
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.offset, b.offset);
    EXPECT_EQ(a.bytes, b.bytes);
  }

  test::HeapMemory memory;
  const std::array<BusTensor, 2> tensors{tensor("x", {1, 16}, 0), tensor("mask", {}, 64)};
  const std::array<std::string_view, 2> names{"y", "scores"};
};

TEST_F(BusInfer, ARequestIsReadBackAsItWasWritten) {
  const BusRequest sent = request();
  const std::vector<std::byte> frame = written(sent);
  const Result<BusRequest> got = parse_bus_request(frame, memory);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->model, "mlp");
  EXPECT_EQ(got->version, "2");
  EXPECT_EQ(got->timeout_us, 5000u);
  EXPECT_EQ(got->reply_offset, 8192u);
  EXPECT_EQ(got->reply_room, 4096u);
  ASSERT_EQ(got->inputs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) expect_equal(got->inputs[i], tensors[i]);
  EXPECT_THAT(got->outputs, testing::ElementsAre("y", "scores"));
}

TEST_F(BusInfer, NoTimeoutIsNotATimeoutOfZero) {
  BusRequest sent = request();
  sent.timeout_us = std::nullopt;
  EXPECT_EQ(parse_bus_request(written(sent), memory)->timeout_us, std::nullopt);
  sent.timeout_us = 0;
  EXPECT_EQ(parse_bus_request(written(sent), memory)->timeout_us, 0u);
}

TEST_F(BusInfer, AReplyIsReadBackAsItWasWritten) {
  const std::vector<std::byte> good =
      written(BusReply{.status = 200, .version = "7", .outputs = tensors, .text = {}});
  const Result<BusReply> got = parse_bus_reply(good, memory);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->version, "7");
  ASSERT_EQ(got->outputs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) expect_equal(got->outputs[i], tensors[i]);

  const std::vector<std::byte> bad =
      written(BusReply{.status = 404, .version = {}, .outputs = {}, .text = "no such model"});
  EXPECT_EQ(parse_bus_reply(bad, memory)->text, "no such model");
}

TEST_F(BusInfer, AFrameThatIsCutAnywhereOrTooLongIsRefused) {
  const std::vector<std::byte> frame = written(request());
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    const std::vector<std::byte> cut(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_THAT(why_refused(cut), HasSubstr("ends before")) << bytes;
  }
  std::vector<std::byte> longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_THAT(why_refused(longer), HasSubstr("1 more than"));
}

TEST_F(BusInfer, ARequestOfAnotherVersionOrWithUnknownFlagsIsRefused) {
  std::vector<std::byte> frame = written(request());
  put<uint16_t>(frame, 0, 2);
  EXPECT_THAT(why_refused(frame), HasSubstr("version 2"));
  frame = written(request());
  put<uint16_t>(frame, 2, 64);
  EXPECT_THAT(why_refused(frame), HasSubstr("flags"));
}

TEST_F(BusInfer, TensorsThatCantBeAreRefused) {
  constexpr size_t kFirst = sizeof(BusRequestHead);
  constexpr size_t kDimensions = kFirst + 2 * sizeof(BusTensorHead);
  std::vector<std::byte> frame = written(request());
  put<uint16_t>(frame, 4, limits::kMaxTensors + 1);
  EXPECT_THAT(why_refused(frame), HasSubstr("4097 tensors"));
  frame = written(request());
  put<uint16_t>(frame, 6, limits::kMaxTensors + 1);
  EXPECT_THAT(why_refused(frame), HasSubstr("4097 outputs"));
  frame = written(request());
  put<uint8_t>(frame, kFirst + offsetof(BusTensorHead, datatype), 14);
  EXPECT_THAT(why_refused(frame), HasSubstr("datatype 14"));
  frame = written(request());
  put<uint8_t>(frame, kFirst + offsetof(BusTensorHead, rank), 9);
  EXPECT_THAT(why_refused(frame), HasSubstr("rank 9"));
  frame = written(request());
  put<uint8_t>(frame, kFirst + offsetof(BusTensorHead, reserved0), 1);
  EXPECT_THAT(why_refused(frame), HasSubstr("reserved 1"));
  frame = written(request());
  put<int64_t>(frame, kDimensions, -1);
  EXPECT_THAT(why_refused(frame), HasSubstr("dimension -1"));
}

TEST_F(BusInfer, ListsThatDoNotFitTheMemoryAreRefused) {
  const std::vector<std::byte> frame = written(request());
  test::HeapMemory small(8);
  EXPECT_EQ(parse_bus_request(frame, small).status().code(), Code::kTooLarge);
}

TEST_F(BusInfer, ARequestThatNoFrameCanHoldHasNoSize) {
  const std::string long_name(size_t{UINT16_MAX} + 1, 'm');
  BusRequest sent = request();
  sent.model = long_name;
  EXPECT_EQ(frame_bytes(sent), std::nullopt);
  std::vector<BusTensor> many(limits::kMaxTensors);
  for (BusTensor& one : many) one.name = std::string_view(long_name).substr(0, 128);
  sent = request();
  sent.inputs = many;
  EXPECT_EQ(frame_bytes(sent), std::nullopt) << "longer than a server reads";
  many.assign(limits::kMaxTensors + 1, {});
  sent.inputs = many;
  EXPECT_EQ(frame_bytes(sent), std::nullopt);
}

TEST_F(BusInfer, SaysTheWishesForTheCache) {
  BusRequest wanted = request();
  const Result<BusRequest> plain = parse_bus_request(written(wanted), memory);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->no_cache);
  EXPECT_FALSE(plain->ttl_ms);
  wanted.no_cache = true;
  wanted.ttl_ms = 77;
  const std::vector<std::byte> frame = written(wanted);
  const Result<BusRequest> parsed = parse_bus_request(frame, memory);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_TRUE(parsed->no_cache);
  EXPECT_EQ(parsed->ttl_ms, 77u);
  EXPECT_EQ(parsed->timeout_us, 5000u);
  ASSERT_EQ(parsed->inputs.size(), wanted.inputs.size());
  expect_equal(parsed->inputs[0], wanted.inputs[0]);
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    EXPECT_NE(why_refused({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes)}), "");
  }
  wanted.ttl_ms = 0;
  EXPECT_THAT(why_refused(written(wanted)), HasSubstr("ttl_ms is 0; wanted 1 or more"));
}

TEST_F(BusInfer, SaysTheSequence) {
  BusRequest wanted = request();
  EXPECT_FALSE(parse_bus_request(written(wanted), memory)->sequence.is_said());
  wanted.ttl_ms = 77;
  wanted.sequence = {.number = UINT64_MAX, .text = {}, .starts = true, .ends = false};
  const std::vector<std::byte> frame = written(wanted);
  const Result<BusRequest> parsed = parse_bus_request(frame, memory);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->sequence.number, UINT64_MAX);
  EXPECT_TRUE(parsed->sequence.starts);
  EXPECT_FALSE(parsed->sequence.ends);
  EXPECT_EQ(parsed->ttl_ms, 77u);
  expect_equal(parsed->inputs[0], wanted.inputs[0]);
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    EXPECT_NE(why_refused({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(bytes)}), "");
  }
  wanted.sequence = {.number = 5, .text = {}, .starts = false, .ends = true};
  EXPECT_TRUE(parse_bus_request(written(wanted), memory)->sequence.ends);
  std::vector<std::byte> zero = written(wanted);
  // Behind the head and ttl_ms.
  std::memset(zero.data() + sizeof(BusRequestHead) + sizeof(uint64_t), 0, sizeof(uint64_t));
  EXPECT_THAT(why_refused(zero), HasSubstr("the sequence is 0; wanted a number of 1 or more"));
}

TEST_F(BusInfer, SaysThePriority) {
  BusRequest wanted = request();
  EXPECT_EQ(parse_bus_request(written(wanted), memory)->priority, 0u) << "the model's own";
  for (const auto& [sent, taken] : {std::pair{1u, 1u}, {15u, 15u}, {16u, 15u}, {UINT32_MAX, 15u}}) {
    wanted.priority = sent;
    const std::vector<std::byte> frame = written(wanted);
    const Result<BusRequest> parsed = parse_bus_request(frame, memory);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->priority, taken) << sent;
    EXPECT_EQ(parsed->timeout_us, 5000u);
  }
}

}  // namespace
}  // namespace lumen::wire
