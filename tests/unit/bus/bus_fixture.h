// Two sides of a bus in one process: a listener in a folder of the test's own, and a process that
// connects to it.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/bus/connection.h>
#include <lumen/bus/listener.h>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lumen::bus {

inline constexpr uint64_t kSecond = 1'000'000'000;
// Longer than any test should ever wait, on a slow machine either.
[[nodiscard]] inline uint64_t patience() noexcept { return now_ns() + 30 * kSecond; }

[[nodiscard]] inline uint64_t thread_cpu_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

class BusTest : public testing::Test {
 protected:
  BusTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-bus-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    path = folder + "/bus";
  }
  ~BusTest() override {
    listener.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  void listen(const ListenerOptions& options) {
    auto made = Listener::create(path, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    listener = std::move(made).value();
  }
  Connection connect_as(Role role) {
    auto made = connect(path, {.role = role, .deadline_ns = patience()});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : Connection{};
  }
  Connection accept() {
    auto accepted = listener->accept(patience());
    EXPECT_EQ(accepted.outcome, Outcome::kOk);
    return accepted.connection ? std::move(*accepted.connection) : Connection{};
  }
  // One ring: the test publishes, and the listener's side subscribes.
  void start(const ListenerOptions& options = {}) {
    listen(options);
    theirs.emplace(connect_as(Role::kPublish));
    ours.emplace(accept());
    ASSERT_TRUE(theirs->publisher && ours->subscriber);
  }
  Publisher& publisher() { return *theirs->publisher; }
  Subscriber& subscriber() { return *ours->subscriber; }

  static std::string text_of(const Frame& frame) {
    return {reinterpret_cast<const char*>(frame.data.data()), frame.data.size()};
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  }
  void put(std::string_view text, uint32_t type_id = 1, uint64_t id = 0) {
    const Publisher::Place place = publisher().try_reserve(text.size());
    ASSERT_TRUE(place) << name_of(place.outcome);
    std::memcpy(place.bytes.data(), text.data(), text.size());
    publisher().commit(text.size(), type_id, id);
  }

  std::string folder;
  std::string path;
  std::unique_ptr<Listener> listener;
  std::optional<Connection> theirs;
  std::optional<Connection> ours;
};

}  // namespace lumen::bus
