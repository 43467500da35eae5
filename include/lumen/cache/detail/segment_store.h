// SegmentStore: descriptors and regions for the segments of one table.
//
// From pages of its own a region is address space for the largest segment, of which pages are taken
// as they are touched, and chunks of regions are an eighth of the present ones. A pmr resource
// hands out memory, not address space: there a table's first segment begins with a small region and
// gets larger ones, and further segments have full ones (192 KiB).
//
// Threads: one at a time. Memory: as said; with kShared nothing is given back before the end, since
// readers may come late. Errors: std::bad_alloc, nothing changed.
#pragma once

#include <lumen/cache/detail/page_resource.h>
#include <lumen/cache/detail/segment.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <vector>

namespace lumen::cache {

template <typename GroupT, bool kShared>
class SegmentStore {
 public:
  using SegmentT = Segment<GroupT, kShared>;
  static constexpr uint32_t kMost = kMostGroups<GroupT>;
  static constexpr uint32_t kSmallRegion = 16;  // groups, where memory is a resource's
  static constexpr uint32_t kGroupsWorthACall = 2 * PageResource::kPage / sizeof(GroupT) + 1;
  static constexpr size_t kSlab = 32;  // descriptors made at once

  SegmentStore(std::pmr::memory_resource* memory, bool huge_pages, int numa_node)
      : own_pages_(memory == nullptr),
        huge_pages_(memory == nullptr && huge_pages),
        numa_node_(numa_node),
        pages_(memory == nullptr ? &page_resource() : memory),
        heap_(memory == nullptr ? std::pmr::new_delete_resource() : memory),
        chunks_(heap_),
        slabs_(heap_),
        free_regions_(heap_) {}
  ~SegmentStore() {
    for (const Chunk& chunk : chunks_) pages_->deallocate(chunk.data, chunk.bytes, kAlignment);
    for (SegmentT* slab : slabs_) {
      heap_->deallocate(slab, kSlab * sizeof(SegmentT), alignof(SegmentT));
    }
  }
  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;

  // A descriptor of nothing, its version odd.
  [[nodiscard]] SegmentT* take_segment() {
    if (free_segments_ == nullptr) add_slab();
    SegmentT* segment = free_segments_;
    free_segments_ = segment->next;
    ++segments_;
    return segment;
  }
  void give_back(SegmentT* segment) noexcept {
    --segments_;
    put_by(segment);
  }

  struct Region {
    GroupT* data;
    uint32_t capacity;
  };
  // For `groups` at least. `all`: for no more, as they are there to stay.
  [[nodiscard]] Region take_region(uint32_t groups, bool all = false) {
    if (all) return {carve(groups * sizeof(GroupT)), groups};
    if (!own_pages_ || groups > kMost) {
      const bool first = segments_ <= 1 && groups <= kMost;
      const uint32_t least = groups > kMost ? groups : first ? kSmallRegion : kMost;
      const uint32_t capacity = std::max(std::bit_ceil(groups), least);
      return {carve_alone(capacity * sizeof(GroupT)), capacity};
    }
    if (!free_regions_.empty()) {
      const Region region = {free_regions_.back(), kMost};
      free_regions_.pop_back();
      return region;
    }
    // So that giving one back never allocates.
    if (free_regions_.capacity() <= regions_) free_regions_.reserve(2 * regions_ + 8);
    ++regions_;
    return {carve(PageResource::rounded(kMost * sizeof(GroupT))), kMost};
  }
  // Its content is not needed. A region that cannot be used again is not unmapped: a reader may be
  // late.
  void give_back(const Region& region) noexcept {
    if (own_pages_) {
      release_from(region, 0);
      if (region.capacity == kMost) free_regions_.push_back(region.data);
    } else if constexpr (!kShared) {
      deallocate(region);
    }
  }
  // The groups from `groups` on are not needed for now.
  void release_from(const Region& region, uint32_t groups) noexcept {
    if (!own_pages_ || huge_pages_) return;
    auto* begin = reinterpret_cast<std::byte*>(region.data + groups);
    PageResource::release(begin, (region.capacity - groups) * sizeof(GroupT));
  }
  // The groups from `first` to `last` will be written now.
  void expect_writes(const Region& region, uint32_t first, uint32_t last) noexcept {
    if (!own_pages_ || last - first < kGroupsWorthACall) return;
    auto* begin = reinterpret_cast<std::byte*>(region.data + first);
    PageResource::expect_writes(begin, (last - first) * sizeof(GroupT));
  }
  // Where a segment's entries wait while it grows: one for all, as large as was needed so far.
  [[nodiscard]] GroupT* scratch(uint32_t groups) {
    if (scratch_.capacity < groups) {
      const Region larger = take_region(groups);
      if (scratch_.data != nullptr) give_back(scratch_);
      scratch_ = larger;
    }
    return scratch_.data;
  }

