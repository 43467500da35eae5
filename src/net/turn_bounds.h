// The bounds of a turn that the loops over sockets share, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::net {

// How long a loop polls before it sleeps, at most and only while events come that close: a sleeper
// takes about 20 us to run after its wake-up on a virtual machine, and the wake costs its sender 6.
constexpr uint64_t kMaxSpinNs = 50'000;
// The most bytes of one receive, and of a turn of one request: as many as a request's first receive
// asks for, so that most requests come in one. It takes 4 us over a unix socket. Before there was
// this bound, a turn took all of a body that was there, and small requests of other models waited
// for it.
constexpr uint32_t kMostReceivedAtOnce = 64 * 1024;
// The most bytes that a turn takes of all large requests together: 16 us, about the cost of a
// wake-up; a small request that comes just behind waits so long. The turn's own cost, 1 us, is
// little beside it.
constexpr size_t kMostPostponedBytesPerTurn = 4 * kMostReceivedAtOnce;
// How often a turn delivers its own handlers' completions before it looks for events again.
constexpr int kCompletionPasses = 4;
// How many streams are served before it looks at other threads' work: with hundreds of bodies of
// 600 KB to take in, a reply that was ready waited 20 ms for the end of the pass.
constexpr int kDeliveriesPerLook = 8;
// The results of a turn's end (replies of models that ran on this thread) have their own passes.
constexpr int kTurnEnds = 2;
// How long no connection is accepted once no descriptor is left, not even the reserve: other
// threads close connections too, and tell nobody. Long beside an empty turn (20 us), short beside a
// client's patience.
constexpr uint64_t kAcceptPauseNs = 20'000'000;

}  // namespace lumen::net
