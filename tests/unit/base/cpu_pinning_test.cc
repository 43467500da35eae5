// Which threads are pinned where: the setting, the facts from which `auto` decides, claims of
// several servers.
// The claims' names carry this process's id, so that servers on this machine don't matter.
#include <lumen/base/cpu_pinning.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace lumen {
namespace {

using Mode = PinThreads::Mode;
using testing::HasSubstr;

constexpr PinFacts kFourCpus = {.online = 4, .usable = 4};

std::string names_of_this_test() {
  static int tests = 0;
  return "lumen-test-" + std::to_string(::getpid()) + "-" + std::to_string(++tests) + "-cpu-";
}

class TwoServers : public testing::Test {
 protected:
  [[nodiscard]] PinnedCpus pin(const std::shared_ptr<CpuClaims>& server, Mode mode,
                               uint32_t threads, const PinFacts& facts = kFourCpus,
                               std::vector<uint32_t> cpus = {}) const {
    std::vector<CpuPlace> places;
    places.reserve(facts.usable);
    for (uint32_t cpu = 0; cpu < facts.usable; ++cpu) places.push_back({.cpu = cpu, .core = cpu});
    return {{.mode = mode, .cpus = std::move(cpus)}, facts, places, threads, server};
  }
  static std::vector<uint32_t> cpus_of(const PinnedCpus& pinned, uint32_t threads) {
    std::vector<uint32_t> cpus;
    for (uint32_t i = 0; i < threads; ++i) {
      if (pinned.of(i)) cpus.push_back(*pinned.of(i));
    }
    return cpus;
  }

