// Requests that wait for room in the ring to a model's Python process, against a list.
#include "backends/python/waiting_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>

namespace lumen::backends::python {
namespace {

using models::InferRequest;

void ignore(InferRequest& /*request*/) noexcept {}

TEST(WaitingLineTest, RandomStepsLeaveTheRequestsThatAListHas) {
  std::mt19937_64 random(20261130);
  std::array<InferRequest, 200> requests;
  const auto line = std::make_unique<WaitingLine>();
  std::deque<InferRequest*> list;
  uint64_t now_ns = 1;
  for (int step = 0; step < 20'000; ++step) {
    now_ns += random() % 3;
    InferRequest& request = requests[random() % requests.size()];
    switch (random() % 3) {
      case 0:
        if (std::ranges::find(list, &request) != list.end()) break;
        request.deadline_ns = random() % 4 == 0 ? UINT64_MAX : now_ns + random() % 300;
        ASSERT_TRUE(line->push({&request, ignore}));
        list.push_back(&request);
        break;
      case 1:
        if (list.empty()) break;
        ASSERT_EQ(line->front().request, list.front());
        line->pop();
        list.pop_front();
        break;
      default:
        while (const std::optional<Place> late = line->take_late(now_ns)) {
          const auto found = std::ranges::find(list, late->request);
          ASSERT_NE(found, list.end());
          ASSERT_LE(late->request->deadline_ns, now_ns);
          list.erase(found);
        }
        for (const InferRequest* left : list) {
          ASSERT_GT(left->deadline_ns, now_ns);
          ASSERT_LE(line->next_deadline_ns(), left->deadline_ns);
        }
    }
    ASSERT_EQ(line->is_empty(), list.empty());
  }
}

TEST(WaitingLineTest, AFullLineRefusesOneMore) {
  InferRequest request;
  const auto line = std::make_unique<WaitingLine>();
  for (uint32_t i = 0; i < WaitingLine::kMost; ++i) ASSERT_TRUE(line->push({&request, ignore}));
  EXPECT_FALSE(line->push({&request, ignore}));
  line->pop();
  EXPECT_TRUE(line->push({&request, ignore}));
}

}  // namespace
}  // namespace lumen::backends::python
