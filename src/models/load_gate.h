// LoadGate: models are loaded side by side, and one is measured while no other is loaded.
// Threads: any. Memory: none. Errors: none; a thread waits until it may go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lumen::models {

class LoadGate {
 public:
  // A model that a thread loads.
  class Loading {
   public:
    explicit Loading(LoadGate& gate) : gate_(gate) { gate_.begin_loading(); }
    ~Loading() { gate_.end_loading(); }
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;

   private:
    friend class LoadGate;
    LoadGate& gate_;
  };

  // The thread of `model` measures: until its end no other thread loads or measures. It begins once
  // every other thread has loaded its model or waits to measure, too.
  class Measuring {
   public:
    explicit Measuring(Loading& model) : gate_(model.gate_) { gate_.begin_measuring(); }
    ~Measuring() { gate_.end_measuring(); }
    Measuring(const Measuring&) = delete;
    Measuring& operator=(const Measuring&) = delete;

   private:
    LoadGate& gate_;
  };

 private:
  void begin_loading() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_measuring_; });
    ++loading_;
  }
  void end_loading() {
    const std::lock_guard lock(mutex_);
    --loading_;
    changed_.notify_all();
  }
  void begin_measuring() {
    std::unique_lock lock(mutex_);
    --loading_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_measuring_ && loading_ == 0; });
    is_measuring_ = true;
  }
  void end_measuring() {
    const std::lock_guard lock(mutex_);
    is_measuring_ = false;
    ++loading_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t loading_ = 0;  // threads that load and do not wait to measure
  bool is_measuring_ = false;
};

}  // namespace lumen::models
