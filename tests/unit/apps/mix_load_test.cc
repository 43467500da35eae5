// Several plans at once: the results of each model's clients, for any behaviour of the other's
// server; and the report.
#include <lumen/client/load_run.h>
#include <lumen/client/mix_report.h>
#include "unit/apps/scripted_server.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace lumen::client {
namespace {

using Answer = ScriptedServer::Answer;

std::string request_for(const std::string& model) {
  return "POST /" + model + " HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
}

LoadPlan plan_for(const std::string& url, const std::string& model) {
  LoadPlan plan;
  auto target = parse_target(url);
  LUMEN_CHECK(target.ok());
  plan.target = *target;
  plan.request = request_for(model);
  plan.warm_up_ns = 20'000'000u;
  plan.duration_ns = 200'000'000u;
  return plan;
}

LoadResult run(const std::vector<LoadPlan>& plans) {
  const std::atomic<bool> stop{false};
  return run_loads(plans, stop);
}

bool is_of(std::string_view request, std::string_view model) {
  return request.starts_with("POST /" + std::string(model) + " ");
}

Answer good(std::string_view, uint64_t) { return {reply_of(200, "ok")}; }

TEST(MixLoad, SharedClientsAskByWeightAndEachModelIsCountedApart) {
  ScriptedServer server([](std::string_view request, uint64_t) {
    return Answer{reply_of(is_of(request, "rare") ? 429 : 200, "x")};
  });
  for (const uint32_t threads : {1u, 2u}) {
    LoadPlan plan = plan_for(server.url(), "often");
    plan.clients = 3;
    plan.threads = threads;
    plan.mix = {{request_for("often"), 0.75}, {request_for("rare"), 0.25}};
    const LoadResult result = run({plan});
    ASSERT_EQ(result.parts.size(), 2u);
    const Tally& often = *result.parts[0];
    const Tally& rare = *result.parts[1];
    EXPECT_EQ(often.failed_count(), 0u);
    EXPECT_EQ(rare.ok_count(), 0u);
    EXPECT_EQ(refused_count(rare), rare.failed_count());
    const auto all = static_cast<double>(often.ok_count() + rare.failed_count());
    EXPECT_GT(all, 20);
    // A few for the sequence itself, and clients may have a request in flight at either end.
    EXPECT_NEAR(static_cast<double>(often.ok_count()), 0.75 * all, 8);
    EXPECT_EQ(result.all->ok_count(), often.ok_count());
    EXPECT_EQ(result.all->failed_count(), rare.failed_count());
    EXPECT_GT(result.all->cpu_seconds, 0);
  }
}

// The one thing that it is for: a fast model's client must not wait for a slow one's reply.
TEST(MixLoad, AModelThatNeverAnswersHoldsNobodyElse) {
  ScriptedServer server([](std::string_view request, uint64_t) {
    return is_of(request, "stuck") ? Answer{"", SIZE_MAX, false, true} : Answer{reply_of(200, "x")};
  });
  LoadPlan stuck = plan_for(server.url(), "stuck");
  stuck.clients = 4;
  LoadPlan fast = plan_for(server.url(), "fast");
  const LoadResult result = run({stuck, fast});
  ASSERT_EQ(result.parts.size(), 2u);
  EXPECT_EQ(result.parts[0]->ok_count(), 0u);
  EXPECT_GT(result.parts[1]->ok_count(), 50u);
  EXPECT_LT(result.parts[1]->latency.mean(), 100'000'000u);
}

TEST(MixLoad, AnOpenLoopKeepsItsRateBesideAClosedOne) {
  ScriptedServer server(good);
  LoadPlan open = plan_for(server.url(), "open");
  open.rate = 500;
  open.clients = 4;
  LoadPlan closed = plan_for(server.url(), "closed");
  closed.clients = 2;
  const LoadResult result = run({open, closed});
  ASSERT_EQ(result.parts.size(), 2u);
  // 100 fall due in the window.
  EXPECT_NEAR(static_cast<double>(result.parts[0]->latency.count()), 100, 10);
  EXPECT_GT(result.parts[1]->ok_count(), 50u);
  EXPECT_EQ(result.parts[1]->send_lag.count(), 0u);
}

// Was not so while all clients stopped with the last of an open loop's late replies.
TEST(MixLoad, AClosedLoopEndsWithItsWindowWhileAnOpenOneWaitsForReplies) {
  ScriptedServer server([](std::string_view request, uint64_t) {
    return is_of(request, "stuck") ? Answer{"", SIZE_MAX, false, true} : Answer{reply_of(200, "x")};
  });
  LoadPlan stuck = plan_for(server.url(), "stuck");
  stuck.rate = 100;
  stuck.clients = 1;
  const LoadResult result = run({stuck, plan_for(server.url(), "fast")});
  EXPECT_EQ(result.parts[0]->unanswered, 1u);
  EXPECT_LT(result.parts[1]->seconds, 0.9);  // 0.2, and a busy machine's delay; the grace is 1 s
}

TEST(MixLoad, AThreadMayHaveNoClientOfAPlan) {
  ScriptedServer server(good);
  LoadPlan many = plan_for(server.url(), "many");
  many.clients = 3;
  many.threads = 3;
  const LoadResult result = run({many, plan_for(server.url(), "one")});
  EXPECT_EQ(server.connections(), 4u);
  EXPECT_GT(result.parts[1]->ok_count(), 0u);
}

MixHead head_of(bool is_shared) {
  MixHead head;
  head.is_shared = is_shared;
  for (const char* name : {"a", "b"}) {
    MixTarget target;
    target.model.name = name;
    target.model.clients = is_shared ? 0 : 2;
    target.plan = plan_for("unix:/x", name);
    head.targets.push_back(std::move(target));
  }
  return head;
}

MixRow row_of(uint32_t clients) {
  MixRow row;
  row.clients = clients;
  row.result.all = std::make_unique<Tally>();
  for (const uint64_t latency_ns : {40'000u, 60'000u}) {
    auto tally = std::make_unique<Tally>();
    tally->latency.record(latency_ns);
    tally->by_status[200] = 1;
    tally->by_status[429] = 2;
    tally->by_status[503] = 1;
    tally->by_status[500] = 5;
    row.result.all->merge(*tally);
    row.result.parts.push_back(std::move(tally));
  }
  row.server.resize(2);
  return row;
}

TEST(MixReport, EachModelHasItsFiguresAndAllTogetherTheirs) {
  std::vector<MixRow> rows;
  rows.push_back(row_of(16));
  const auto json = to_json(head_of(true), rows);
  EXPECT_EQ(json["model"], "a+b");
  EXPECT_EQ(json["loop"], "closed");
  EXPECT_EQ(json["mix"]["a"]["weight"], 1.0);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["clients"], 16);
  EXPECT_EQ(row["requests"], 2);
  EXPECT_EQ(row["models"]["a"]["latency_us"]["p50"], 40.0);
  EXPECT_EQ(row["models"]["b"]["latency_us"]["mean"], 60.0);
  EXPECT_EQ(row["models"]["b"]["refused"], 3);
  EXPECT_EQ(row["models"]["b"]["errors"]["count"], 8);
  EXPECT_FALSE(row["models"]["b"].contains("clients"));
}

TEST(MixReport, ClientsOfAModelStandBesideItsName) {
  std::vector<MixRow> rows;
  rows.push_back(row_of(0));
  const MixHead head = head_of(false);
  EXPECT_EQ(to_json(head, rows)["rows"][0]["clients"], 4);
  EXPECT_EQ(to_json(head, rows)["rows"][0]["models"]["a"]["clients"], 2);
  const std::string text = head_text(head) + row_text(head, rows[0]);
  EXPECT_NE(text.find("a+b at unix:/x: each model has clients of its own"), std::string::npos);
  EXPECT_NE(text.find("429 x 2, 500 x 5, 503 x 1"), std::string::npos) << text;
}

TEST(MixReport, AMixOfBothLoopsIsCalledSo) {
  MixHead head = head_of(false);
  head.targets[1].model.rate = 50;
  std::vector<MixRow> rows;
  rows.push_back(row_of(0));
  const auto json = to_json(head, rows);
  EXPECT_EQ(json["loop"], "mixed");
  EXPECT_EQ(json["rows"][0]["models"]["b"]["open_loop"]["rate"], 50.0);
  EXPECT_NE(head_text(head).find("open loop, 50 requests/s"), std::string::npos);
}

}  // namespace
}  // namespace lumen::client
