// The parts that tests of the connection share: a receive buffer that is fed in pieces, as a socket
// would.
// Threads: one. Memory: the heap. Errors: LUMEN_CHECK.
#pragma once

#include <lumen/base/check.h>
#include <lumen/memory/memory_budget.h>
#include <lumen/memory/request_memory.h>

#include "transports/http/receive_buffer.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::http {

// Calls `check` with `bytes` cut in two at each place, and once in single bytes.
template <typename Check>
void at_each_cut(std::string_view bytes, Check check) {
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    check(std::vector{bytes.substr(0, cut), bytes.substr(cut)});
  }
  std::vector<std::string_view> single;
  for (size_t i = 0; i < bytes.size(); ++i) single.push_back(bytes.substr(i, 1));
  check(single);
}

// Puts as much of `bytes` there as fits, as a receive does, and takes it off.
inline size_t receive(std::span<const iovec> segments, std::string_view& bytes) {
  size_t received = 0;
  for (const iovec& segment : segments) {
    const size_t piece = std::min(segment.iov_len, bytes.size());
    std::memcpy(segment.iov_base, bytes.data(), piece);
    bytes.remove_prefix(piece);
    received += piece;
  }
  return received;
}

class BufferOf {
 public:
  explicit BufferOf(size_t bytes) : memory_(bytes), buffer(memory_) {}

 private:
  std::vector<char> memory_;

 public:
  ReceiveBuffer buffer;
};

inline RequestMemory make_memory(size_t bytes = size_t{1} << 20) {
  return std::move(RequestMemory::create(bytes)).value();
}

}  // namespace lumen::http
