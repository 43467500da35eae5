// The transports of every system, as those of two_processes.h: a pipe, a unix socket, and boost's
// message queue in shared memory. They block; pipe and socket carry as many messages a call as the
// bus publishes at once.
// Threads: one a process. Memory: fixed buffers. Errors: exit 2 with a reason.
#pragma once

#include "two_processes.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>

#if __has_include(<boost/interprocess/ipc/message_queue.hpp>)
#include <boost/interprocess/ipc/message_queue.hpp>
#define LUMEN_BENCH_BOOST_QUEUE
#endif

namespace lumen::bench {

// Over descriptors, message after message, all of one size.
class StreamEnd {
 public:
  StreamEnd(int out, int in, size_t size) : out_(out), in_(in), size_(size) {}

  template <typename Fill>
  void send(size_t size, Fill&& fill) {
    fill(outgoing_.data() + filled_);
    filled_ += size;
    if (filled_ == 32 * size) flush();
  }
  void flush() {
    size_t done = 0;
    while (done < filled_) {
      const ssize_t sent = ::write(out_, outgoing_.data() + done, filled_ - done);
      if (sent <= 0) give_up("write");
      done += static_cast<size_t>(sent);
    }
    filled_ = 0;
  }
  template <typename Use>
  size_t receive(Use&& use) {
    const ssize_t got = ::read(in_, incoming_.data() + partial_, incoming_.size() - partial_);
    if (got <= 0) give_up("read");
    const size_t there = partial_ + static_cast<size_t>(got);
    size_t at = 0;
    for (; at + size_ <= there; at += size_) use(incoming_.data() + at);
    partial_ = there - at;
    std::memmove(incoming_.data(), incoming_.data() + at, partial_);
    return at / size_;
  }
  void give_back() {}

 private:
  int out_;
  int in_;
  size_t size_;
  size_t filled_ = 0;
  size_t partial_ = 0;
  std::array<std::byte, 64 * 1024> outgoing_;
  std::array<std::byte, 256 * 1024> incoming_;
};

class PipeTransport {
 public:
  explicit PipeTransport(size_t size) : size_(size) {
    for (auto& ends : {there_.data(), back_.data()}) {
      if (::pipe(ends) != 0) give_up("pipe");
      (void)::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    }
  }
  [[nodiscard]] StreamEnd open(Side side) const {
    return side == Side::kProducer ? StreamEnd(there_[1], back_[0], size_)
                                   : StreamEnd(back_[1], there_[0], size_);
  }

 private:
  size_t size_;
  std::array<int, 2> there_{};
  std::array<int, 2> back_{};
};

class SocketTransport {
 public:
  explicit SocketTransport(size_t size) : size_(size) {
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()) != 0) give_up("socketpair");
    const int bytes = 1 << 20;
    for (const int end : ends_) {
      (void)::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
  }
  [[nodiscard]] StreamEnd open(Side side) const {
    const int end = ends_[side == Side::kProducer ? 0 : 1];
    return {end, end, size_};
  }

 private:
  size_t size_;
  std::array<int, 2> ends_{};
};

#ifdef LUMEN_BENCH_BOOST_QUEUE
// One way alone: it has no batches, and parks by a lock in shared memory.
class BoostEnd {
 public:
  BoostEnd(const std::string& name, size_t size)
      : queue_(boost::interprocess::open_only, name.c_str()), size_(size) {}

  template <typename Fill>
  void send(size_t size, Fill&& fill) {
    fill(buffer_.data());
    queue_.send(buffer_.data(), size, 0);
  }
  void flush() {}
  template <typename Use>
  size_t receive(Use&& use) {
    boost::interprocess::message_queue::size_type got = 0;
    unsigned priority = 0;
    queue_.receive(buffer_.data(), size_, got, priority);
    use(buffer_.data());
    return 1;
  }
  void give_back() {}

 private:
  boost::interprocess::message_queue queue_;
  size_t size_;
  std::array<std::byte, 1024> buffer_;
};

class BoostTransport {
 public:
  BoostTransport(std::string name, size_t size)
      : name_(std::move(name)),
        size_(size),
        queue_(boost::interprocess::create_only, name_.c_str(), 1024, size) {}
  ~BoostTransport() { boost::interprocess::message_queue::remove(name_.c_str()); }
  [[nodiscard]] BoostEnd open(Side) const { return {name_, size_}; }

 private:
  std::string name_;
  size_t size_;
  boost::interprocess::message_queue queue_;
};
#endif

}  // namespace lumen::bench
