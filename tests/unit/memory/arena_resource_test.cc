// ArenaResource under containers of the standard library.
// One thread. Memory: one arena. Errors: by gtest.
#include <lumen/memory/arena_resource.h>

#include <gtest/gtest.h>

#include <memory_resource>
#include <string>
#include <vector>

namespace lumen {
namespace {

TEST(ArenaResource, ContainersLiveInTheArena) {
  Arena arena = Arena::create_growing(4096, 1024 * 1024).value();
  ArenaResource resource(arena);
  std::pmr::vector<std::pmr::string> words(&resource);
  for (int i = 0; i < 500; ++i) words.emplace_back("a word that is too long for the small buffer");
  EXPECT_TRUE(arena.owns(words.data()));
  EXPECT_TRUE(arena.owns(words.back().data()));
}

TEST(ArenaResource, ThrowsBadAllocAtTheCap) {
  Arena arena = Arena::create(4096).value();
  ArenaResource resource(arena);
  EXPECT_THROW((void)resource.allocate(4097), std::bad_alloc);
  EXPECT_NE(resource.allocate(64), nullptr);
}

TEST(ArenaResource, IsEqualToAnotherOfTheSameArenaOnly) {
  Arena arena = Arena::create(4096).value();
  Arena other = Arena::create(4096).value();
  EXPECT_EQ(ArenaResource(arena), ArenaResource(arena));
  EXPECT_NE(ArenaResource(arena), ArenaResource(other));
}

}  // namespace
}  // namespace lumen