  const std::string names = names_of_this_test();
  std::shared_ptr<CpuClaims> first = std::make_shared<CpuClaims>(names);
  std::shared_ptr<CpuClaims> second = std::make_shared<CpuClaims>(names);
};

// Was: every server pinned its workers from the last CPU down, so all sat on the same.
TEST_F(TwoServers, PinNoTwoThreadsToOneCpuWhileOthersAreFree) {
  for (const Mode mode : {Mode::kAuto, Mode::kOn}) {
    const PinnedCpus one = pin(first, mode, 2);
    const PinnedCpus other = pin(second, mode, 2);
    EXPECT_EQ(cpus_of(one, 2), (std::vector<uint32_t>{3, 2}));
    EXPECT_EQ(cpus_of(other, 2), (std::vector<uint32_t>{1, 0}));
    EXPECT_EQ(one.text(), "pinned to CPUs 3, 2");
  }
}

TEST_F(TwoServers, TheThirdGoesUnpinnedByItselfAndSharesWhereItIsTold) {
  const auto third = std::make_shared<CpuClaims>(names);
  const PinnedCpus one = pin(first, Mode::kAuto, 2);
  const PinnedCpus other = pin(second, Mode::kAuto, 1);
  const PinnedCpus by_itself = pin(third, Mode::kAuto, 2);
  EXPECT_EQ(cpus_of(by_itself, 2), std::vector<uint32_t>{});
  EXPECT_EQ(by_itself.text(), "not pinned: 2 threads, and 1 of 4 CPUs free of other Lumen servers");
  const PinnedCpus told = pin(third, Mode::kOn, 3);
  EXPECT_EQ(cpus_of(told, 3), (std::vector<uint32_t>{0, 3, 2})) << "the free one first";
  EXPECT_EQ(told.text(), "pinned to CPUs 0, 3, 2 (another Lumen server has 3, 2)");
}

TEST_F(TwoServers, AnUnpinnedServerLeavesFreeCpusToOthers) {
  const PinnedCpus many = pin(first, Mode::kAuto, 5);
  EXPECT_EQ(many.of(0), std::nullopt);
  EXPECT_EQ(cpus_of(pin(second, Mode::kAuto, 4), 4).size(), 4u);
}

TEST_F(TwoServers, ACpuIsFreeAgainWhenItsServerIsDone) {
  {
    const PinnedCpus one = pin(first, Mode::kAuto, 4);
  }
  EXPECT_EQ(cpus_of(pin(second, Mode::kAuto, 4), 4).size(), 4u);
}

TEST_F(TwoServers, AChangeOfConfigurationKeepsTheServersOwnCpus) {
  PinnedCpus before = pin(first, Mode::kAuto, 1);
  PinnedCpus after = pin(first, Mode::kAuto, 2);
  EXPECT_EQ(cpus_of(after, 2), (std::vector<uint32_t>{3, 2}));
  before = PinnedCpus();
  EXPECT_EQ(cpus_of(pin(second, Mode::kAuto, 2), 2), (std::vector<uint32_t>{1, 0}));
  before = std::move(after);
  EXPECT_EQ(cpus_of(before, 2), (std::vector<uint32_t>{3, 2}));
  EXPECT_EQ(cpus_of(pin(second, Mode::kAuto, 3), 3), std::vector<uint32_t>{});
}

// Was: the best CPU of all was taken again, so that a worker moved when another server had ended.
TEST_F(TwoServers, AChangeOfConfigurationMovesNoThreadToABetterCpuThatBecameFree) {
  for (const Mode mode : {Mode::kAuto, Mode::kOn}) {
    PinnedCpus other = pin(second, mode, 2);
    const PinnedCpus before = pin(first, mode, 1);
    EXPECT_EQ(cpus_of(before, 1), std::vector<uint32_t>{1});
    other = PinnedCpus();
    EXPECT_EQ(cpus_of(pin(first, mode, 1), 1), std::vector<uint32_t>{1});
    EXPECT_EQ(cpus_of(pin(first, mode, 3), 3), (std::vector<uint32_t>{1, 3, 2}));
  }
}

TEST_F(TwoServers, AProcessThatIsKilledLosesItsCpus) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    CpuClaims claims(names);
    const char answer = claims.take(3) ? 'y' : 'n';
    (void)!::write(ready[1], &answer, 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_FALSE(first->take(3));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(first->take(3));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(TwoServers, AListIsObeyedInItsOrderAndTold) {
  const PinnedCpus one = pin(first, Mode::kAuto, 1);
  const PinnedCpus listed = pin(second, Mode::kList, 3, kFourCpus, {0, 3});
  EXPECT_EQ(cpus_of(listed, 3), (std::vector<uint32_t>{0, 3, 0}));
  EXPECT_EQ(listed.text(), "pinned to CPUs 0, 3 (another Lumen server has 3)");
}

TEST_F(TwoServers, OffPinsNothingAndClaimsNothing) {
  const PinnedCpus one = pin(first, Mode::kOff, 4);
  EXPECT_EQ(one.of(0), std::nullopt);
  EXPECT_EQ(one.text(), "not pinned");
  EXPECT_EQ(cpus_of(pin(second, Mode::kAuto, 4), 4).size(), 4u);
}

TEST_F(TwoServers, MoreThreadsThanCpusGoRoundWhereTheyAreToldToBePinned) {
  EXPECT_EQ(cpus_of(pin(first, Mode::kOn, 6), 6), (std::vector<uint32_t>{3, 2, 1, 0, 3, 2}));
}

// --- the facts from which `auto` decides
// ------------------------------------------------------------

TEST(PinningByItself, NeedsAQuotaOfAllUsableCpusOrNone) {
  PinFacts facts = kFourCpus;
  EXPECT_EQ(reason_not_to_pin(facts), "");
  facts.quota_thousandths = 4000;
  EXPECT_EQ(reason_not_to_pin(facts), "");
  facts.quota_thousandths = 3999;
  EXPECT_THAT(reason_not_to_pin(facts), HasSubstr("quota"));
}

TEST(PinningByItself, InAContainerNeedsCpusOfItsOwn) {
  PinFacts facts = kFourCpus;
  facts.sees_machine = false;
  EXPECT_THAT(reason_not_to_pin(facts), HasSubstr("container"));
  facts.usable = 2;
  EXPECT_EQ(reason_not_to_pin(facts), "");
}

TEST_F(TwoServers, ByThemselvesDoNotPinUnderAQuotaButDoWhereTheyAreTold) {
  PinFacts facts = kFourCpus;
  facts.quota_thousandths = 1500;
  EXPECT_EQ(pin(first, Mode::kAuto, 1, facts).of(0), std::nullopt);
  EXPECT_THAT(pin(first, Mode::kAuto, 1, facts).text(),
              HasSubstr("not pinned: the cgroup's quota"));
  EXPECT_EQ(pin(first, Mode::kOn, 1, facts).of(0), 3u);
}

TEST(PinFacts, AreReadFromTheKernel) {
  const PinFacts facts = read_pin_facts();
  EXPECT_EQ(facts.usable, usable_cpus().size());
  EXPECT_GE(facts.online, facts.usable);
  EXPECT_EQ(facts.quota_thousandths, cgroup_cpu_thousandths());
}

// --- the setting ---------------------------------------------------------------------------------

TEST(PinThreads, ReadsItsOwnText) {
  for (const char* text : {"auto", "on", "off", "0", "7,3,1", "0-2", "0,2-3,8-9", "8191"}) {
    const auto parsed = parse_pin_threads(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->text(), text);
  }
  EXPECT_EQ(parse_pin_threads("4,0-2")->cpus, (std::vector<uint32_t>{4, 0, 1, 2}));
  EXPECT_EQ(parse_pin_threads("2,3")->text(), "2-3");
}

TEST(PinThreads, RefusesTextThatIsNoList) {
  for (const char* text : {"", "Auto", "yes", ",", "1,", ",1", "1-", "-1", "3-1", "1,,2", "1 ,2",
                           "0x1", "8192", "0-99999999999", "1,1", "0-3,2"}) {
    const auto parsed = parse_pin_threads(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("wanted auto, on, off, or a list of CPUs as 0,2-3"));
  }
}

}  // namespace
}  // namespace lumen
