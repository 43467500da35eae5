// An observer's view of a listener's rings; asking changes nothing for those that use them.
#include <lumen/bus/observer.h>

#include "unit/bus/bus_fixture.h"

namespace lumen::bus {
namespace {

class Observing : public BusTest {};

TEST_F(Observing, TellsFramesBytesFillAndTypesOfEachRing) {
  start({.capacity = 4096});
  for (int i = 0; i < 3; ++i) put(std::string(100, 'a'), 7);
  put(std::string(64, 'b'), 9);
  publisher().flush();
  ASSERT_TRUE(subscriber().try_take());
  subscriber().release();
  auto observer = Observer::connect(path);
  ASSERT_TRUE(observer.ok()) << observer.status().message();
  auto rings = observer->read();
  ASSERT_TRUE(rings.ok()) << rings.status().message();
  ASSERT_EQ(rings->size(), 1u);
  const RingFigures& ring = rings->front().ring;
  EXPECT_EQ(ring.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(ring.publishes, 1u);
  EXPECT_EQ(ring.capacity, 4096u);
  EXPECT_EQ(ring.frames, 4u);
  EXPECT_EQ(ring.bytes, 3 * 128u + 64u);
  EXPECT_EQ(ring.unread_frames, 3u);
  EXPECT_EQ(ring.unread_bytes, 2 * 128u + 64u);
  ASSERT_EQ(rings->front().types.size(), 2u);
  for (const TypeFigures& type : rings->front().types) {
    EXPECT_EQ(type.frames, type.type_id == 7 ? 3u : 1u);
    EXPECT_EQ(type.bytes, type.type_id == 7 ? 300u : 64u);
  }
  theirs.reset();
  ours.reset();
  rings = observer->read();
  ASSERT_TRUE(rings.ok());
  EXPECT_TRUE(rings->empty());
  EXPECT_EQ(listener->counts().connections, 0u);
  EXPECT_EQ(listener->counts().bytes, 0u);
  listener.reset();
  EXPECT_FALSE(observer->read().ok());
}

TEST_F(Observing, MoreTypesThanThereAreRowsAreCountedTogether) {
  start({.capacity = 1 << 20});
  for (uint32_t type = 1; type <= 1000; ++type) put("x", type);
  for (uint32_t type = 1; type <= 1000; ++type) put("x", type);
  publisher().flush();
  auto observer = Observer::connect(path);
  const auto rings = observer->read();
  ASSERT_TRUE(rings.ok());
  uint64_t frames = 0;
  for (const TypeFigures& type : rings->front().types) frames += type.frames;
  EXPECT_EQ(frames, 2000u);
  EXPECT_EQ(rings->front().types.size(), kCountedTypes - 1u)
      << "row 0 is type 0, of which none came";
}

TEST_F(Observing, NobodyListening) {
  const auto observer = Observer::connect(path);
  ASSERT_FALSE(observer.ok());
  EXPECT_NE(observer.status().message().find("nobody listens there"), std::string_view::npos);
}

}  // namespace
}  // namespace lumen::bus
