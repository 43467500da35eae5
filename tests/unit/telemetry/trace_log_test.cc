// TraceLog: the lines of the file, when they come, and the counts if the disk doesn't follow.
// Threads: up to eight writers. Memory: files in a folder of the test's own. Errors: by gtest.
#include <lumen/telemetry/trace_log.h>

#include <lumen/base/clock.h>
#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "csv.h"
#include "support/stress.h"

namespace lumen::telemetry {
namespace {

constexpr std::array<std::string_view, 2> kQueues = {"mpmc", "spsc"};
constexpr std::array<std::string_view, 2> kAllocators = {"lumen_arena", "standard"};

TraceLogOptions options_for(const std::filesystem::path& path) {
  return {.path = path,
          .queue_types = kQueues,
          .allocator_types = kAllocators,
          .buffer_bytes = 64 * 1024};
}

std::unique_ptr<TraceLog> open_log(const TraceLogOptions& options) {
  Result<std::unique_ptr<TraceLog>> log = TraceLog::open(options);
  EXPECT_TRUE(log.ok()) << log.status().message();
  if (!log.ok()) return nullptr;
  (*log)->name_model(0, "mlp");
  (*log)->name_model(1, "squeezenet");
  return std::move(*log);
}

std::string refusal(const TraceLogOptions& options) {
  Result<std::unique_ptr<TraceLog>> log = TraceLog::open(options);
  return log.ok() ? "" : std::string(log.status().message());
}

// The end of a pipe that the test reads.
class PipeReader {
 public:
  explicit PipeReader(const std::filesystem::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    EXPECT_EQ(::fcntl(fd_.get(), F_SETFL, 0), 0);
    (void)::fcntl(fd_.get(), F_SETPIPE_SZ, 4096);
  }
  // Waits for one line.
  std::string line() {
    std::string text;
    for (char c = 0; ::read(fd_.get(), &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }
  std::string until_closed() {
    std::string text, part(65536, '\0');
    for (ssize_t n; (n = ::read(fd_.get(), part.data(), part.size())) > 0;) {
      text.append(part, 0, static_cast<size_t>(n));
    }
    return text;
  }
  bool is_silent_for(int ms) {
    pollfd wanted{fd_.get(), POLLIN, 0};
    return ::poll(&wanted, 1, ms) == 0;
  }

 private:
  UniqueFd fd_;
};

TEST(TraceLog, ANewFileHasItsHeaderBeforeTheFirstRecord) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  EXPECT_EQ(whole_file(folder / "trace.csv"), std::string(kTraceCsvHeader) + "\n");
}

TEST(TraceLog, MissingParentsAreMade) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "results/micro/x/trace.csv"));
  EXPECT_TRUE(std::filesystem::exists(folder / "results/micro/x/trace.csv"));
}

TEST(TraceLog, APathIsToldWholeAndWithoutDots) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "a/../b/trace.csv"));
  EXPECT_EQ(log->path(), folder / "b/trace.csv");
  EXPECT_TRUE(std::filesystem::exists(folder / "b/trace.csv"));
}

TEST(TraceLog, ARecordIsALineInItsColumns) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  RequestRecord record = record_number(5);
  record.model = 1;
  record.worker = 2;
  record.queue_type = record.lane = 1;
  record.allocator_type = 1;
  set_id(record, "a,b");
  log->write(record);
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(whole_file(folder / "trace.csv"),
            std::string(kTraceCsvHeader) +
                "\n\"a,b\",2026-11-21T01:43:27.123456Z,squeezenet,spsc,standard,2,,2.005,3.000,"
                "4.000,5.001,6.010,7.100,1234.567,1,200,,http,spsc\n");
  EXPECT_EQ(log->counters().written, 1u);
  EXPECT_TRUE(log->last_error().ok());
}

TEST(TraceLog, AFileThatIsThereIsGoneOnWith) {
  const TempFolder folder;
  for (uint64_t run = 0; run < 3; ++run) {
    open_log(options_for(folder / "trace.csv"))->write(record_number(run));
  }
  const std::vector<Row> rows = records_in(folder / "trace.csv");
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rows[i][0], std::to_string(i));
}

