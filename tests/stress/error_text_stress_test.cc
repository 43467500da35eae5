// Threads that make, copy, hand over and drop errors at once: each reads its own message, whole.
// Scaled by LUMEN_STRESS_SCALE.
#include <lumen/base/error_text.h>
#include <lumen/base/result.h>
#include <lumen/queue/mpmc_queue.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace lumen {
namespace {

constexpr int kErrorsEach = 20'000;

int errors_each() {
  const char* scale = std::getenv("LUMEN_STRESS_SCALE");
  return kErrorsEach * (scale == nullptr ? 1 : std::atoi(scale));
}

// Its number, again and again: a message of two of them shows itself.
std::string text_of(int number) {
  std::string text;
  while (text.size() < 200) text += std::to_string(number) + ".";
  return text;
}

struct Handed {
  int number = 0;
  Status status;
};

TEST(ErrorTextStress, EachThreadReadsTheMessageOfItsOwnError) {
  const size_t before = ErrorText::in_use();
  {
    // More errors in flight than there are slots, so that some claims find none.
    MpmcQueue<Handed*> queue(2048);
    std::vector<Handed> places(2048);
    MpmcQueue<Handed*> free_places(2048);
    for (Handed& place : places) ASSERT_TRUE(free_places.try_push(&place));
    const int each = errors_each();
    std::atomic<int> left{2 * each};
    const auto make = [&](int first) {
      for (int i = 0; i < each; ++i) {
        Handed* place = nullptr;
        while (!free_places.try_pop(place)) std::this_thread::yield();
        place->number = first + i;
        const Status made = Status::error(Code::kInternal, "%s", text_of(place->number).c_str());
        place->status = made;
        while (!queue.try_push(std::move(place))) std::this_thread::yield();
      }
    };
    const auto read = [&] {
      while (left.load() > 0) {
        Handed* place = nullptr;
        if (!queue.try_pop(place)) {
          std::this_thread::yield();
          continue;
        }
        const std::string wanted = text_of(place->number);
        const Status taken = std::move(place->status);
        place->status = {};
        const std::string_view said = taken.message();
        // Not ASSERT, which would end this thread, and the others would wait for its place.
        EXPECT_EQ(wanted.substr(0, said.size()), said);
        // There is room for all places, but a slot is full until the thread that takes its item has
        // let go of it: one that was preempted there.
        while (!free_places.try_push(std::move(place))) std::this_thread::yield();
        left.fetch_sub(1);
      }
    };
    std::array<std::thread, 4> threads{std::thread(make, 0), std::thread(make, 10'000'000),
                                       std::thread(read), std::thread(read)};
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(0, left.load());
  }
  EXPECT_EQ(before, ErrorText::in_use());
}

}  // namespace
}  // namespace lumen
