// The doctor's look at running servers: which ones it names, its texts, when it warns.
#include "made_up_machine.h"

#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/counters_file.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

namespace lumen::doctor {
namespace {

using telemetry::Counters;
using telemetry::CountersFile;
using telemetry::CounterWriter;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A running server's traces: a file that it holds a lock on, and a count for each model.
class MadeUpServer {
 public:
  explicit MadeUpServer(const std::filesystem::path& path) {
    std::filesystem::create_directories(path.parent_path());
    file_ = std::move(CountersFile::create(path, Counters::bytes_for(1)).value());
    counters_ = std::move(Counters::create(*file_, {}).value());
    writer_ = std::make_unique<CounterWriter>(*counters_);
  }
  void add_model(std::string_view name, uint64_t instances, uint64_t bytes) {
    EXPECT_TRUE(counters_->assign_model(models_, name, "1").ok());
    writer_->set_gauge(models_, "instances", instances);
    writer_->set_gauge(models_, "instance_bytes", bytes);
    ++models_;
  }

 private:
  std::unique_ptr<CountersFile> file_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<CounterWriter> writer_;
  uint32_t models_ = 0;
};

class ServerChecks : public MadeUpMachine {
 protected:
  ServerChecks() {
    machine.user = ::geteuid();
    write("/proc/meminfo", "MemTotal:       1048576 kB\nMemAvailable:   524288 kB\n");
  }
  [[nodiscard]] std::filesystem::path in_runtime_dir(const std::string& name) const {
    return machine.root / "run/user/1000" / name;
  }
  [[nodiscard]] std::filesystem::path in_shm(const std::string& name) const {
    return machine.root / "dev/shm" / name;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Line& line : check_servers(machine)) names.push_back(line.name);
    return names;
  }
  [[nodiscard]] std::string own_prefix() const {
    return "lumen-" + std::to_string(machine.user) + "-";
  }
};

TEST_F(ServerChecks, WhereNoServerRunsThereIsNothingToSay) {
  EXPECT_THAT(check_servers(machine), IsEmpty());
  write("/run/user/1000/lumen.sock", "");
  EXPECT_THAT(check_servers(machine), IsEmpty());
}

TEST_F(ServerChecks, TheInstancesOfEachModelAreNamedTheLargestFirst) {
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("small", 3, 2 * kMiB);
  server.add_model("large", 2, 100 * kMiB);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].name, "server 77");
  const Finding& found = lines[0].finding;
  expect_ok(found);
  EXPECT_EQ(number_of(found), 206.0 * kMiB);
  EXPECT_EQ(found.unit, "bytes");
  EXPECT_EQ(found.note,
            "for instances, 20 % of the machine's memory: 2 of large with 100.0 MiB each, 3 of "
            "small with 2.0 MiB each");
}

TEST_F(ServerChecks, MoreThanHalfOfTheMemoryIsAWarningThatNamesTheModelAndTheSetting) {
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("one", 1, 300 * kMiB);
  server.add_model("many", 4, 60 * kMiB);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_warning(lines[0].finding, "\"instances\": 2 in many/config.json");
  EXPECT_THAT(lines[0].finding.gain, HasSubstr("120.0 MiB less"));
}

TEST_F(ServerChecks, AWarningAboutModelsWithOneInstanceEachAsksForMemory) {
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("one", 1, 600 * kMiB);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_warning(lines[0].finding, "memory.max");
}

TEST_F(ServerChecks, TheMemoryIsThatOfTheCgroupWhereThatIsLess) {
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/memory.max", std::to_string(300 * kMiB) + "\n");
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("m", 2, 80 * kMiB);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_warning(lines[0].finding, "m/config.json");
  EXPECT_THAT(lines[0].finding.note, HasSubstr("53 % of the cgroup's memory"));
}

TEST_F(ServerChecks, AServerWithoutModelsIsWell) {
  const MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_ok(lines[0].finding);
  EXPECT_EQ(value_of(lines[0].finding), "no instances");
}

TEST_F(ServerChecks, EachServerHasALineAndBothFoldersAreLookedAt) {
  const MadeUpServer one(in_runtime_dir("lumen-500.counters"));
  const MadeUpServer other(in_shm(own_prefix() + "77.counters"));
  EXPECT_THAT(names(), testing::ElementsAre("server 77", "server 500"));
  machine.runtime_dir.reset();
  EXPECT_THAT(names(), testing::ElementsAre("server 77"));
}

TEST_F(ServerChecks, DeadServersOtherUsersAndOtherFilesAreLeftOut) {
  write("/run/user/1000/lumen-78.counters", "what a dead server left");
  const MadeUpServer other_users(in_shm("lumen-4000000000-79.counters"));
  const MadeUpServer no_number(in_runtime_dir("lumen-x.counters"));
  EXPECT_THAT(names(), IsEmpty());
  const MadeUpServer server(in_runtime_dir("lumen-80.counters"));
  EXPECT_THAT(names(), testing::ElementsAre("server 80"));
  machine.user += 1;  // the file is not theirs
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ServerChecks, ALiveFileThatIsBrokenIsUnknownWithTheReason) {
  const auto path = in_runtime_dir("lumen-77.counters");
  const MadeUpServer server(path);
  std::filesystem::resize_file(path, 100);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_unknown(lines[0].finding, "it ends before");
}

TEST_F(ServerChecks, ANameThatNoModelHasReachesNoTerminal) {
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("\x1b[31m\xff\"", 1, kMiB);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0].finding.note, HasSubstr("1 of ??31m?? with"));
}

TEST_F(ServerChecks, FiguresThatNoServerHasAreShownAndHurtNothing) {
  MadeUpServer server(in_runtime_dir("lumen-77.counters"));
  server.add_model("m", INT64_MAX, INT64_MAX);
  const std::vector<Line> lines = check_servers(machine);
  ASSERT_EQ(lines.size(), 1u);
  expect_warning(lines[0].finding, "m/config.json");
  EXPECT_THAT(lines[0].finding.note, Not(HasSubstr("inf")));
}

TEST_F(ServerChecks, AFolderFullOfServersGivesSixteenLines) {
  std::vector<std::unique_ptr<MadeUpServer>> servers;
  for (int pid = 100; pid < 120; ++pid) {
    servers.push_back(std::make_unique<MadeUpServer>(
        in_runtime_dir("lumen-" + std::to_string(pid) + ".counters")));
  }
  EXPECT_EQ(names().size(), 16u);
}

}  // namespace
}  // namespace lumen::doctor