TEST(TraceLog, AFileWithAnotherHeaderIsRefusedAndLeftAlone) {
  const TempFolder folder;
  for (const std::string& text :
       {std::string("client,latency\n1,2\n"), std::string(kTraceCsvHeader).substr(0, 20),
        std::string(kTraceCsvHeader) + ",more\n"}) {
    write_file(folder / "trace.csv", text);
    const std::string why = refusal(options_for(folder / "trace.csv"));
    EXPECT_NE(why.find("not the header"), std::string::npos) << why;
    EXPECT_NE(why.find((folder / "trace.csv").string()), std::string::npos) << why;
    EXPECT_EQ(whole_file(folder / "trace.csv"), text);
  }
}

// A server did not start where an older one had written its CSV.
TEST(TraceLog, AFileOfAnOlderServerIsRotatedWithItsLines) {
  const TempFolder folder;
  const std::string header(kTraceCsvHeader);
  for (const char* column : {",lane", ",transport", ",cache"}) {
    const std::string old = header.substr(0, header.find(column)) + "\n1,an older line\n";
    write_file(folder / "trace.csv", old);
    open_log(options_for(folder / "trace.csv"))->write(record_number(2));
    EXPECT_EQ(whole_file(folder / "trace.csv.1"), old) << column;
    EXPECT_EQ(records_in(folder / "trace.csv").size(), 1u) << column;
  }
  // Where nothing is kept, rotating would throw it away.
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.keep = 0;
  write_file(folder / "trace.csv", header.substr(0, header.find(",lane")) + "\n");
  EXPECT_NE(refusal(options).find("not the header"), std::string::npos);
}

TEST(TraceLog, HalfALineOfADeadServerIsCutOff) {
  const TempFolder folder;
  open_log(options_for(folder / "trace.csv"))->write(record_number(1));
  const std::string whole = whole_file(folder / "trace.csv");
  write_file(folder / "trace.csv", whole + "2,2026-11-21T01:4");
  open_log(options_for(folder / "trace.csv"))->write(record_number(3));
  const std::vector<Row> rows = records_in(folder / "trace.csv");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1][0], "3");
}

TEST(TraceLog, AFileThatAnotherOneWritesIsRefused) {
  const TempFolder folder;
  auto first = open_log(options_for(folder / "trace.csv"));
  const std::string why = refusal(options_for(folder / "trace.csv"));
  EXPECT_NE(why.find("another server writes it"), std::string::npos) << why;
  first.reset();
  EXPECT_EQ(refusal(options_for(folder / "trace.csv")), "");
}

// --- a file that others move, remove or cut ------------------------------------------------------

std::vector<std::string> ids_in(const std::filesystem::path& path) {
  std::vector<std::string> ids;
  for (const Row& row : records_in(path)) ids.push_back(row[0]);
  return ids;
}

// Was: SIGHUP read the configuration only, and after logrotate the server wrote into the old file
// for ever.
TEST(TraceLog, AfterAMoveItGoesOnInANewFileOnceItIsReopened) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  log->write(record_number(1));
  ASSERT_TRUE(log->flush());
  std::filesystem::rename(folder / "trace.csv", folder / "trace.csv.old");
  log->write(record_number(2));
  ASSERT_TRUE(log->flush());
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.csv")) << "not before it is told";
  log->write(record_number(3));
  EXPECT_TRUE(log->reopen().ok());
  log->write(record_number(4));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(ids_in(folder / "trace.csv.old"), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(ids_in(folder / "trace.csv"), std::vector<std::string>{"4"});
  EXPECT_TRUE(log->reopen().ok()) << "the same file: nothing changes";
  log->write(record_number(5));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(ids_in(folder / "trace.csv"), (std::vector<std::string>{"4", "5"}));
}

