// RequestIds: the requests in the engine by their connection and the id that their client gave
// them, for cancels. An id that several requests have stands for all of them. Buckets are chosen by
// a hash with a secret, so that no client can put its ids into one.
// Threads: its I/O thread. Memory: the buckets, when it is made; requests are linked. Errors: none.
#pragma once

#include "transports/shm/request.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lumen::shm {

class RequestIds {
 public:
  // For so many requests at once.
  explicit RequestIds(size_t requests)
      : secret_((uint64_t{std::random_device()()} << 32) | std::random_device()()),
        buckets_(std::bit_ceil(2 * requests + 1)) {}

  void add(Request& request) noexcept {
    Request*& head = bucket_of(request.connection, request.id);
    request.previous_in_bucket = nullptr;
    request.next_in_bucket = head;
    if (head != nullptr) head->previous_in_bucket = &request;
    head = &request;
  }
  void remove(Request& request) noexcept {
    if (request.next_in_bucket != nullptr) {
      request.next_in_bucket->previous_in_bucket = request.previous_in_bucket;
    }
    if (request.previous_in_bucket != nullptr) {
      request.previous_in_bucket->next_in_bucket = request.next_in_bucket;
    } else {
      bucket_of(request.connection, request.id) = request.next_in_bucket;
    }
    request.previous_in_bucket = request.next_in_bucket = nullptr;
  }
  // `act(request)` for each; it may not remove one.
  template <typename Act>
  void for_each(const BusConnection& connection, uint64_t id, Act&& act) noexcept {
    for (Request* one = bucket_of(&connection, id); one != nullptr; one = one->next_in_bucket) {
      if (one->connection == &connection && one->id == id) act(*one);
    }
  }

 private:
  [[nodiscard]] Request*& bucket_of(const BusConnection* connection, uint64_t id) noexcept {
    // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    // generators, 2014).
    uint64_t mixed = id ^ secret_ ^ (reinterpret_cast<uintptr_t>(connection) >> 4);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return buckets_[(mixed ^ (mixed >> 31)) & (buckets_.size() - 1)];
  }

  const uint64_t secret_;
  std::vector<Request*> buckets_;
};

}  // namespace lumen::shm
