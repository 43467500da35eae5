// Mapping: its memory, and that wishes the machine cannot grant are not errors.
// One thread. Memory: mappings of a few MiB. Errors: by gtest.
#include <lumen/memory/mapping.h>

#include <sys/mman.h>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace lumen {
namespace {

TEST(Mapping, RoundsUpToWholePagesOfZeroes) {
  Result<Mapping> mapping = Mapping::create(kPageBytes + 1);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->size(), 2 * kPageBytes);
  for (const std::byte b : mapping->bytes()) ASSERT_EQ(b, std::byte{0});
}

TEST(Mapping, AsksForAtLeastOnePage) {
  Result<Mapping> mapping = Mapping::create(0);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->size(), kPageBytes);
}

TEST(Mapping, RefusesMoreThanTheAddressSpace) {
  EXPECT_EQ(Mapping::create(SIZE_MAX - 10).status().code(), Code::kTooLarge);
  EXPECT_EQ(Mapping::create(size_t{1} << 62).status().code(), Code::kInternal);
}

TEST(Mapping, AlignsToTwoMebibytesForHugePages) {
  Result<Mapping> mapping = Mapping::create(3 * kHugePageBytes, {.huge_pages = true});
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->data()) % kHugePageBytes, 0u);
  std::memset(mapping->data(), 1, mapping->size());
}

TEST(Mapping, PrefaultMakesEveryPageResident) {
  constexpr size_t kPages = 64;
  Result<Mapping> mapping = Mapping::create(kPages * kPageBytes, {.prefault = true});
  ASSERT_TRUE(mapping.ok());
  std::vector<unsigned char> resident(kPages);
  ASSERT_EQ(::mincore(mapping->data(), mapping->size(), resident.data()), 0);
  for (const unsigned char page : resident) EXPECT_EQ(page & 1, 1);
}

TEST(Mapping, ANodeThatDoesNotExistIsReportedAndNotAnError) {
  for (const int node : {0, 1000, 5000, -1}) {
    Result<Mapping> mapping = Mapping::create(kPageBytes, {.prefault = true, .numa_node = node});
    ASSERT_TRUE(mapping.ok()) << node;
    mapping->data()[0] = std::byte{1};
    EXPECT_TRUE(node == 0 || !mapping->numa_bound()) << node;
  }
}

TEST(Mapping, ReleasedPagesReadAsZeroAndTheOnesBeforeStay) {
  Result<Mapping> mapping = Mapping::create(4 * kPageBytes);
  ASSERT_TRUE(mapping.ok());
  std::memset(mapping->data(), 7, mapping->size());
  mapping->release_pages_from(kPageBytes + 1);
  EXPECT_EQ(mapping->data()[2 * kPageBytes - 1], std::byte{7});
  EXPECT_EQ(mapping->data()[2 * kPageBytes], std::byte{0});
}

TEST(Mapping, AMoveLeavesNothingBehind) {
  Result<Mapping> first = Mapping::create(kPageBytes);
  ASSERT_TRUE(first.ok());
  std::byte* data = first->data();
  Mapping second = std::move(*first);
  EXPECT_EQ(first->data(), nullptr);
  EXPECT_EQ(second.data(), data);
  Mapping third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

}  // namespace
}  // namespace lumen