TEST(TraceLog, AFileThatIsNotOursIsNotReopenedAndTheOldOneIsWrittenOn) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  std::filesystem::rename(folder / "trace.csv", folder / "trace.csv.old");
  write_file(folder / "trace.csv", "client,latency\n");
  EXPECT_NE(log->reopen().message().find("not the header"), std::string::npos);
  log->write(record_number(1));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(ids_in(folder / "trace.csv.old"), std::vector<std::string>{"1"});
  EXPECT_EQ(whole_file(folder / "trace.csv"), "client,latency\n");
}

TEST(TraceLog, AFileThatWasRemovedIsMadeAnewWithItsHeader) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  log->write(record_number(1));
  ASSERT_TRUE(log->flush());
  std::filesystem::remove(folder / "trace.csv");
  log->write(record_number(2));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(ids_in(folder / "trace.csv"), std::vector<std::string>{"2"});
  EXPECT_EQ(log->counters().dropped, 0u);
}

TEST(TraceLog, AFileThatWasCutHasItsHeaderAgain) {
  for (const uintmax_t left : {uintmax_t{0}, uintmax_t{10}}) {
    const TempFolder folder;
    const auto log = open_log(options_for(folder / "trace.csv"));
    log->write(record_number(1));
    ASSERT_TRUE(log->flush());
    std::filesystem::resize_file(folder / "trace.csv", left);
    log->write(record_number(2));
    ASSERT_TRUE(log->flush());
    EXPECT_EQ(ids_in(folder / "trace.csv"), std::vector<std::string>{"2"});
  }
}

TEST(TraceLog, AFileThatCannotBeOpenedIsRefusedWithTheReason) {
  const TempFolder folder;
  EXPECT_NE(refusal(options_for(folder / "")).find("can't open"), std::string::npos);
  EXPECT_NE(refusal(options_for("/proc/nowhere/trace.csv")).find("folder"), std::string::npos);
  EXPECT_NE(refusal(options_for("")).find("not a path"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(options_for(folder / "pipe")).find("nobody reads"), std::string::npos);
  TraceLogOptions small = options_for(folder / "trace.csv");
  small.max_bytes = TraceLog::kLeastMaxBytes - 1;
  EXPECT_NE(refusal(small).find("4096"), std::string::npos);
  TraceLogOptions odd = options_for(folder / "trace.csv");
  odd.buffer_bytes = 1000;
  EXPECT_NE(refusal(odd).find("power of two"), std::string::npos);
}

TEST(TraceLog, EverythingIsInTheFileAfterClose) {
  const TempFolder folder;
  const auto log = open_log(options_for(folder / "trace.csv"));
  for (uint64_t i = 0; i < 1000; ++i) log->write(record_number(i));
  log->close();
  EXPECT_EQ(records_in(folder / "trace.csv").size(), 1000u);
  log->write(record_number(1000));
  log->close();
  EXPECT_TRUE(log->flush());
  EXPECT_EQ(records_in(folder / "trace.csv").size(), 1000u);
  EXPECT_EQ(log->counters().written, 1000u);
  EXPECT_EQ(log->counters().dropped, 1u);
}

TEST(TraceLog, APartFilledBufferIsWrittenWithoutBeingAsked) {
  const TempFolder folder;
  PipeReader pipe(folder / "pipe");
  const auto log = open_log(options_for(folder / "pipe"));
  EXPECT_EQ(pipe.line(), kTraceCsvHeader);
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t before_ns = now_ns();
    log->write(record_number(i));
    EXPECT_TRUE(pipe.line().starts_with(std::to_string(i) + ","));
    EXPECT_GE(now_ns() - before_ns, TraceLogOptions().flush_delay_ns);
  }
}

