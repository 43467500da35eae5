// The region of stored answers: blocks never overlap, and freed ones can be given out again as one.
#include "answers/block_region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace lumen::answers {
namespace {

BlockRegion make_region(size_t bytes) { return std::move(BlockRegion::create(bytes)).value(); }

TEST(BlockRegion, GivesOutAllOfItAsOneBlockAndTakesItBack) {
  BlockRegion region = make_region(65536);
  EXPECT_EQ(region.units(), 1024u);
  const std::optional<uint32_t> all = region.allocate(1024);
  ASSERT_TRUE(all);
  EXPECT_EQ(region.free_units(), 0u);
  EXPECT_FALSE(region.allocate(1));
  region.free(*all);
  EXPECT_EQ(region.free_units(), 1024u);
  EXPECT_TRUE(region.allocate(1024));
}

TEST(BlockRegion, JoinsNeighboursFreedInAnyOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    BlockRegion region = make_region(65536);
    std::vector<uint32_t> blocks;
    blocks.reserve(4);
    for (int i = 0; i < 4; ++i) blocks.push_back(region.allocate(256).value());
    for (const int i : order) region.free(blocks[static_cast<size_t>(i)]);
    EXPECT_TRUE(region.allocate(1024)) << order[0] << order[1] << order[2] << order[3];
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(BlockRegion, NeedsAUnitMoreWhereItsHeaderDoesNotFit) {
  EXPECT_EQ(BlockRegion::units_for(0), 1u);
  EXPECT_EQ(BlockRegion::units_for(48), 1u);
  EXPECT_EQ(BlockRegion::units_for(49), 2u);
}

// Against a map of the blocks that are out, each filled with its own byte.
TEST(BlockRegion, BlocksNeverOverlapAndNothingIsLost) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    BlockRegion region = make_region(size_t{1} << 20);
    std::map<uint32_t, uint32_t> given;  // begin, units
    uint32_t used = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random() % 2 == 0 || given.empty()) {
        const auto units = static_cast<uint32_t>(1 + random() % (random() % 8 == 0 ? 4000 : 60));
        const std::optional<uint32_t> block = region.allocate(units);
        if (!block) continue;
        const auto after = given.lower_bound(*block);
        ASSERT_TRUE(after == given.end() || *block + units <= after->first) << "seed " << seed;
        if (after != given.begin()) {
          const auto before = std::prev(after);
          ASSERT_LE(before->first + before->second, *block) << "seed " << seed;
        }
        ASSERT_LE(*block + units, region.units());
        given[*block] = units;
        used += units;
        std::memset(region.data(*block), static_cast<int>(*block % 251),
                    units * BlockRegion::kUnitBytes - BlockRegion::kHeaderBytes);
      } else {
        auto one = given.begin();
        std::advance(one, static_cast<ptrdiff_t>(random() % given.size()));
        const auto* data = reinterpret_cast<const unsigned char*>(region.data(one->first));
        ASSERT_EQ(data[0], one->first % 251);
        ASSERT_EQ(data[one->second * 64 - 17], one->first % 251);
        region.free(one->first);
        used -= one->second;
        given.erase(one);
      }
      ASSERT_EQ(region.free_units(), region.units() - used) << "seed " << seed;
    }
    for (const auto& [block, units] : given) region.free(block);
    ASSERT_TRUE(region.allocate(region.units())) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lumen::answers
