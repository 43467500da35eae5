// Session tokens in a ChronoCache: each use prolongs a session, one that is not used ends, and the
// rights of a session are looked up once, for any number of requests that ask at the same time.
// Threads: three that ask. Memory: the cache. Errors: exit 1 if a session does more than it may.
#include <lumen/cache/chrono_cache.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using lumen::cache::FakeClock;  // so that an hour passes at once; leave it out for the real time

struct Session {
  std::string user;
};
// Told once of each session that goes, under a lock: it only counts.
struct CountEnded {
  static inline std::atomic<int> ended{0};
  void operator()(const std::string&, const Session&, lumen::cache::Removal why) const noexcept {
    // relaxed: a number
    if (why == lumen::cache::Removal::kExpired) ended.fetch_add(1, std::memory_order_relaxed);
  }
};
using Sessions =
    lumen::ChronoCache<std::string, Session, FakeClock, lumen::cache::OnRemoval<CountEnded>>;

// The session behind a token, with another half an hour to live.
std::string user_of(Sessions& sessions, std::string_view token) {
  const auto session = sessions.get(token);
  if (!session) return "nobody";
  sessions.put(std::string(token), *session, 30min);
  return session->user;
}

void expect(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

}  // namespace

int main() {
  Sessions sessions;
  sessions.put("token of ada", {"ada"}, 30min);
  sessions.put("token of bob", {"bob"}, 30min);

  // Ada asks every twenty minutes, bob never again.
  for (int i = 0; i < 3; ++i) {
    FakeClock::advance_ns(static_cast<uint64_t>(std::chrono::nanoseconds(20min).count()));
    expect(user_of(sessions, "token of ada") == "ada", "a session that is used ended");
  }
  expect(user_of(sessions, "token of bob") == "nobody", "a session that is not used goes on");
  sessions.tick();
  std::printf("%zu session, %d ended\n", sessions.size(), CountEnded::ended.load());

  // Three requests at once ask for a session that is not in memory: the database is asked once.
  std::atomic<int> asked{0};
  std::vector<std::thread> requests;
  requests.reserve(3);
  for (int i = 0; i < 3; ++i) {
    requests.emplace_back([&] {
      const Session session = sessions.get_or_compute("token of eve", 30min, [&] {
        asked.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
        return Session{"eve"};
      });
      expect(session.user == "eve", "another's session");
    });
  }
  for (std::thread& request : requests) request.join();
  expect(asked.load() == 1, "the database was asked more than once");
  std::printf("the database was asked once\n");
}