TEST(TraceLog, ItsThreadSleepsForEverWhileNothingIsWritten) {
  const TempFolder folder;
  PipeReader pipe(folder / "pipe");
  TraceLogOptions options = options_for(folder / "pipe");
  options.flush_delay_ns = 1'000'000;
  const auto log = open_log(options);
  EXPECT_EQ(pipe.line(), kTraceCsvHeader);
  log->write(record_number(0));
  EXPECT_TRUE(pipe.line().starts_with("0,"));
  ASSERT_TRUE(log->flush());
  const uint64_t wakeups = log->counters().wakeups;
  EXPECT_TRUE(pipe.is_silent_for(300));
  EXPECT_EQ(log->counters().wakeups, wakeups);
  log->write(record_number(1));
  EXPECT_TRUE(pipe.line().starts_with("1,"));
}

TEST(TraceLog, ABurstWakesItsThreadOnceABuffer) {
  const TempFolder folder;
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.flush_delay_ns = 3'600'000'000'000;
  const auto log = open_log(options);
  const uint64_t before = log->counters().wakeups;
  const uint64_t in_two_buffers = 2 * (options.buffer_bytes / sizeof(RequestRecord));
  for (uint64_t i = 0; i < in_two_buffers; ++i) log->write(record_number(i));
  EXPECT_LE(log->counters().wakeups - before, 2u);
  ASSERT_TRUE(log->flush());
  EXPECT_LE(log->counters().wakeups - before, 3u);
  EXPECT_EQ(log->counters().written, in_two_buffers);
}

TEST(TraceLog, AFullBufferIsWrittenBeforeTheDelayIsOver) {
  const TempFolder folder;
  PipeReader pipe(folder / "pipe");
  TraceLogOptions options = options_for(folder / "pipe");
  options.flush_delay_ns = 3'600'000'000'000;
  const auto log = open_log(options);
  EXPECT_EQ(pipe.line(), kTraceCsvHeader);
  const uint64_t in_a_buffer = options.buffer_bytes / sizeof(RequestRecord);
  for (uint64_t i = 0; i <= in_a_buffer; ++i) log->write(record_number(i));
  for (uint64_t i = 0; i < in_a_buffer; ++i) {
    ASSERT_TRUE(pipe.line().starts_with(std::to_string(i) + ","));
  }
}

TEST(TraceLog, WritersGoOnAndDropsAreCountedWhileAPipeStalls) {
  const TempFolder folder;
  PipeReader pipe(folder / "pipe");
  TraceLogOptions options = options_for(folder / "pipe");
  options.buffer_bytes = 4096;
  auto log = open_log(options);
  constexpr uint64_t kRecords = 10'000;
  // Far more than the pipe and the four buffers hold: with a writer that waits this never ends.
  for (uint64_t i = 0; i < kRecords; ++i) log->write(record_number(i));
  EXPECT_GT(log->counters().dropped, kRecords / 2);
  EXPECT_FALSE(log->flush(now_ns() + 1'000'000));
  std::string text;
  std::thread reader([&] { text = pipe.until_closed(); });
  log->close();
  const TraceLogCounters counters = log->counters();
  log.reset();
  reader.join();
  EXPECT_EQ(counters.written + counters.dropped, kRecords);
  const std::vector<Row> rows = parse_csv(text);
  ASSERT_EQ(rows.size(), counters.written + 1);
  for (size_t i = 1; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), kTraceFields);
    if (i == 1) continue;
    ASSERT_LT(std::stoull(rows[i - 1][0]), std::stoull(rows[i][0]));
  }
}

TEST(TraceLog, AReaderThatGoesAwayIsAnErrorAndNoSignal) {
  const TempFolder folder;
  auto pipe = std::make_unique<PipeReader>(folder / "pipe");
  const auto log = open_log(options_for(folder / "pipe"));
  pipe.reset();
  log->write(record_number(0));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(log->counters().dropped, 1u);
  EXPECT_NE(log->last_error().message().find("Broken pipe"), std::string_view::npos);
}

