// SerialInbox: does tasks one at a time and in order, on the threads that bring them. A thread that
// finds nobody at work does its own task and all that come meanwhile; others leave theirs and go
// on, so that no thread waits for another.
//
//   newest_   nullptr   nobody is at work
//             busy()    a thread is at work, and has taken all tasks
//             a task    a thread is at work, and this is the newest of those that it has still to
//                       take, linked by `next`
//
// Threads: any. Memory: none, tasks are linked; a task is the inbox's until it is done. Errors:
// none. tests/spin/serial_inbox.pml models it.
#pragma once

#include <atomic>
#include <utility>

namespace lumen::sequences {

// `Task` has a pointer `next`.
template <typename Task>
class SerialInbox {
 public:
  SerialInbox() noexcept = default;
  SerialInbox(const SerialInbox&) = delete;
  SerialInbox& operator=(const SerialInbox&) = delete;

  // `work(task)` for each, here or by the thread that is at work. It may bring further tasks.
  template <typename Work>
  void run(Task& task, Work&& work) noexcept {
    if (!leave(task)) return;
    do {
      for (Task* one = take(); one != nullptr;) {
        Task* const next = one->next;
        work(*one);
        one = next;
      }
    } while (!end());
  }

 private:
  // Whether this thread is the one that works.
  [[nodiscard]] bool leave(Task& task) noexcept {
    Task* newest = newest_.load(std::memory_order_relaxed);  // relaxed: the exchange looks again
    do {
      task.next = newest == busy() ? nullptr : newest;
      // sync[serial_inbox.tasks]: acquire and release; the task to the thread at work, and all that
      // was done before to the thread that begins
    } while (!newest_.compare_exchange_weak(newest, &task, std::memory_order_acq_rel,
                                            std::memory_order_relaxed));
    return newest == nullptr;
  }
  // The oldest first.
  [[nodiscard]] Task* take() noexcept {
    // sync[serial_inbox.tasks]: acquire; the tasks as they were left
    Task* newest = newest_.exchange(busy(), std::memory_order_acq_rel);
    Task* oldest = nullptr;
    while (newest != nullptr) {
      Task* const older = std::exchange(newest->next, oldest);
      oldest = std::exchange(newest, older);
    }
    return oldest;
  }
  // False: others have come.
  [[nodiscard]] bool end() noexcept {
    Task* expected = busy();
    // sync[serial_inbox.tasks]: release; all that was done, to the next thread that works
    return newest_.compare_exchange_strong(expected, nullptr, std::memory_order_release,
                                           std::memory_order_relaxed);
  }
  // An address that no task has.
  [[nodiscard]] Task* busy() noexcept { return reinterpret_cast<Task*>(this); }

  std::atomic<Task*> newest_{nullptr};
};

}  // namespace lumen::sequences
