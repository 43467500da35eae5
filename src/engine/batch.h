// Batch: several requests for one model, packed along the first axis into one, and its results
// split again. Any backend runs it as a request like another; the copy in between is small where
// packing pays at all (16 rows of 1 KiB: 0.3 us, against 3 us saved a row).
// Threads: one at a time, as its worker; split() may run on a backend's thread.
// Memory: the batch's own region or heap; the outputs of each request lie in that request's memory.
// Errors: pack() is false when the memory does not suffice; a failed run is each request's status.
#pragma once

#include <lumen/memory/request_memory.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lumen::engine {

// Same inputs but for the number of rows, and neither is to run alone.
[[nodiscard]] bool can_share_call(const models::InferRequest& a,
                                  const models::InferRequest& b) noexcept;

class Batch {
 public:
  [[nodiscard]] static Result<Batch> create(uint32_t max_requests, size_t memory_bytes,
                                            RequestMemory::Kind kind,
                                            const RegionOptions& regions = {});

  // `run_rows` >= the rows of all members together; the rest is zeros.
  [[nodiscard]] bool pack(std::span<models::InferRequest* const> members,
                          uint32_t run_rows) noexcept;
  // Gives every member its rows of the outputs, its status and its times.
  void split() noexcept;
  // Forgets the members.
  RequestMemory::Usage reset() noexcept;

  [[nodiscard]] models::InferRequest& request() noexcept { return request_; }
  // Of all members together, without those that fill the run up.
  [[nodiscard]] uint64_t rows() const noexcept;
  [[nodiscard]] std::span<models::InferRequest* const> members() const noexcept { return members_; }

 private:
  Batch() = default;
  [[nodiscard]] Status split_into(models::InferRequest& member, uint64_t first_row) noexcept;

  RequestMemory memory_;
  models::InferRequest request_;
  std::vector<TensorView> inputs_;
  std::vector<models::InferRequest*> members_;
  uint32_t run_rows_ = 0;
};

}  // namespace lumen::engine
