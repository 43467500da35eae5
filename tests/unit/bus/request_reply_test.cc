// Request and reply: several in flight, replies in any order, deadlines, cancel, made-up replies.
#include <lumen/bus/request_reply.h>

#include "unit/bus/bus_fixture.h"

#include <thread>
#include <vector>

namespace lumen::bus {
namespace {

class RequestReply : public BusTest {
 protected:
  void start_pair(uint32_t in_flight = 8, const ListenerOptions& options = {.role = Role::kBoth}) {
    listen(options);
    requester.emplace(connect_as(Role::kBoth), in_flight);
    responder.emplace(accept());
  }
  uint64_t send(std::string_view text, uint64_t deadline_ns = UINT64_MAX) {
    const Requester::Sent sent = requester->send(bytes_of(text), 1, deadline_ns);
    EXPECT_EQ(sent.outcome, Outcome::kOk);
    return sent.id;
  }
  static std::string text_of(std::span<const std::byte> data) {
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  std::optional<Requester> requester;
  std::optional<Responder> responder;
};

TEST_F(RequestReply, RepliesComeInAnyOrderToTheRequestsTheyAnswer) {
  start_pair();
  const uint64_t a = send("a");
  const uint64_t b = send("b");
  ASSERT_EQ(responder->wait(patience()), Outcome::kOk);
  const auto first = responder->try_take();
  const auto second = responder->try_take();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data.data()) % 64, 0u);
  EXPECT_EQ(responder->reply(second->id, bytes_of("to b"), 2, 7), Outcome::kOk);
  EXPECT_EQ(responder->reply(first->id, bytes_of("to a"), 2), Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  auto reply = requester->try_take();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->id, b);
  EXPECT_EQ(reply->status, 7u);
  EXPECT_EQ(text_of(reply->data), "to b");
  reply = requester->try_take();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->id, a);
  EXPECT_EQ(requester->in_flight(), 0u);
  EXPECT_EQ(requester->wait(patience()), Outcome::kNotNow) << "nothing is in flight";
}

TEST_F(RequestReply, ARequestEndsAtItsDeadlineOnceAndItsLateReplyIsDropped) {
  start_pair();
  const uint64_t id = send("slow", now_ns() + 1'000'000);
  const uint64_t other = send("patient");
  ASSERT_EQ(responder->wait(patience()), Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  const auto ended = requester->try_take();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->id, id);
  EXPECT_EQ(ended->outcome, Outcome::kTimedOut);
  EXPECT_FALSE(requester->try_take());
  // It was late before it was looked at, so the responder sees the other one alone.
  const auto request = responder->try_take();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->id, other);
  EXPECT_EQ(responder->late(), 1u);
  EXPECT_EQ(responder->reply(id, bytes_of("late"), 1), Outcome::kOk);
  EXPECT_EQ(responder->reply(other, bytes_of("in time"), 1), Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  EXPECT_EQ(text_of(requester->try_take()->data), "in time");
  EXPECT_EQ(requester->unexpected(), 1u);
}

