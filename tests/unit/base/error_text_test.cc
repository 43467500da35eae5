// ErrorText: long messages in slots that copies share and the last one gives back.
#include <lumen/base/error_text.h>
#include <lumen/base/result.h>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lumen {
namespace {

std::string long_text(int number) {
  return "message " + std::to_string(number) + std::string(90, 'x');
}
Status long_error(int number) {
  return Status::error(Code::kTooLarge, "%s", long_text(number).c_str());
}

TEST(ErrorText, CopiesShareASlotAndTheLastOneGivesItBack) {
  const size_t before = ErrorText::in_use();
  {
    const Status first = long_error(1);
    EXPECT_EQ(before + 1, ErrorText::in_use());
    Status copy = first;
    EXPECT_EQ(first.message().data(), copy.message().data());
    const Status moved = std::move(copy);
    EXPECT_EQ(long_text(1), moved.message());
    EXPECT_EQ(before + 1, ErrorText::in_use());
  }
  EXPECT_EQ(before, ErrorText::in_use());
}

// A reply to one client once had the end of another's error behind its own.
TEST(ErrorText, AShorterMessageDoesNotEndInTheOneBeforeIt) {
  constexpr size_t kLengths[] = {400, 100, 60, 54, 53, 52, 1, 0};
  for (const size_t size : kLengths) {
    const std::string text(size, 'x');
    Status status = Status::error(Code::kInternal, "%s", std::string(450, 'o').c_str());
    status = {};
    status = Status::error(Code::kInternal, "%s", text.c_str());
    EXPECT_EQ(text, status.c_message());
    EXPECT_EQ(text, status.message());
    const Status copy = status;
    EXPECT_EQ(text, copy.c_message());
  }
  EXPECT_STREQ("", Status().c_message());
  EXPECT_STREQ(std::string(Status::kMaxMessage - 1, 'y').c_str(),
               Status::error(Code::kInternal, "%s", std::string(600, 'y').c_str()).c_message());
}

TEST(ErrorText, AShortMessageTakesNoSlot) {
  const size_t before = ErrorText::in_use();
  const Status status = Status::error(Code::kNotFound, "no model 'm'");
  Status copy;
  copy = status;
  EXPECT_EQ("no model 'm'", copy.message());
  EXPECT_EQ(before, ErrorText::in_use());
}

TEST(ErrorText, AnAssignedStatusGivesItsOldMessageBack) {
  const size_t before = ErrorText::in_use();
  Status status = long_error(1);
  status = long_error(2);
  EXPECT_EQ(long_text(2), status.message());
  EXPECT_EQ(before + 1, ErrorText::in_use());
  const Status& itself = status;
  status = itself;
  EXPECT_EQ(long_text(2), status.message());
  Status other = long_error(3);
  other = std::move(status);
  EXPECT_EQ(long_text(2), other.message());
  EXPECT_EQ(before + 1, ErrorText::in_use());
  other = {};
  EXPECT_EQ(before, ErrorText::in_use());
}

TEST(ErrorText, AResultKeepsItsErrorsMessage) {
  const size_t before = ErrorText::in_use();
  {
    Result<std::string> result = long_error(1);
    const Status taken = result.status();
    result = std::string("a value");
    EXPECT_EQ(long_text(1), taken.message());
    EXPECT_EQ("a value", *result);
  }
  EXPECT_EQ(before, ErrorText::in_use());
}

TEST(ErrorText, WithoutASlotTheBeginningOfAMessageIsKept) {
  const size_t before = ErrorText::in_use();
  {
    std::vector<Status> held;
    held.reserve(2 * ErrorText::kSlots);
    for (size_t i = 0; i < 2 * ErrorText::kSlots; ++i)
      held.push_back(long_error(static_cast<int>(i)));
    EXPECT_EQ(ErrorText::kSlots, ErrorText::in_use());
    size_t whole = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      const std::string wanted = long_text(static_cast<int>(i));
      EXPECT_EQ(wanted.substr(0, held[i].message().size()), held[i].message());
      EXPECT_EQ(Code::kTooLarge, held[i].code());
      EXPECT_GE(held[i].message().size(), 50u);
      whole += held[i].message() == wanted ? 1 : 0;
    }
    EXPECT_EQ(ErrorText::kSlots - before, whole);
  }
  EXPECT_EQ(before, ErrorText::in_use());
  EXPECT_EQ(long_text(7), long_error(7).message());
}

}  // namespace
}  // namespace lumen