TEST(TraceLog, AFullDiskIsCountedAndToldOnce) {
  std::atomic<int> told{0};
  TraceLogOptions options = options_for("/dev/full");
  options.on_error = [&](const Status& status) {
    EXPECT_NE(status.message().find("No space left"), std::string_view::npos);
    told.fetch_add(1, std::memory_order_relaxed);
  };
  const auto log = open_log(options);
  EXPECT_EQ(told.load(std::memory_order_relaxed), 1);
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 100; ++i) log->write(record_number(i));
    ASSERT_TRUE(log->flush());
  }
  EXPECT_EQ(told.load(std::memory_order_relaxed), 1);
  const TraceLogCounters counters = log->counters();
  EXPECT_EQ(counters.written, 0u);
  EXPECT_EQ(counters.dropped, 300u);
  EXPECT_EQ(counters.write_errors, 4u);
  EXPECT_NE(log->last_error().message().find("/dev/full"), std::string_view::npos);
}

// While it lives files of this process can't grow above `bytes`: a disk that is full in mid-line.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(TraceLog, ADiskThatFillsUpInMidLineLeavesWholeLinesAndIsGoneOnWithLater) {
  const TempFolder folder;
  std::atomic<int> told{0};
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.on_error = [&](const Status&) { told.fetch_add(1, std::memory_order_relaxed); };
  const auto log = open_log(options);
  TraceLogCounters full;
  {
    const FileSizeLimit limit(2000);
    for (uint64_t i = 0; i < 100; ++i) log->write(record_number(i));
    ASSERT_TRUE(log->flush());
    full = log->counters();
  }
  EXPECT_GT(full.written, 0u);
  EXPECT_EQ(full.written + full.dropped, 100u);
  EXPECT_EQ(records_in(folder / "trace.csv").size(), full.written);
  for (uint64_t i = 100; i < 110; ++i) log->write(record_number(i));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(told.load(std::memory_order_relaxed), 1);
  {
    const FileSizeLimit limit(std::filesystem::file_size(folder / "trace.csv"));
    log->write(record_number(110));
    ASSERT_TRUE(log->flush());
  }
  const std::vector<Row> rows = records_in(folder / "trace.csv");
  ASSERT_EQ(rows.size(), full.written + 10);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(rows[full.written + i][0], std::to_string(100 + i));
  EXPECT_EQ(told.load(std::memory_order_relaxed), 2);
}

TEST(TraceLog, FilesAreRotatedBySizeWithoutSplittingALine) {
  const TempFolder folder;
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_bytes = 4096;
  options.keep = 2;
  const auto log = open_log(options);
  constexpr uint64_t kRecords = 200;
  for (uint64_t i = 0; i < kRecords; ++i) log->write(record_number(i));
  log->close();
  uint64_t next = kRecords;
  for (const std::string_view name : {"trace.csv", "trace.csv.1", "trace.csv.2"}) {
    EXPECT_LE(std::filesystem::file_size(folder / name), options.max_bytes);
    const std::vector<Row> rows = records_in(folder / name);
    ASSERT_FALSE(rows.empty()) << name;
    next -= rows.size();
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i][0], std::to_string(next + i));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.csv.3"));
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.csv.new"));
  EXPECT_EQ(log->counters().written, kRecords);
  EXPECT_GE(log->counters().rotations, 3u);
}

TEST(TraceLog, WithNoneToKeepAFullFileBeginsAnew) {
  const TempFolder folder;
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_bytes = 4096;
  options.keep = 0;
  const auto log = open_log(options);
  for (uint64_t i = 0; i < 200; ++i) log->write(record_number(i));
  log->close();
  const std::vector<Row> rows = records_in(folder / "trace.csv");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back()[0], "199");
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.csv.1"));
}

TEST(TraceLog, AFileThatCannotBeRotatedIsWrittenOn) {
  const TempFolder folder;
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_bytes = 4096;
  options.keep = 1;
  std::filesystem::create_directories(folder / "trace.csv.1/occupied");
  const auto log = open_log(options);
  for (uint64_t i = 0; i < 100; ++i) log->write(record_number(i));
  log->close();
  EXPECT_EQ(records_in(folder / "trace.csv").size(), 100u);
  EXPECT_EQ(log->counters().written, 100u);
  EXPECT_GT(log->counters().write_errors, 0u);
  EXPECT_NE(log->last_error().message().find("can't rename"), std::string_view::npos);
}

