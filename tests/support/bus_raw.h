// A process that speaks the bus's handshake by hand and then breaks its promises: it has the files
// mapped as the other side allows, and writes anything into them.
// Threads: one at a time; the shared words are atomic. Memory: control plane. Errors: gtest's.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/base/unix_socket.h>
#include <lumen/bus/layout.h>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bus/handshake.h"

namespace lumen::test {

// One message with any descriptors, as many as fit into a message of the kernel's.
inline bool send_raw(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {}) {
  std::vector<char> control(CMSG_SPACE(fds.size_bytes()));
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

template <typename T>
std::span<const std::byte> raw_bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

inline UniqueFd raw_connect(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(path);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0)
      << std::strerror(errno);
  return socket;
}

inline std::byte* map_raw(int fd, size_t bytes, int protection) {
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// One stream of a listener, as the process that connects has it: nothing of the library's own
// checks stands between.
class RawStream {
 public:
  RawStream(const std::string& path, bus::Role role) : socket_(raw_connect(path)) {
    bus::Hello hello;
    hello.role = static_cast<uint32_t>(role);
    EXPECT_TRUE(send_raw(socket_.get(), raw_bytes(hello)));
    bus::Patience for_ever(UINT64_MAX);
    auto received = bus::receive_welcome(socket_.get(), for_ever);
    EXPECT_TRUE(received.ok()) << received.status().message();
    if (!received.ok()) return;
    EXPECT_EQ(received->welcome.answer, bus::Answer::kWelcome) << received->welcome.text.data();
    welcome_ = received->welcome;
    if (received->descriptor_count < 3) return;
    ring_file_ = std::move(received->descriptors[0]);
    cursor_file_ = std::move(received->descriptors[1]);
    bell_ = std::move(received->descriptors[2]);
    geometry_ = {welcome_.stream[0].capacity, welcome_.stream[0].slots};
    const bool publishes = role == bus::Role::kPublish || role == bus::Role::kBoth;
    const int writes = PROT_READ | PROT_WRITE;
    ring_ = map_raw(ring_file_.get(), geometry_.file_bytes(), publishes ? writes : PROT_READ);
    cursor_data_ =
        map_raw(cursor_file_.get(), sizeof(bus::CursorPage), publishes ? PROT_READ : writes);
    EXPECT_TRUE(ring_ != nullptr && cursor_data_ != nullptr);
  }
  ~RawStream() {
    if (ring_ != nullptr) ::munmap(ring_, geometry_.file_bytes());
    if (cursor_data_ != nullptr) ::munmap(cursor_data_, sizeof(bus::CursorPage));
  }
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  [[nodiscard]] bus::PublisherPage& page() { return *reinterpret_cast<bus::PublisherPage*>(ring_); }
  [[nodiscard]] bus::CursorPage& cursor() {
    return *reinterpret_cast<bus::CursorPage*>(cursor_data_);
  }
  [[nodiscard]] bus::Descriptor* descriptors() {
    return reinterpret_cast<bus::Descriptor*>(ring_ + geometry_.descriptors_offset());
  }
  [[nodiscard]] bus::SubscriberEntry& entry() {
    return page().subscribers[welcome_.stream[0].entry];
  }
  [[nodiscard]] const bus::Geometry& geometry() const { return geometry_; }
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] int ring_file() const { return ring_file_.get(); }
  [[nodiscard]] int cursor_file() const { return cursor_file_.get(); }
  [[nodiscard]] int bell() const { return bell_.get(); }
  [[nodiscard]] std::byte* ring() const { return ring_; }
  void close_bell() { bell_.reset(); }

  // A descriptor of `size` bytes, and a tail behind it.
  void publish(uint64_t frame, uint64_t size, uint64_t tail) {
    descriptors()[frame & (geometry_.slots - 1)].size_and_type.store(
        size | uint64_t{1} << 32, std::memory_order_relaxed);  // relaxed: before the tail
    page().tail_frames.store(tail, std::memory_order_seq_cst);
  }
  // A run of `count` frames, as its two descriptors say.
  void publish_run(uint64_t frame, uint64_t size, uint64_t count, uint64_t tail) {
    descriptors()[(frame + 1) & (geometry_.slots - 1)].size_and_type.store(
        count, std::memory_order_relaxed);  // relaxed: before the tail
    publish(frame, size | bus::kIsRun, tail);
  }
  void give_back(uint64_t frames, uint64_t bytes) {
    cursor().head_frames.store(frames, std::memory_order_seq_cst);
    cursor().head_bytes.store(bytes, std::memory_order_seq_cst);
  }

 private:
  UniqueFd socket_;
  UniqueFd ring_file_;
  UniqueFd cursor_file_;
  UniqueFd bell_;
  bus::Welcome welcome_;
  bus::Geometry geometry_;
  std::byte* ring_ = nullptr;
  std::byte* cursor_data_ = nullptr;
};

}  // namespace lumen::test
