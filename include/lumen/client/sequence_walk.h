// SequenceWalk: the sequences of one client of `lumen bench --sequence-length`, one after another.
// SequencePlaces: where a request names its sequence, to be written over for each.
// Threads: one. Memory: none. Errors: never.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::client {

// A request's place in its sequence.
struct SequencePlace {
  // Nine digits, of 29 bits or more: its text has one length, and so has its varint of protobuf. A
  // model may take it as a number of 32 bits.
  static constexpr uint32_t kLeastId = uint32_t{1} << 28;
  static constexpr uint32_t kMostId = 999'999'999;
  uint32_t id = kLeastId;
  bool starts = true;
  bool ends = true;
};

class SequenceWalk {
 public:
  // Of `length` requests each. Walks with different `index` below `walks` never share an id, until
  // all ids have been taken once; `first`: any number, of the whole run.
  SequenceWalk(uint32_t length, uint64_t first, uint64_t index, uint64_t walks) noexcept
      : length_(length), offset_(first + index), walks_(walks) {}

  [[nodiscard]] SequencePlace next() noexcept {
    constexpr uint64_t kIds = SequencePlace::kMostId - SequencePlace::kLeastId + 1;
    SequencePlace place{.id = SequencePlace::kLeastId + static_cast<uint32_t>(offset_ % kIds),
                        .starts = at_ == 0,
                        .ends = ++at_ == length_};
    if (place.ends) begin_another();
    return place;
  }
  // After a request that was not answered: the server may have lost the sequence.
  void begin_another() noexcept {
    at_ = 0;
    offset_ += walks_;
  }

 private:
  uint32_t length_;
  uint32_t at_ = 0;
  uint64_t offset_;
  uint64_t walks_;
};

struct SequencePlaces {
  size_t id = 0;  // in the request
  size_t starts = 0;
  size_t ends = 0;
  bool is_grpc = false;

  void write(const SequencePlace& place, char* request) const noexcept;
};

}  // namespace lumen::client
