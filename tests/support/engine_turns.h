// EngineTurns: an I/O thread in small, for tests: a real loop whose turns end in a submitter's
// end_turn(), and places where a test can hold a thread.
// Threads: run() on its own; wake() from any; the rest is the test's. Memory: the heap.
// Errors: LUMEN_CHECK where a loop can't be made.
#pragma once

#include <lumen/base/check.h>
#include <lumen/engine/engine.h>
#include <lumen/net/loop.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace lumen::engine {

// Closed, it holds each thread that passes.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_closed_ = false;
    changed_.notify_all();
  }
  // One that is held now; the gate stays closed. Returns when it has gone.
  void let_one_pass() {
    std::unique_lock lock(mutex_);
    ++passes_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return passes_ == 0; });
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!is_closed_) return;
    ++held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_closed_ || passes_ > 0; });
    --held_;
    if (passes_ > 0) --passes_;
    changed_.notify_all();
  }
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  int held_ = 0;
  int passes_ = 0;
};

// Calls `after` when it is woken, and counts.
struct TestSink final : models::CompletionSink {
  std::function<void()> after = [] {};
  std::atomic<int> wakes{0};
  void wake() noexcept override {
    after();
    wakes.fetch_add(1);
    wakes.notify_all();
  }
  void wait_for(int count) const {
    for (int seen = wakes.load(); seen < count; seen = wakes.load()) wakes.wait(seen);
  }
};

class EngineTurns final : public net::WakeHandler {
 public:
  explicit EngineTurns(Submitter& submitter) : submitter_(submitter) {
    auto loop = net::make_epoll_loop(*this);
    LUMEN_CHECK(loop.ok());
    loop_ = std::move(*loop);
    wake_sink.after = [this] { loop_->wake(); };
    submitter_.set_wake_sink(wake_sink);
  }
  ~EngineTurns() { leave(); }
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  // On the loop's thread, in its next turn.
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      task_ = std::move(task);
    }
    loop_->wake();
  }
  // Returns when the thread is gone. The sinks go after the engine, whose callbacks may still wake
  // them.
  void leave() {
    if (!thread_.joinable()) return;
    post([this] { leaves_ = true; });
    thread_.join();
  }
  TestSink wake_sink;
  Gate before_sleep;  // passed between the end of a turn and the sleep

 private:
  size_t on_wake() noexcept override {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      task = std::exchange(task_, nullptr);
    }
    if (!task) return 0;
    task();
    return 1;
  }
  size_t on_turn_end() noexcept override {
    size_t done = 0;
    while (const size_t now_done = submitter_.end_turn()) done += now_done;
    before_sleep.pass();
    return done;
  }
  void run() {
    while (!leaves_) loop_->run_once(UINT64_MAX);
    submitter_.close();
  }

  Submitter& submitter_;
  std::unique_ptr<net::Loop> loop_;
  std::mutex mutex_;
  std::function<void()> task_;
  bool leaves_ = false;
  std::thread thread_;
};

}  // namespace lumen::engine
