// Status and Result: messages that never overrun, values that move.
#include <lumen/base/result.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace lumen {
namespace {

TEST(Status, IsOkUntilItIsAnError) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::kOk);
  EXPECT_EQ(ok.message(), "");
  const Status error = Status::error(Code::kNotFound, "no model '%s', version %d", "m", 3);
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_EQ(error.message(), "no model 'm', version 3");
}

TEST(Status, CutsAMessageThatIsTooLong) {
  const std::string text(2 * Status::kMaxMessage, 'a');
  const Status error = Status::error(Code::kInternal, "%s", text.c_str());
  EXPECT_EQ(error.message(), text.substr(0, Status::kMaxMessage - 1));
}

TEST(Status, AddsTheSystemsReason) {
  const Status error = Status::from_errno(ENOENT, "open '%s'", "/x");
  EXPECT_EQ(error.code(), Code::kInternal);
  EXPECT_EQ(error.message(), "open '/x': No such file or directory (errno 2)");
}

TEST(Status, CutsTheSystemsReasonWithTheRest) {
  for (size_t size = Status::kMaxMessage - 60; size < Status::kMaxMessage + 10; ++size) {
    const std::string text(size, 'a');
    const Status error = Status::from_errno(ENOENT, "%s", text.c_str());
    EXPECT_LT(error.message().size(), Status::kMaxMessage);
    EXPECT_EQ(error.message().find('\0'), std::string_view::npos);
  }
}

TEST(Status, IsToldWithItsPlace) {
  const Status status = Status::error(Code::kNotFound, "got 0").at("--io-threads");
  EXPECT_EQ("--io-threads: got 0", status.message());
  EXPECT_EQ(Code::kNotFound, status.code());
  EXPECT_TRUE(Status().at("x").ok());
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<int> value = 7;
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(static_cast<bool>(value));
  EXPECT_EQ(*value, 7);
  EXPECT_TRUE(value.status().ok());
  *value = 8;
  EXPECT_EQ(value.value(), 8);
  const Result<int> error = Status::error(Code::kTooLarge, "big");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), Code::kTooLarge);
  EXPECT_EQ(error.status().message(), "big");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

Status fails_at(int step, int& reached) {
  const auto check = [step](int i) {
    return i == step ? Status::error(Code::kInternal, "step %d", i) : Status();
  };
  LUMEN_RETURN_IF_ERROR(check(1));
  reached = 1;
  LUMEN_RETURN_IF_ERROR(check(2));
  reached = 2;
  return {};
}

TEST(ReturnIfError, LeavesAtTheFirstError) {
  int reached = 0;
  EXPECT_EQ(fails_at(2, reached).message(), "step 2");
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(fails_at(3, reached).ok());
  EXPECT_EQ(reached, 2);
}

}  // namespace
}  // namespace lumen
