// The load client against servers that answer, refuse, dawdle and die.
#include <lumen/client/load_run.h>

#include <lumen/client/fetch.h>
#include "client/schedule.h"
#include "unit/apps/scripted_server.h"

#include <gtest/gtest.h>

#include <string>

namespace lumen::client {
namespace {

using Answer = ScriptedServer::Answer;

const std::string kRequest = "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";

LoadPlan plan_for(const std::string& url) {
  LoadPlan plan;
  auto target = parse_target(url);
  LUMEN_CHECK(target.ok());
  plan.target = *target;
  plan.request = kRequest;
  plan.requests = 100;
  return plan;
}

std::unique_ptr<Tally> run(const LoadPlan& plan) {
  const std::atomic<bool> stop{false};
  return run_load(plan, stop);
}

uint64_t failures(const Tally& tally, Failure failure) {
  return tally.failures[static_cast<size_t>(failure)];
}

Answer good(std::string_view, uint64_t) { return {reply_of(200, "ok")}; }

TEST(LoadRun, SendsExactlyTheRequestsThatWereAskedFor) {
  for (const uint32_t threads : {1u, 3u}) {
    ScriptedServer server(good);
    LoadPlan plan = plan_for(server.url());
    plan.clients = 7;
    plan.threads = threads;
    plan.warm_up_requests = 10;
    const auto tally = run(plan);
    EXPECT_EQ(tally->ok_count(), 100u);
    EXPECT_EQ(tally->failed_count(), 0u);
    EXPECT_EQ(tally->latency.count(), 100u);
    EXPECT_EQ(server.requests(), 110u);
    EXPECT_EQ(server.connections(), 7u);
    EXPECT_EQ(tally->bytes_sent, 100 * kRequest.size());
    EXPECT_EQ(tally->bytes_received, 100 * reply_of(200, "ok").size());
    EXPECT_GT(tally->per_second, 0);
    EXPECT_LE(tally->connect.count(), 7u);
    EXPECT_GE(tally->connect.count(), 1u);
  }
}

TEST(LoadRun, SendsTheWarmUpsOwnRequestUntilTheMeasuredOnesBegin) {
  std::atomic<uint64_t> warm{0};
  ScriptedServer server([&](std::string_view request, uint64_t) {
    if (request.find("warm!") != std::string_view::npos) ++warm;
    return Answer{reply_of(200, "")};
  });
  LoadPlan plan = plan_for(server.url());
  plan.warm_up_request = "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nwarm!";
  plan.warm_up_requests = 13;
  EXPECT_EQ(run(plan)->ok_count(), 100u);
  EXPECT_EQ(warm.load(), 13u);
}

TEST(LoadRun, WithMoreClientsThanRequestsSendsNoMore) {
  ScriptedServer server(good);
  LoadPlan plan = plan_for(server.url());
  plan.clients = 8;
  plan.threads = 8;
  plan.requests = 3;
  EXPECT_EQ(run(plan)->ok_count(), 3u);
  EXPECT_EQ(server.requests(), 3u);
}

TEST(LoadRun, CountsOtherStatusesApartAndKeepsTheFirstOfThem) {
  ScriptedServer server([](std::string_view, uint64_t number) {
    return Answer{number % 4 == 0 ? reply_of(503, "busy") : reply_of(200, "ok")};
  });
  const auto tally = run(plan_for(server.url()));
  EXPECT_EQ(tally->ok_count(), 75u);
  EXPECT_EQ(tally->by_status[503], 25u);
  EXPECT_EQ(tally->failed_count(), 25u);
  EXPECT_EQ(tally->latency.count(), 75u);
  EXPECT_NE(tally->first_error.find("busy"), std::string::npos);
  EXPECT_EQ(server.connections(), 1u);
}

// Where the refusal tells for how long (and the bench was asked to obey), nobody asks meanwhile.
TEST(LoadRun, AClientThatIsToldToWaitDoesNotAskMeanwhile) {
  const auto refuse = [](std::string_view, uint64_t) {
    return Answer{reply_of(429, "later", "Retry-After: 3600\r\n")};
  };
  for (const bool obeys : {false, true}) {
    ScriptedServer server(refuse);
    LoadPlan plan = plan_for(server.url());
    plan.requests = 0;
    plan.clients = 3;
    plan.warm_up_ns = 0;
    plan.duration_ns = 200'000'000;
    plan.obey_retry_after = obeys;
    const auto tally = run(plan);
    EXPECT_EQ(tally->failed_count() == 3u, obeys) << tally->failed_count();
    EXPECT_GE(tally->failed_count(), 3u);
  }
}

TEST(LoadRun, AClientThatWasToldToWaitAsksAgainAfterwards) {
  ScriptedServer server([](std::string_view, uint64_t number) {
    if (number == 1) return Answer{reply_of(429, "later", "Retry-After: 1\r\n")};
    return Answer{reply_of(200, "ok")};
  });
  LoadPlan plan = plan_for(server.url());
  plan.clients = 1;
  plan.requests = 4;
  plan.obey_retry_after = true;
  const auto tally = run(plan);
  EXPECT_EQ(tally->ok_count(), 3u);
  EXPECT_EQ(tally->by_status[429], 1u);
  EXPECT_GE(tally->seconds, 1.0);
}

TEST(LoadRun, MakesAConnectionARequestWhereThatIsAsked) {
  ScriptedServer server(good);
  LoadPlan plan = plan_for(server.url());
  plan.clients = 3;
  plan.new_connection = true;
  const auto tally = run(plan);
  EXPECT_EQ(tally->ok_count(), 100u);
  EXPECT_EQ(server.connections(), 100u);
  EXPECT_EQ(tally->connect.count(), 100u);
  EXPECT_GE(tally->latency.min(), tally->connect.min());
}

TEST(LoadRun, ConnectsAgainWhereTheServerClosesAfterAReply) {
  ScriptedServer server([](std::string_view, uint64_t) {
    return Answer{reply_of(200, "", "Connection: close\r\n"), SIZE_MAX, true};
  });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 20;
  const auto tally = run(plan);
  EXPECT_EQ(tally->ok_count(), 20u);
  EXPECT_EQ(tally->failed_count(), 0u);
  EXPECT_EQ(server.connections(), 20u);
}

TEST(LoadRun, PutsAReplyTogetherFromSingleBytes) {
  ScriptedServer server([](std::string_view, uint64_t) { return Answer{reply_of(200, "ok"), 1}; });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 20;
  EXPECT_EQ(run(plan)->ok_count(), 20u);
}

TEST(LoadRun, SendsAndReceivesMoreThanTheSocketsHold) {
  const std::string large(3'000'000, 'x');
  ScriptedServer server([&](std::string_view request, uint64_t) {
    EXPECT_GT(request.size(), large.size());
    return Answer{reply_of(200, large)};
  });
  LoadPlan plan = plan_for(server.url());
  plan.request = "POST /x HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n" + large;
  plan.requests = 5;
  plan.clients = 2;
  const auto tally = run(plan);
  EXPECT_EQ(tally->ok_count(), 5u);
  EXPECT_EQ(tally->shortest_reply, reply_of(200, large).size());
}

TEST(LoadRun, CountsAConnectionThatEndsWithoutAReply) {
  ScriptedServer server([](std::string_view, uint64_t) {
    return Answer{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", SIZE_MAX, true};
  });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 3;
  const auto tally = run(plan);
  EXPECT_EQ(failures(*tally, Failure::kClosed), 3u);
  EXPECT_EQ(tally->ok_count(), 0u);
  EXPECT_NE(tally->first_error.find("closed"), std::string::npos);
}

TEST(LoadRun, CountsRepliesThatAreNoHttpOrHaveNoLength) {
  for (const char* bytes : {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"}) {
    ScriptedServer server([bytes](std::string_view, uint64_t) { return Answer{bytes}; });
    LoadPlan plan = plan_for(server.url());
    plan.requests = 2;
    const auto tally = run(plan);
    EXPECT_EQ(failures(*tally, Failure::kBroken), 2u) << bytes;
    EXPECT_FALSE(tally->first_error.empty());
  }
}

TEST(LoadRun, TakesAnEarlyRefusalAsTheReply) {
  const std::string large(8'000'000, 'x');
  ScriptedServer server(
      [](std::string_view, uint64_t) {
        return Answer{reply_of(413, "too large", "Connection: close\r\n"), SIZE_MAX, true};
      },
      true);
  LoadPlan plan = plan_for(server.url());
  plan.request = "POST /x HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n" + large;
  plan.requests = 3;
  const auto tally = run(plan);
  EXPECT_EQ(tally->by_status[413], 3u) << tally->first_error;
  EXPECT_EQ(tally->failed_count(), 3u);
}

TEST(LoadRun, GivesUpOnARequestAfterItsTimeout) {
  ScriptedServer server([](std::string_view, uint64_t number) {
    return number == 1 ? Answer{"", SIZE_MAX, false, true} : Answer{reply_of(200, "ok")};
  });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 5;
  plan.timeout_ns = 500'000'000u;
  const auto tally = run(plan);
  EXPECT_EQ(failures(*tally, Failure::kTimeout), 1u);
  EXPECT_EQ(tally->ok_count(), 4u);
}

TEST(LoadRun, CountsConnectionsThatAreNotToBeHad) {
  LoadPlan plan = plan_for("unix:/nonexistent/lumen.sock");
  plan.requests = 3;
  const auto tally = run(plan);
  EXPECT_EQ(failures(*tally, Failure::kConnect), 3u);
  EXPECT_NE(tally->first_error.find("connect: "), std::string::npos);
}

TEST(LoadRun, RunsForItsTimeAndTellsWhenTheWindowBegins) {
  ScriptedServer server(good);
  LoadPlan plan = plan_for(server.url());
  plan.requests = 0;
  plan.warm_up_ns = 200'000'000u;
  plan.duration_ns = 200'000'000u;
  plan.clients = 2;
  const std::atomic<bool> stop{false};
  uint64_t seen_at_begin = 0;
  const auto tally = run_load(plan, stop, [&] { seen_at_begin = server.requests(); });
  EXPECT_GE(tally->seconds, 0.2);
  EXPECT_GT(seen_at_begin, 0u);
  EXPECT_GT(tally->ok_count(), 0u);
  EXPECT_LT(tally->ok_count(), server.requests());
  EXPECT_NEAR(tally->per_second, static_cast<double>(tally->ok_count()) / tally->seconds, 1);
}

TEST(LoadRun, EndsAtOnceWhenItIsTold) {
  std::atomic<bool> stop{false};
  ScriptedServer server([&](std::string_view, uint64_t number) {
    if (number == 50) stop = true;
    return Answer{reply_of(200, "ok")};
  });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 0;
  plan.warm_up_ns = 0;
  plan.duration_ns = 3'600'000'000'000u;
  const auto tally = run_load(plan, stop);
  EXPECT_GE(tally->ok_count(), 40u);
  EXPECT_LT(tally->seconds, 60);
}

TEST(OpenLoop, SendsAtItsRateWhereTheServerKeepsUp) {
  ScriptedServer server(good);
  LoadPlan plan = plan_for(server.url());
  plan.clients = 4;
  plan.rate = 2000;
  plan.requests = 200;
  const auto tally = run(plan);
  EXPECT_EQ(tally->ok_count(), 200u);
  // 199 intervals of 500 us before the last one leaves.
  EXPECT_GE(tally->seconds, 0.0995);
}

// The one thing that an open loop is for: requests that a held-up client could not send count too.
TEST(OpenLoop, CountsUnsentRequestsWithTheTimeTheyWaited) {
  ScriptedServer server(
      [](std::string_view, uint64_t) { return Answer{"", SIZE_MAX, false, true}; });
  LoadPlan plan = plan_for(server.url());
  plan.requests = 0;
  plan.warm_up_ns = 0;
  plan.duration_ns = 400'000'000u;
  plan.rate = 250;
  const auto tally = run(plan);
  EXPECT_EQ(server.requests(), 1u);
  EXPECT_EQ(tally->unanswered, 1u);
  EXPECT_EQ(tally->unsent, 99u);
  EXPECT_EQ(tally->latency.count(), 100u);
  EXPECT_EQ(tally->most_waiting, 99u);
  // The run waits a second for replies under way: all have waited at least that long.
  EXPECT_GE(tally->latency.min(), 1'000'000'000u);
}

TEST(OpenLoop, CountsFromTheIntendedTime) {
  ScriptedServer server(good);
  LoadPlan plan = plan_for(server.url());
  plan.rate = 1e6;
  plan.requests = 2000;
  const auto tally = run(plan);
  EXPECT_EQ(tally->latency.count(), 2000u);
  // A round trip takes longer than the interval of 1 us, so the last one has waited for all others:
  // the mean is about half of the run, where a closed loop's would be a two-thousandth.
  EXPECT_GT(static_cast<double>(tally->latency.max()), tally->seconds * 1e9 * 0.5);
  EXPECT_GT(tally->latency.mean(), tally->seconds * 1e9 * 0.2);
  EXPECT_GT(tally->most_waiting, 100u);
}

TEST(Schedule, CountsEachDueTimeOnce) {
  for (const double rate : {0.3, 1.0, 999.7, 12'345.6, 1e6, 3e7}) {
    const Schedule schedule(1'000'000'007u, rate, 0.25);
    for (uint64_t i = 0; i < 2000; ++i) {
      const uint64_t due = schedule.due_ns(i);
      EXPECT_LE(schedule.due_count(due), i);
      EXPECT_GE(schedule.due_count(due + 1), i + 1);
      EXPECT_LE(due, schedule.due_ns(i + 1));
    }
    EXPECT_EQ(schedule.due_count(0), 0u);
  }
}

TEST(Fetch, ReadsRepliesByLengthByChunksAndUntilTheEnd) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (const std::string& bytes :
       {reply_of(200, "abcde"), chunked, std::string("HTTP/1.1 200 OK\r\n\r\nabcde")}) {
    ScriptedServer server([&](std::string_view, uint64_t) { return Answer{bytes, 7, true}; }, true);
    const auto target = parse_target(server.url());
    ASSERT_TRUE(target.ok());
    const auto reply = fetch(*target, "/v2");
    ASSERT_TRUE(reply.ok()) << bytes << reply.status().message();
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, "abcde");
  }
}

TEST(Fetch, TellsOfAReplyThatIsCutShort) {
  ScriptedServer server(
      [](std::string_view, uint64_t) {
        return Answer{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", SIZE_MAX, true};
      },
      true);
  const auto target = parse_target(server.url());
  ASSERT_TRUE(target.ok());
  const auto reply = fetch(*target, "/v2");
  ASSERT_FALSE(reply.ok());
  EXPECT_NE(reply.status().message().find("GET /v2 of unix:"), std::string_view::npos);
}

TEST(Fetch, GivesUpOnASilentServer) {
  ScriptedServer server(
      [](std::string_view, uint64_t) { return Answer{"", SIZE_MAX, false, true}; }, true);
  const auto target = parse_target(server.url());
  ASSERT_TRUE(target.ok());
  const auto reply = fetch(*target, "/v2", 50'000'000u);
  ASSERT_FALSE(reply.ok());
  EXPECT_NE(reply.status().message().find("no reply in time"), std::string_view::npos);
}

}  // namespace
}  // namespace lumen::client
