// The matrix: residency from the telemetry file, medians, tables, and children that never outlive
// us.
#include <lumen/client/matrix_report.h>
#include "client/child_server.h"
#include "client/telemetry_csv.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <string>

namespace lumen::client {
namespace {

constexpr const char* kHeader =
    "request_id,timestamp,model,queue_type,allocator_type,worker,connect_us,parse_us,queue_us,"
    "preprocess_us,inference_us,postprocess_us,write_us,total_us,rows,status,cache,transport,"
    "lane\n";

std::string line(const std::string& id, const std::string& queue_us) {
  return id + ",t,m,mpmc,lumen_arena,0,,1.0," + queue_us + ",1,1,1,1,5,1,200,,http,mpmc\n";
}

TEST(QueueResidency, CountsTheRowsOfOneId) {
  std::string csv = kHeader;
  for (int i = 1; i <= 100; ++i) csv += line("a", std::to_string(i) + ".5");
  csv += line("b", "9999") + line("a", "") + line("\"a\"\"b,\n\"", "7777");
  const auto residency = queue_residency_of(csv, "a");
  ASSERT_TRUE(residency.ok()) << residency.status().message();
  EXPECT_EQ(residency->count, 100u);
  EXPECT_DOUBLE_EQ(residency->mean_us, 51.0);
  EXPECT_DOUBLE_EQ(residency->p99_us, 99.5);
  const auto quoted = queue_residency_of(csv, "a\"b,\n");
  ASSERT_TRUE(quoted.ok());
  EXPECT_EQ(quoted->p99_us, 7777);
}

TEST(QueueResidency, RefusesFilesWithoutTheRows) {
  EXPECT_FALSE(queue_residency_of("", "a").ok());
  EXPECT_FALSE(queue_residency_of("x,y\n1,2\n", "a").ok());
  EXPECT_FALSE(queue_residency_of(kHeader, "a").ok());
  EXPECT_FALSE(queue_residency_of(kHeader + line("b", "1"), "a").ok());
  EXPECT_FALSE(queue_residency_of(kHeader + line("a", "x"), "a").ok());
  EXPECT_FALSE(queue_residency_of(std::string(kHeader) + "a,b\n", "a").ok());
  EXPECT_FALSE(read_queue_residency("/nonexistent.csv", "a").ok());
}

TEST(Medians, AreTakenOfEachColumnAlone) {
  std::vector<MatrixValues> rounds(3);
  rounds[0][Value::kPerSecond] = 3;
  rounds[1][Value::kPerSecond] = 1;
  rounds[2][Value::kPerSecond] = 2;
  rounds[0][Value::kRows] = 1;
  rounds[1][Value::kRows] = 4;
  const MatrixValues result = medians(rounds);
  EXPECT_EQ(result[Value::kPerSecond], 2);
  EXPECT_EQ(result[Value::kRows], 2.5);
  EXPECT_EQ(result[Value::kHeapCalls], std::nullopt);
  EXPECT_EQ(medians({})[Value::kRows], std::nullopt);
}

std::vector<MatrixRow> two_rows() {
  std::vector<MatrixRow> rows = {{"mpmc", "standard", ""}, {"spsc", "standard", "a|b\n\"c\""}};
  for (auto& value : rows[0].values.values) value = 1.25;
  rows[0].values[Value::kArenaBytes].reset();
  rows[0].rounds = {rows[0].values, rows[0].values};
  rows[0].rounds[0][Value::kRows] = 1;
  rows[0].rounds[1][Value::kRows] = 1.5;
  return rows;
}

TEST(MatrixReport, GivesEveryLineOfTheTableAsManyCells) {
  const std::string text = to_markdown(two_rows());
  size_t cells = 0;
  size_t begin = 0;
  for (size_t lines = 0; begin < text.size(); ++lines) {
    const std::string one = text.substr(begin, text.find('\n', begin) - begin);
    const auto count = static_cast<size_t>(std::ranges::count(one, '|'));
    if (lines == 0) cells = count;
    EXPECT_EQ(count, cells) << one;
    begin += one.size() + 1;
  }
  EXPECT_EQ(cells, 3 + kColumns.size());
  EXPECT_NE(text.find("| n/a |"), std::string::npos);
  EXPECT_NE(text.find("failed: a b \"c\""), std::string::npos) << text;
}

TEST(MatrixReport, WritesAbsentValuesAsEmptyFieldsAndNull) {
  const std::string csv = to_csv(two_rows());
  EXPECT_NE(csv.find("mpmc,standard,1.250,"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",,1.250,\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",\"a|b  c \"\n"), std::string::npos) << csv;
  const auto json = to_json({}, two_rows());
  EXPECT_EQ(json["rows"][0]["rows_per_inference"], 1.25);
  EXPECT_TRUE(json["rows"][0]["arena_bytes_per_request"].is_null());
  EXPECT_TRUE(json["rows"][0]["error"].is_null());
  EXPECT_EQ(json["rows"][0]["rounds"]["rows_per_inference"].dump(), "[1.0,1.5]");
  EXPECT_EQ(json["rows"][0]["rounds"]["arena_bytes_per_request"].dump(), "[null,null]");
  EXPECT_EQ(json["rows"][1]["error"], "a|b\n\"c\"");
}

Result<std::unique_ptr<ChildServer>> start_script(const std::string& script,
                                                  uint64_t timeout_ns = 20'000'000'000u) {
  return ChildServer::start("/bin/sh", {"-c", script}, timeout_ns);
}

constexpr const char* kUntilInterrupted =
    "trap 'exit 0' INT; echo \"banner\"; "
    "echo \"lumen: ready http=127.0.0.1:7 unix=/x\"; "
    "while :; do read x || sleep 0.02; done";

TEST(ChildServer, WaitsForTheReadyLineAndStopsCleanly) {
  auto server = start_script(kUntilInterrupted);
  ASSERT_TRUE(server.ok()) << server.status().message();
  EXPECT_EQ((*server)->http_address(), "127.0.0.1:7");
  EXPECT_TRUE((*server)->stop().ok());
}

TEST(ChildServer, TellsWhyItDidNotStart) {
  const auto server = start_script("echo 'no such key' >&2; exit 3");
  ASSERT_FALSE(server.ok());
  const std::string message(server.status().message());
  EXPECT_NE(message.find("exit status 3"), std::string::npos) << message;
  EXPECT_NE(message.find("no such key"), std::string::npos) << message;
}

TEST(ChildServer, GivesUpWhereTheReadyLineDoesNotCome) {
  const auto server = start_script("echo almost; exec sleep 1000", 50'000'000u);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.status().message().find("not ready in time"), std::string_view::npos);
}

TEST(ChildServer, TellsOfAnEndThatWasNotClean) {
  auto server = start_script(
      "trap 'echo broken >&2; exit 5' INT; echo 'lumen: ready http=a:1'; "
      "while :; do read x || sleep 0.02; done");
  ASSERT_TRUE(server.ok());
  const Status status = (*server)->stop();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("exit status 5: broken"), std::string_view::npos)
      << status.message();
}

// True when the process ends within ten seconds; it need not be our child.
bool ends(pid_t pid) {
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!handle.valid()) return true;
  pollfd entry{handle.get(), POLLIN, 0};
  return poll(&entry, 1, 10'000) == 1;
}

TEST(ChildServer, DoesNotOutliveAParentThatDiesWithoutStoppingIt) {
  int ends_of_pipe[2];
  ASSERT_EQ(pipe(ends_of_pipe), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto server = start_script(
        "trap '' TERM; echo \"lumen: ready http=$$\"; "
        "while :; do read x || sleep 0.02; done");
    const std::string pid = server.ok() ? (*server)->http_address() : "0";
    const bool written = write(ends_of_pipe[1], pid.data(), pid.size()) > 0;
    _exit(written ? 0 : 1);  // no destructor runs, as after SIGKILL
  }
  close(ends_of_pipe[1]);
  char text[32] = {};
  const ssize_t size = read(ends_of_pipe[0], text, sizeof(text));
  close(ends_of_pipe[0]);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  ASSERT_GT(size, 0);
  pid_t child = 0;
  std::from_chars(text, text + size, child);
  ASSERT_GT(child, 0);
  EXPECT_TRUE(ends(child));
}

}  // namespace
}  // namespace lumen::client