TEST(TraceLog, MoreThreadsThanPlacesLoseNoCount) {
  const TempFolder folder;
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_threads = 1;
  const auto log = open_log(options);
  constexpr uint64_t kEach = 2000;
  std::vector<std::thread> threads;
  threads.reserve(9);
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) log->write(record_number(t * kEach + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  log->close();
  EXPECT_EQ(log->counters().written + log->counters().dropped, 4 * kEach);
  EXPECT_EQ(records_in(folder / "trace.csv").size(), log->counters().written);
}

struct StressResult {
  TraceLogCounters counters;
  std::vector<Row> rows;
};

// Eight threads write, a ninth asks for flushes; each line tells its writer, and when.
StressResult stress(const TraceLogOptions& options, uint64_t each) {
  auto log = open_log(options);
  std::atomic<int> at_work{8};
  std::vector<std::thread> threads;
  threads.reserve(9);
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(test::stress_seed() + t);
      for (uint64_t i = 0; i < each; ++i) {
        RequestRecord record = record_number(i);
        record.worker = static_cast<uint16_t>(t);
        record.rows = static_cast<uint32_t>(i * 8 + t);
        if (random() % 4 == 0) set_id(record, "\"," + std::to_string(i));
        log->write(record);
      }
      at_work.fetch_sub(1, std::memory_order_relaxed);
    });
  }
  threads.emplace_back([&] {
    while (at_work.load(std::memory_order_relaxed) != 0) EXPECT_TRUE(log->flush());
  });
  for (std::thread& thread : threads) thread.join();
  log->close();
  return {log->counters(), records_in(options.path)};
}

void expect_each_threads_lines_in_order(const std::vector<Row>& rows) {
  std::map<std::string, uint64_t> next;
  for (const Row& row : rows) {
    const uint64_t number = std::stoull(row[14]) / 8;
    ASSERT_EQ(std::stoull(row[14]) % 8, std::stoull(row[5]));
    ASSERT_EQ(row[7], std::to_string((2000 + number) / 1000) + "." +
                          std::to_string(1000 + number % 1000).substr(1));
    ASSERT_TRUE(row[0] == std::to_string(number) || row[0] == "\"," + std::to_string(number));
    ASSERT_EQ(row[15], "200");
    ASSERT_GE(number, next[row[5]]);
    next[row[5]] = number + 1;
  }
}

// A record may be dropped, and is counted, while the thread that fills a buffer is preempted
// between its reservation and the seal: the other writers wait a millisecond for it. On a busy
// machine that happens; only a small share of all records may be lost so.
TEST(TraceLog, EightThreadsWithRoomLoseAtMostRecordsBehindAPreemptedThread) {
  const TempFolder folder;
  const uint64_t each = test::stress_count(100'000);
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_bytes = 0;
  options.buffer_bytes = std::bit_ceil(8 * each * sizeof(RequestRecord) / 2);
  const StressResult result = stress(options, each);
  EXPECT_EQ(result.counters.written + result.counters.dropped, 8 * each);
  EXPECT_LE(result.counters.dropped, 8 * each / 100);
  EXPECT_EQ(result.rows.size(), result.counters.written);
  expect_each_threads_lines_in_order(result.rows);
}

TEST(TraceLog, EightThreadsThatOutrunTheDiskFindEachRecordWrittenOrCounted) {
  const TempFolder folder;
  const uint64_t each = test::stress_count(50'000);
  TraceLogOptions options = options_for(folder / "trace.csv");
  options.max_bytes = 0;
  options.buffer_bytes = 16 * 1024;
  const StressResult result = stress(options, each);
  EXPECT_EQ(result.counters.written + result.counters.dropped, 8 * each);
  EXPECT_GT(result.counters.written, 0u);
  EXPECT_EQ(result.rows.size(), result.counters.written);
  expect_each_threads_lines_in_order(result.rows);
}

}  // namespace
}  // namespace lumen::telemetry
