// A stream of the device: a thread that does its jobs one after the other. After a job that failed
// it leaves the others out, until somebody has waited for it and has got the error.
// Threads: any. Memory: the heap. Errors: the text of the first job that failed.
#pragma once

#include "device/library.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lumen::device {

class Stream final : public OrtSyncStreamImpl {
 public:
  using Job = std::function<const char*()>;  // its error, or nullptr

  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] static Stream* of(const OrtSyncStream* stream);

  uint64_t add(Job job);           // its number
  const char* wait(uint64_t job);  // for that job and all before it
  const char* wait_for_all();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  const char* error_ = nullptr;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lumen::device
