// The io_uring loop's turns. Owner thread only, but for wake(). Allocates at creation. A ring that
// can't be made is a Status.
//
// A turn submits the operations that were asked for since the last one, and with the same call
// looks for completions, or waits for one. Handlers ask for more, which the next turn submits.
#include "net/uring_loop.h"

#include <lumen/base/clock.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lumen::net {

namespace {

// Looks of a turn at the kernel's work, at most: enough for kCompletionsPerTurn completions.
constexpr int kLooksPerTurn = 16;

}  // namespace

// On the loop's thread: only the thread that has enabled a ring of one issuer may enter it.
void UringLoop::enable() noexcept {
  is_enabled_ = true;
  ring_->enable();
  const Uring::Entry entry = ring_->next_entry();
  entry.sqe.opcode = IORING_OP_POLL_ADD;
  entry.sqe.fd = event_.get();
  entry.sqe.poll32_events = POLLIN;
  entry.sqe.len = IORING_POLL_ADD_MULTI;  // one completion for each write: nobody need read it
  entry.sqe.user_data = kWake;
}

// Room for so many more entries, by a submission where need be. False: the kernel takes none for
// the moment, and a later turn tries again.
bool UringLoop::make_room(uint32_t entries) noexcept {
  if (ring_->room() >= entries) return true;
  ring_->enter(Uring::Wait::kNo);
  return ring_->room() >= entries;
}

void UringLoop::cancel(uint64_t of_user_data) noexcept {
  const Uring::Entry entry = ring_->next_entry();
  entry.sqe.opcode = IORING_OP_ASYNC_CANCEL;
  entry.sqe.fd = -1;
  entry.sqe.addr = of_user_data;
  entry.sqe.user_data = kNothing;
}

void UringLoop::fill_entries() noexcept {
  constexpr uint32_t kEntriesOfAStream = 3;
  while (!gathered_.empty() && make_room(kEntriesOfAStream)) {
    UringStream& state = gathered_.pop();
    state.gathered = false;
    write_entries(state);
  }
  while (!postponed_.empty() && postponed_left_ > 0 && make_room(1)) {
    --postponed_left_;
    UringStream& state = postponed_.pop();
    state.postponed = false;
    write_receive(state);
  }
  if (doors_asked_) write_door_entries();
  gathered_count_ = 0;
}

void UringLoop::submit() noexcept {
  if (!is_enabled_) return;
  fill_entries();
  if (ring_->has_entries()) ring_->enter(Uring::Wait::kNo);
}

size_t UringLoop::on_completion(const io_uring_cqe& completion) noexcept {
  const uint64_t place = completion.user_data & ~kOperationMask;
  UringStream* state = reinterpret_cast<UringStream*>(place);
  switch (completion.user_data & kOperationMask) {
    case kReceive: on_receive(*state, completion); return 0;
    case kSend: on_send(*state, completion.res); return 0;
    case kPoll: on_poll(*state, completion); return 0;
    case kAccept: return on_accept(doors_[place >> kIndexShift], completion);
    case kWatch: return on_watch(watches_[place >> kIndexShift], completion.res);
    default: return 0;  // a wake-up, or a cancellation
  }
}

// Those that were there when it began, and of them a bounded number.
size_t UringLoop::take_completions() noexcept {
  size_t ran = 0;
  const uint32_t count = std::min(ring_->completions(), kCompletionsPerTurn);
  for (uint32_t i = 0; i < count; ++i) ran += on_completion(ring_->completion(i));
  if (count > 0) ring_->take(count);
  return ran;
}

void UringLoop::complete(UringStream& state) noexcept {
  if (std::exchange(state.completed, true)) return;
  completed_.push(state);
}

// Delivers the results that were there when it began; those that handlers cause meanwhile wait for
// the next turn, so that a pipelining client can't hold the loop.
size_t UringLoop::run_completed() noexcept {
  size_t ran = 0;
  int until_look = kDeliveriesPerLook;
  const UringStream* last = completed_.last();
  while (!completed_.empty()) {
    UringStream& state = completed_.pop();
    const bool is_last = &state == last;
    state.completed = false;
    ran += deliver(state);
    if (is_last) break;
    if (--until_look == 0) {
      ran += wake_handler_.on_wake();
      until_look = kDeliveriesPerLook;
    }
  }
  return ran;
}

