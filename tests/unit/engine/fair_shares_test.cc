// FairShares: the debt and the lead of a model after any history. One thread, seeded histories; the
// shares of requests in queues are queues_test.cc's. Memory: the heap. Errors: by gtest.
#include "engine/fair_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>

namespace lumen::engine {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kHeavyNs = 5 * kMs;
// Virtual time goes on in steps of this length.
constexpr double kStepNs = 10'000;
constexpr uint32_t kModels = 4;

class Contest {
 public:
  explicit Contest(uint32_t seed) : random_(seed) {
    for (uint32_t model = 0; model < kModels; ++model) {
      weights_[model] = 1 + below(5);
      shares_->reset(model, weights_[model], below(2) * kMs);
    }
  }
  [[nodiscard]] uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  [[nodiscard]] uint64_t cost() {
    const uint64_t most = below(2) == 0 ? 50 * kUs : kHeavyNs;
    return 1 + random_() % most;
  }

  // Runs of any model, predicted well or badly, several at once, in batches, on workers and on I/O
  // threads.
  void history(int steps) {
    struct Run {
      uint32_t model;
      uint64_t charged_ns;
    };
    std::deque<Run> running;
    for (int i = 0; i < steps; ++i) {
      const uint32_t model = below(kModels);
      const uint32_t kind = below(4);
      if (kind == 0) {
        Run run{model, cost()};
        shares_->charge(model, run.charged_ns);
        for (uint32_t more = below(3) * 8; more > 0; --more) {
          const uint64_t ns = 1 + below(kHeavyNs / 32);
          shares_->join(model, ns);
          run.charged_ns += ns;
        }
        running.push_back(run);
      } else if (kind == 1 && !running.empty()) {
        shares_->settle(running.front().model, cost(), running.front().charged_ns);
        running.pop_front();
      } else {
        for (uint32_t runs = below(2) == 0 ? 1 : below(200); runs > 0; --runs) {
          shares_->settle(model, cost(), 0);
        }
      }
    }
    for (const Run& run : running) shares_->settle(run.model, cost(), run.charged_ns);
  }

  // Models 0 and 1 always have requests, of so long a time each, for one worker.
  uint32_t run_one(const std::array<uint64_t, 2>& cost_ns) {
    const uint32_t model = shares_->start_of(1) < shares_->start_of(0) ? 1 : 0;
    const uint64_t expected_ns = cost_ns[model] * (50 + below(100)) / 100 + 1;
    shares_->charge(model, expected_ns);
    shares_->settle(model, cost_ns[model], expected_ns);
    had_ns_[model] += cost_ns[model];
    return model;
  }
  [[nodiscard]] double had(uint32_t model) const {
    return static_cast<double>(had_ns_[model]) / weights_[model];
  }
  [[nodiscard]] uint32_t weight(uint32_t model) const { return weights_[model]; }
  [[nodiscard]] FairShares& shares() { return *shares_; }

 private:
  std::mt19937 random_;
  std::array<uint32_t, kModels> weights_{};
  std::array<uint64_t, 2> had_ns_{};
  std::unique_ptr<FairShares> shares_ = std::make_unique<FairShares>();
};

// Case 28: after 15 s of such a load a request waited for 1.2 s.
TEST(FairSharesTest, AModelThatRanOnIoThreadsAloneOwesNoMoreThanOneRun) {
  const auto shares = std::make_unique<FairShares>();
  shares->reset(0, 1, kUs);
  shares->reset(1, 1, kUs);
  for (int i = 0; i < 1'000'000; ++i) shares->settle(0, 3 * kUs, 0);
  int others = 0;
  for (; others < 100 && shares->start_of(1) < shares->start_of(0); ++others) {
    shares->charge(1, 500 * kUs);
    shares->settle(1, 500 * kUs, 500 * kUs);
  }
  EXPECT_LE(others, 1);
}

TEST(FairSharesTest, AfterAnyHistoryNeitherOfTwoModelsWaitsLongerThanItsShareAndOneHeavyRun) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    Contest contest(seed);
    contest.history(static_cast<int>(contest.below(400)));
    const std::array<uint64_t, 2> cost_ns{contest.cost(), contest.cost()};
    for (int i = 0; i < 300; ++i) {
      (void)contest.run_one(cost_ns);
      for (const uint32_t model : {0u, 1u}) {
        const uint32_t other = 1 - model;
        const double own_run = static_cast<double>(cost_ns[model]) / contest.weight(model);
        const double others_run = static_cast<double>(cost_ns[other]) / contest.weight(other);
        const double heavy_run = static_cast<double>(kHeavyNs) / contest.weight(model);
        ASSERT_LE(contest.had(other) - contest.had(model),
                  own_run + others_run + heavy_run + 2 * kStepNs)
            << "seed " << seed << ", run " << i << ": model " << model << " waits";
      }
    }
  }
}

