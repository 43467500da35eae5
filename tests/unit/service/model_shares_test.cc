// How an I/O thread's room for calls is shared out among models. One thread. Memory: the heap.
// Errors: by gtest.
#include <lumen/service/model_shares.h>

#include "support/bare_request.h"

#include <gtest/gtest.h>

namespace lumen::service {
namespace {

using models::bare_model;

constexpr size_t kBytes = 10;

class ModelSharesTest : public testing::Test {
 protected:
  // Begins calls of the model until it has its share; how many those were.
  size_t flood(uint32_t model) {
    size_t begun = 0;
    while (shares.has_free_call() && shares.may_begin(bare_model(model), free_bytes) &&
           free_bytes >= kBytes) {
      shares.begin(bare_model(model), kBytes);
      free_bytes -= kBytes;
      ++begun;
    }
    return begun;
  }

  ModelShares shares{100};
  size_t free_bytes = 1'000'000;
};

TEST_F(ModelSharesTest, AFloodOfOneModelLeavesAFifthOfTheCalls) {
  EXPECT_EQ(flood(0), 81u);
  EXPECT_FALSE(shares.may_begin(bare_model(0), free_bytes));
  EXPECT_TRUE(shares.may_begin(bare_model(1), free_bytes));
}

TEST_F(ModelSharesTest, AFloodOfTwoModelsLeavesRoomForAThird) {
  while (shares.may_begin(bare_model(0), free_bytes) ||
         shares.may_begin(bare_model(1), free_bytes)) {
    for (const uint32_t model : {0u, 1u}) {
      if (shares.may_begin(bare_model(model), free_bytes)) shares.begin(bare_model(model), kBytes);
    }
  }
  EXPECT_TRUE(shares.has_free_call());
  EXPECT_GE(flood(2), 5u);
}

TEST_F(ModelSharesTest, MemoryIsSharedOutAsCallsAre) {
  free_bytes = 500;
  EXPECT_EQ(flood(0), 41u);
  EXPECT_FALSE(shares.may_begin(bare_model(0), free_bytes));
  EXPECT_TRUE(shares.has_call_share(bare_model(0))) << "of calls there are enough";
  EXPECT_TRUE(shares.may_begin(bare_model(1), free_bytes));
  shares.give_back(bare_model(0), 41 * kBytes / 2);
  EXPECT_TRUE(shares.may_begin(bare_model(0), free_bytes)) << "the bodies were smaller than told";
}

TEST_F(ModelSharesTest, AModelThatHoldsNothingMayBegin) {
  (void)flood(0);
  EXPECT_TRUE(shares.may_begin(bare_model(1), 0)) << "the budget says whether there is room";
}

TEST_F(ModelSharesTest, ACallThatEndsIsFreeAgain) {
  const size_t begun = flood(0);
  for (size_t i = 0; i < begun; ++i) {
    shares.end(bare_model(0), kBytes);
    free_bytes += kBytes;
  }
  EXPECT_EQ(flood(1), begun);
}

TEST(ModelShares, TwoCallsMayBothBeOfOneModel) {
  ModelShares shares(2);
  shares.begin(bare_model(0), 0);
  EXPECT_TRUE(shares.may_begin(bare_model(0), 1));
}

}  // namespace
}  // namespace lumen::service