// Submits, and lets completions in. No system call where there is nothing of either.
void UringLoop::look() noexcept {
  if (ring_->has_entries() || ring_->has_work_in_kernel()) ring_->enter(Uring::Wait::kLook);
}

// True: there is something to do. False: it is time to sleep, or to look at the causes of a wake().
bool UringLoop::poll_before_sleep() noexcept {
  if (!wake_handler_.may_spin()) return false;
  while (!wake_word_.was_woken()) {
    look();
    if (ring_->completions() > 0 || wake_handler_.poll_memory()) return true;
    if (idle_.idle() == IdleStrategy::Step::kPark) break;
  }
  return false;
}

// Waits in the kernel, which work that is there already makes a mere look.
size_t UringLoop::sleep(uint64_t deadline_ns) noexcept {
  ++wakeups_;
  wake_handler_.before_sleep();
  // Completions that were left without a wake() so far (a worker lets them gather) save that
  // wake().
  const size_t found = wake_handler_.on_wake();
  fill_entries();
  if (found > 0 || has_work() || !wake_word_.begin_sleep()) {
    wake_handler_.after_sleep();
    look();
    return found;
  }
  idle_.parking();
  const uint64_t now = deadline_ns == UINT64_MAX ? 0 : now_ns();
  ring_->enter(Uring::Wait::kForOne,
               deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - std::min(now, deadline_ns));
  idle_.unparked();
  wake_word_.end_sleep();
  wake_handler_.after_sleep();
  return found;
}

size_t UringLoop::run_once(uint64_t deadline_ns) noexcept {
  size_t ran = 0;
  const uint64_t now = now_ns();
  last_turn_ns_ = turn_began_ns_ == 0 ? 0 : now - turn_began_ns_;
  if (!is_enabled_) enable();
  if (now >= resume_ns_) resume_doors();
  deadline_ns = std::min(deadline_ns, resume_ns_);
  postponed_left_ = kMostPostponedBytesPerTurn / kMostReceivedAtOnce;
  fill_entries();
  if (has_work() || deadline_ns <= now) {
    look();
  } else if (!poll_before_sleep()) {
    ran += sleep(deadline_ns);
  }
  // The kernel works off some 20 at a time, and a turn is to see all that has come: a request that
  // it refuses does not wait for a model that it runs.
  for (int look = 0; look < kLooksPerTurn && ring_->has_work_in_kernel() &&
                     ring_->completions() < kCompletionsPerTurn;
       ++look) {
    ring_->enter(Uring::Wait::kLook);
  }
  turn_began_ns_ = now_ns();
  if (has_work()) idle_.found();
  ran += take_completions();
  for (int round = 0; round < kTurnEnds; ++round) {
    wake_word_.served();
    ran += wake_handler_.on_wake();
    for (int pass = 0; pass < kCompletionPasses && !completed_.empty(); ++pass) {
      ran += run_completed();
    }
    const size_t done = wake_handler_.on_turn_end();
    ran += done;
    if (done == 0) break;
  }
  return ran;
}

void UringLoop::wake() noexcept {
  if (!wake_word_.wake() || ring_->tell(kWake)) return;
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));  // can only fail when it is woken already
}

Result<std::unique_ptr<Loop>> make_uring_loop(WakeHandler& wake_handler) {
  auto ring = Uring::create(kUringEntries, kUringCompletions);
  if (!ring.ok()) return ring.status();
  UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Status::from_errno(errno, "creating an eventfd");
  auto loop = std::make_unique<UringLoop>(wake_handler, std::move(*ring), std::move(event));
  LUMEN_RETURN_IF_ERROR(loop->prepare());
  return std::unique_ptr<Loop>(std::move(loop));
}

}  // namespace lumen::net