  [[nodiscard]] size_t bytes_mapped() const noexcept {
    return mapped_ + slabs_.size() * kSlab * sizeof(SegmentT);
  }
  // Whether a page of a region is there only once it is touched.
  [[nodiscard]] bool has_own_pages() const noexcept { return own_pages_; }
  [[nodiscard]] size_t segments() const noexcept { return segments_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Chunk {
    std::byte* data;
    size_t bytes;
  };

  void put_by(SegmentT* segment) noexcept {
    segment->next = free_segments_;
    free_segments_ = segment;
  }
  void add_slab() {
    slabs_.reserve(slabs_.size() + 1);
    auto* slab =
        static_cast<SegmentT*>(heap_->allocate(kSlab * sizeof(SegmentT), alignof(SegmentT)));
    slabs_.push_back(slab);
    for (size_t i = 0; i < kSlab; ++i) put_by(::new (static_cast<void*>(slab + i)) SegmentT());
  }
  void add_chunk(size_t bytes) {
    chunks_.reserve(chunks_.size() + 1);
    auto* data = static_cast<std::byte*>(pages_->allocate(bytes, kAlignment));
    if (huge_pages_) ::madvise(data, bytes, MADV_HUGEPAGE);
    if (own_pages_ && numa_node_ >= 0) PageResource::prefer_node(data, bytes, numa_node_);
    chunks_.push_back({data, bytes});
    mapped_ += bytes;
    next_ = data;
    end_ = data + bytes;
  }
  [[nodiscard]] GroupT* carve(size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (static_cast<size_t>(end_ - next_) < size) {
      add_chunk(std::max(size, own_pages_ ? mapped_ / 8 / size * size : 0));
    }
    std::byte* data = next_;
    next_ += size;
    return reinterpret_cast<GroupT*>(data);
  }
  // A chunk of its own, which can be given back.
  [[nodiscard]] GroupT* carve_alone(size_t bytes) {
    std::byte* next = next_;
    std::byte* end = end_;
    add_chunk(bytes);
    std::byte* data = chunks_.back().data;
    next_ = next;
    end_ = end;
    return reinterpret_cast<GroupT*>(data);
  }
  void deallocate(const Region& region) noexcept {
    const auto found = std::find_if(chunks_.begin(), chunks_.end(), [&](const Chunk& chunk) {
      return chunk.data == reinterpret_cast<std::byte*>(region.data);
    });
    pages_->deallocate(found->data, found->bytes, kAlignment);
    mapped_ -= found->bytes;
    *found = chunks_.back();
    chunks_.pop_back();
  }

  const bool own_pages_;
  const bool huge_pages_;
  const int numa_node_;
  std::pmr::memory_resource* pages_;
  std::pmr::memory_resource* heap_;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  size_t mapped_ = 0;
  size_t segments_ = 0;
  size_t regions_ = 0;
  Region scratch_{nullptr, 0};
  SegmentT* free_segments_ = nullptr;
  std::pmr::vector<Chunk> chunks_;
  std::pmr::vector<SegmentT*> slabs_;
  std::pmr::vector<GroupT*> free_regions_;
};

}  // namespace lumen::cache
