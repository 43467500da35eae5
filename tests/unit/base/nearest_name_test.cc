// nearest_name: typing mistakes, and words that are something else.
#include <lumen/base/nearest_name.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen {
namespace {

constexpr std::array<std::string_view, 4> kValid = {"queue_type", "allocator_type", "thread_count",
                                                    "on"};

TEST(NearestName, FindsATypingMistake) {
  EXPECT_EQ(nearest_name("que_type", kValid), "queue_type");
  EXPECT_EQ(nearest_name("threadcount", kValid), "thread_count");
  EXPECT_EQ(nearest_name("om", kValid), "on");
}

TEST(NearestName, FindsNothingForAnotherWord) {
  EXPECT_EQ(nearest_name("banana", kValid), "");
  EXPECT_EQ(nearest_name("", kValid), "");
  EXPECT_EQ(nearest_name(std::string(5'000, 'q'), kValid), "");
}

TEST(NearestName, ForgivesTwoLettersInTheWrongOrder) {
  constexpr std::array<std::string_view, 3> kShort = {"mpmc", "spsc", "text"};
  EXPECT_EQ(nearest_name("mpcm", kShort), "mpmc");
  EXPECT_EQ(nearest_name("tetx", kShort), "text");
}

TEST(EditDistance, CountsASwapOfNeighboursAsOne) {
  EXPECT_EQ(edit_distance("ab", "ba", 9), 1u);
  EXPECT_EQ(edit_distance("abcd", "badc", 9), 2u);
  EXPECT_EQ(edit_distance("abc", "cba", 9), 2u);  // no neighbours
}

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 9), 3u);
  EXPECT_EQ(edit_distance("", "abc", 9), 3u);
  EXPECT_EQ(edit_distance("abc", "abc", 9), 0u);
  EXPECT_EQ(edit_distance("abc", "xyz", 1), 2u);  // above the limit: limit + 1
}

}  // namespace
}  // namespace lumen