// Its runs there are counted, and a request of it that waits for a worker is not put off by each
// new run.
TEST(FairSharesTest, AModelThatAlsoRunsOnIoThreadsAllTheTimeIsStillTakenByTheWorkers) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    Contest contest(seed);
    contest.history(100);
    const std::array<uint64_t, 2> cost_ns{contest.cost(), contest.cost()};
    const uint64_t inline_ns = contest.cost();
    const double owed = static_cast<double>(std::max({cost_ns[0], inline_ns, kHeavyNs})) +
                        static_cast<double>(cost_ns[0] + inline_ns) + 2 * kStepNs;
    const double most =
        owed / contest.weight(0) * contest.weight(1) + 2 * static_cast<double>(cost_ns[1]);
    double waited = 0;
    for (int i = 0; i < 2000; ++i) {
      waited = contest.run_one(cost_ns) == 0 ? 0 : waited + static_cast<double>(cost_ns[1]);
      ASSERT_LE(waited, most) << "seed " << seed << ", run " << i;
      for (uint64_t ran = 0; ran < cost_ns[1] && ran < 20 * inline_ns; ran += inline_ns) {
        contest.shares().settle(0, inline_ns, 0);
      }
    }
  }
}

// If the third moved the time at which a model begins, the two would both lie behind it, and the
// cheaper would be next.
TEST(FairSharesTest, RunsOnIoThreadsOfAThirdModelDoNotChangeTheSharesOfTwoOthers) {
  Contest contest(1);
  contest.shares().reset(0, 1, kUs);
  contest.shares().reset(1, 1, kUs);
  contest.shares().reset(2, 1, kUs);
  std::array<uint64_t, 2> had_ns{};
  const std::array<uint64_t, 2> cost_ns{100 * kUs, 200 * kUs};
  for (int i = 0; i < 3000; ++i) {
    const uint32_t model = contest.run_one(cost_ns);
    had_ns[model] += cost_ns[model];
    for (int runs = 0; runs < 30; ++runs) contest.shares().settle(2, 10 * kUs, 0);
  }
  EXPECT_NEAR(static_cast<double>(had_ns[0]) / static_cast<double>(had_ns[1]), 1.0, 0.02);
}

// A batch is one run: taken as many, it would move the time that the other model begins at to its
// own end.
TEST(FairSharesTest, AModelThatIsRunInBatchesHasNoMoreTimeThanOneThatIsNot) {
  const auto shares = std::make_unique<FairShares>();
  for (const uint32_t model : {0u, 1u}) shares->reset(model, 1, kMs);
  std::array<uint64_t, 2> had_ns{};
  for (int i = 0; i < 2000; ++i) {
    const uint32_t model = shares->start_of(1) < shares->start_of(0) ? 1 : 0;
    const uint64_t rows = model == 0 ? 16 : 1;
    shares->charge(model, kMs);
    for (uint64_t row = 1; row < rows; ++row) shares->join(model, kMs);
    shares->settle(model, rows * kMs, rows * kMs);
    had_ns[model] += rows * kMs;
  }
  EXPECT_NEAR(static_cast<double>(had_ns[0]) / static_cast<double>(had_ns[1]), 1.0, 0.05);
}

// Several workers took it before the first was done: it owes the time of one run.
TEST(FairSharesTest, RunsThatTookLongerThanExpectedDoNotAddUp) {
  const auto shares = std::make_unique<FairShares>();
  for (const uint32_t model : {0u, 1u}) shares->reset(model, 1, kUs);
  for (int i = 0; i < 64; ++i) shares->charge(0, kUs);
  for (int i = 0; i < 64; ++i) shares->settle(0, kHeavyNs, kUs);
  int others = 0;
  for (; others < 100 && shares->start_of(1) < shares->start_of(0); ++others) {
    shares->charge(1, kHeavyNs);
    shares->settle(1, kHeavyNs, kHeavyNs);
  }
  EXPECT_LE(others, 2);
}

}  // namespace
}  // namespace lumen::engine
