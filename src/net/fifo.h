// Fifo: a first-in-first-out list of objects that carry their own link.
// Threads: one. Memory: none. Errors: none; an object is in the list at most once.
#pragma once

namespace lumen::net {

template <typename T, T* T::* kNext>
class Fifo {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] T* first() const noexcept { return first_; }
  [[nodiscard]] T* last() const noexcept { return last_; }
  void push(T& one) noexcept {
    one.*kNext = nullptr;
    (first_ == nullptr ? first_ : last_->*kNext) = &one;
    last_ = &one;
  }
  // Not empty.
  T& pop() noexcept {
    T& one = *first_;
    first_ = one.*kNext;
    if (first_ == nullptr) last_ = nullptr;
    return one;
  }
  // It is in the list. Walks to it.
  void remove(const T& one) noexcept {
    T* before = nullptr;
    for (T* at = first_; at != &one; at = at->*kNext) before = at;
    (before == nullptr ? first_ : before->*kNext) = one.*kNext;
    if (last_ == &one) last_ = before;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace lumen::net
