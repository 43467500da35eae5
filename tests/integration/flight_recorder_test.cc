// The flight recorder of a whole server: its records in the counters' region are, line by line,
// those of the telemetry CSV and its neighbour, of requests over HTTP and over the bus, answered
// and refused. With the fake backend.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: by gtest.
#include <lumen/base/clock.h>
#include <lumen/bus_client/infer_client.h>
#include <lumen/memory/mapping.h>
#include <lumen/telemetry/flight_reader.h>

#include "support/fake_server.h"
#include "telemetry/csv_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::server {
namespace {

using telemetry::FlightRecord;
using testing::UnorderedElementsAreArray;

constexpr std::string_view kTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

class FlightRecorderOfServer : public FakeServer {
 protected:
  FlightRecorderOfServer() {
    options_.telemetry_csv_path = csv_;
    options_.bus_path = (repository_.path() / "lumen.bus").string();
    options_.io_thread_count = 2;
    options_.stats_path = (repository_.path() / "counters").string();
  }

  // An infer request to plus_one with an id and header lines.
  static std::string request(const std::string& id, const std::string& headers = "",
                             const std::string& input = "x", uint64_t timeout_us = 0) {
    return post_request("/v2/models/plus_one/infer",
                        R"({"id":")" + id + R"(","parameters":{"timeout":)" +
                            std::to_string(timeout_us) + R"(},"inputs":[{"name":")" + input +
                            R"(","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]})",
                        headers);
  }
  static std::string traced(const std::string& id) {
    return request(id, "traceparent: " + std::string(kTrace) + "\r\n");
  }
  void ask_over_the_bus(size_t count) {
    auto client = bus_client::InferClient::connect(options_.bus_path, now_ns() + 60'000'000'000u);
    ASSERT_TRUE(client.ok()) << client.status().message();
    wire::BusTensor x{.name = "x", .offset = 0, .bytes = 16};
    ASSERT_TRUE(x.shape.append(1) && x.shape.append(4));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(
          client
              ->send({.model = "plus_one", .reply_offset = 64, .reply_room = 64, .inputs = {&x, 1}})
              .outcome,
          bus::Outcome::kOk);
      ASSERT_EQ(client->wait(now_ns() + 60'000'000'000u), bus::Outcome::kOk);
      ASSERT_TRUE(client->try_take().has_value());
      client->release();
    }
  }

  // Lines under the header.
  static std::vector<std::string> lines_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    if (!lines.empty()) lines.erase(lines.begin());
    return lines;
  }
  std::filesystem::path csv_neighbour() const {
    return telemetry::TraceLog::traceparent_path(csv_);
  }
  // Of all I/O threads.
  std::vector<FlightRecord> recent(std::span<const std::byte> region) const {
    std::vector<FlightRecord> all;
    for (size_t shard = 0; shard < options_.io_thread_count; ++shard) {
      std::ranges::move(telemetry::read_recent(region, shard), std::back_inserter(all));
    }
    return all;
  }
  std::vector<FlightRecord> recent() const { return recent(server_->counters().region()); }
  std::vector<FlightRecord> slow_of_whole_life() const {
    std::vector<FlightRecord> all;
    for (size_t shard = 0; shard < options_.io_thread_count; ++shard) {
      auto windows = telemetry::read_slow(server_->counters().region(), shard);
      std::ranges::move(windows.at(0).requests, std::back_inserter(all));
    }
    return all;
  }
  std::string line_of(const FlightRecord& one) const {
    telemetry::detail::CsvNames names;
    for (const auto name : models::kQueueTypeNames) names.queue_types.emplace_back(name);
    for (const auto name : models::kAllocatorTypeNames) names.allocator_types.emplace_back(name);
    names.models.resize(one.request.model + size_t{1});
    names.models.back() = "plus_one";
    std::string line(telemetry::detail::kMaxCsvLineBytes, '\0');
    telemetry::detail::TimestampText time;
    char* end = telemetry::detail::write_csv_line(one.request, names, time, line.data());
    line.resize(static_cast<size_t>(end - line.data()) - 1);  // less its LF
    return line;
  }
  std::vector<std::string> csv_lines(const std::vector<FlightRecord>& records) const {
    std::vector<std::string> lines;
    lines.reserve(records.size());
    for (const FlightRecord& one : records) lines.push_back(line_of(one));
    return lines;
  }
  static std::vector<std::string> neighbour_lines(const std::vector<FlightRecord>& records) {
    std::vector<std::string> lines;
    for (const FlightRecord& one : records) {
      if (one.request.traceparent.is_present == 0) continue;
      std::string line(telemetry::detail::kMaxCsvLineBytes, '\0');
      telemetry::detail::TimestampText time;
      char* end = telemetry::detail::write_traceparent_line(one.request, time, line.data());
      line.resize(static_cast<size_t>(end - line.data()) - 1);
      lines.push_back(line);
    }
    return lines;
  }

  const std::filesystem::path csv_ = repository_.path() / "requests.csv";
};

TEST_F(FlightRecorderOfServer, ItHasTheRowsOfTheCsvOfHttpAndTheBusAnsweredAndRefused) {
  start();
  for (int i = 0; i < 3; ++i) {
    HttpClient http = client();
    EXPECT_EQ(http.exchange(traced("traced")).status, 200);
    EXPECT_EQ(http.exchange(request("plain")).status, 200);
    EXPECT_EQ(http.exchange(request("bad header", "traceparent: 00-0-0-0\r\n")).status, 200);
    EXPECT_EQ(http.exchange(request("wrong", "", "no_such_input")).status, 400);
    EXPECT_EQ(http.exchange(request("late", "", "x", 1)).status, 504);
    EXPECT_EQ(http.exchange(get_request("/v2/models/plus_one")).status, 200);
  }
  EXPECT_EQ(unix_client().exchange(traced("over unix")).status, 200);
  ask_over_the_bus(5);
  server_->drain();
  const std::vector<FlightRecord> records = recent();
  ASSERT_EQ(records.size(), 3 * 5 + 1 + 5);
  EXPECT_THAT(csv_lines(records), UnorderedElementsAreArray(lines_of(csv_)));
  EXPECT_THAT(neighbour_lines(records), UnorderedElementsAreArray(lines_of(csv_neighbour())));
  EXPECT_EQ(neighbour_lines(records).size(), 4u);
  for (const std::string& line : neighbour_lines(records)) {
    EXPECT_TRUE(line.ends_with("," + std::string(kTrace))) << line;
  }
  // Fewer than a window has room for: it has all of them.
  EXPECT_THAT(csv_lines(slow_of_whole_life()), UnorderedElementsAreArray(lines_of(csv_)));
}

TEST_F(FlightRecorderOfServer, AnotherProcessFindsTheSameInTheFileWhileTheServerRuns) {
  start();
  HttpClient http = client();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(http.exchange(traced(std::to_string(i))).status, 200);
  // Answered by the same I/O thread, which has recorded earlier requests.
  EXPECT_EQ(http.exchange(get_request("/v2/health/live")).status, 200);
  const std::filesystem::path path = server_->counters_path();
  std::ifstream file(path, std::ios::binary);
  Result<Mapping> copy = Mapping::create(std::filesystem::file_size(path));
  ASSERT_TRUE(copy.ok());
  file.read(reinterpret_cast<char*>(copy->data()), static_cast<std::streamsize>(copy->size()));
  ASSERT_TRUE(file.good());
  const std::vector<FlightRecord> records = recent({copy->data(), copy->size()});
  ASSERT_EQ(records.size(), 20u);
  server_->drain();
  EXPECT_THAT(csv_lines(records), UnorderedElementsAreArray(lines_of(csv_)));
}

TEST_F(FlightRecorderOfServer, TheGenerationTellsWhetherAnIndexStillMeansItsModel) {
  start();
  HttpClient http = client();
  EXPECT_EQ(http.exchange(request("before")).status, 200);
  ASSERT_TRUE(server_->remove_model("plus_one", "").ok());
  ASSERT_TRUE(server_->add_model("plus_one", "").ok());
  EXPECT_EQ(http.exchange(request("after")).status, 200);
  EXPECT_EQ(http.exchange(get_request("/v2/health/live")).status, 200);
  const std::vector<FlightRecord> records = recent();
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(records[0].request.model, records[1].request.model);
  EXPECT_NE(records[0].generation, server_->counters().generation(records[0].request.model));
  EXPECT_EQ(records[1].generation, server_->counters().generation(records[1].request.model));
}

}  // namespace
}  // namespace lumen::server