TEST_F(RequestReply, ACancelledRequestIsToldAndItsReplyDropped) {
  start_pair();
  const uint64_t id = send("never mind");
  EXPECT_TRUE(requester->cancel(id));
  EXPECT_FALSE(requester->cancel(id));
  ASSERT_EQ(responder->wait(patience()), Outcome::kOk);
  EXPECT_EQ(responder->try_take()->kind, MessageKind::kRequest);
  const auto cancel = responder->try_take();
  ASSERT_TRUE(cancel);
  EXPECT_EQ(cancel->kind, MessageKind::kCancel);
  EXPECT_EQ(cancel->id, id);
  EXPECT_EQ(responder->reply(id, {}, 1), Outcome::kOk);
  const uint64_t next = send("this one");
  EXPECT_NE(next, id) << "an id is not used again";
  EXPECT_EQ(responder->reply(next, bytes_of("yes"), 1), Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  EXPECT_EQ(requester->try_take()->id, next);
  EXPECT_EQ(requester->unexpected(), 1u);
}

TEST_F(RequestReply, NoMoreAreInFlightThanWasSaid) {
  start_pair(2);
  send("a");
  const uint64_t b = send("b");
  EXPECT_EQ(requester->send(bytes_of("c"), 1).outcome, Outcome::kNotNow);
  EXPECT_TRUE(requester->cancel(b));
  EXPECT_EQ(requester->send(bytes_of("c"), 1).outcome, Outcome::kOk);
}

// The trailer lies behind the data, in a line of its own only where the last one is full.
TEST_F(RequestReply, DataOfEverySizeArrivesAsItWasSentBothWays) {
  start_pair();
  for (size_t size = 0; size <= 200; ++size) {
    std::string text(size, ' ');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(size + i);
    const uint64_t id = send(text, patience());
    ASSERT_EQ(responder->wait(patience()), Outcome::kOk);
    const auto request = responder->try_take();
    ASSERT_TRUE(request) << size;
    EXPECT_EQ(text_of(request->data), text);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(request->data.data()) % 64, 0u);
    ASSERT_EQ(responder->reply(id, request->data, 3, 7), Outcome::kOk);
    responder->release();
    ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
    const auto reply = requester->try_take();
    ASSERT_TRUE(reply) << size;
    EXPECT_EQ(reply->id, id);
    EXPECT_EQ(reply->status, 7u);
    EXPECT_EQ(text_of(reply->data), text);
    requester->release();
  }
}

TEST_F(RequestReply, AMessageThatIsTooShortForItsTrailerEndsTheConnection) {
  start_pair();
  const uint64_t id = send("a");
  ASSERT_EQ(responder->connection().publisher->send(bytes_of("15 bytes of it!"), 1, id),
            Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  EXPECT_FALSE(requester->try_take());
  EXPECT_EQ(requester->wait(patience()), Outcome::kInvalid);
}

TEST_F(RequestReply, AMessageThatIsNoneOfThisProtocolEndsTheConnection) {
  start_pair();
  const uint64_t id = send("a");
  ASSERT_EQ(responder->connection().publisher->send(bytes_of("no trailer is in this text"), 1, id),
            Outcome::kOk);
  ASSERT_EQ(requester->wait(patience()), Outcome::kOk);
  EXPECT_FALSE(requester->try_take());
  EXPECT_EQ(requester->wait(patience()), Outcome::kInvalid);
  EXPECT_EQ(responder->wait(patience()), Outcome::kOk) << "its request is still there";
  EXPECT_TRUE(responder->try_take());
  EXPECT_EQ(responder->wait(patience()), Outcome::kInvalid) << "and then it is told";
}

TEST_F(RequestReply, ACallWaitsForItsOwnReply) {
  start_pair(8, {.role = Role::kBoth, .capacity = 4096});
  std::thread answers([&] {
    while (responder->wait(patience()) == Outcome::kOk) {
      while (const auto request = responder->try_take()) {
        EXPECT_EQ(responder->reply(request->id, request->data, request->type_id), Outcome::kOk);
      }
      responder->release();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    const std::string text = std::to_string(i);
    const Requester::Reply reply = requester->call(bytes_of(text), 1, patience());
    ASSERT_EQ(reply.outcome, Outcome::kOk) << name_of(reply.outcome);
    ASSERT_EQ(text_of(reply.data), text);
  }
  requester.reset();
  answers.join();
}

TEST_F(RequestReply, ACallEndsAtItsDeadline) {
  start_pair();
  EXPECT_EQ(requester->call(bytes_of("a"), 1, now_ns() + 1'000'000).outcome, Outcome::kTimedOut);
  EXPECT_EQ(requester->in_flight(), 0u);
  responder.reset();
  EXPECT_EQ(requester->call(bytes_of("a"), 1, patience()).outcome, Outcome::kClosed);
}

}  // namespace
}  // namespace lumen::bus
