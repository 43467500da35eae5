// See the header.
#include "backends/python/step_link.h"

#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include "backends/python/step_message.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>
#include <utility>

namespace lumen::backends::python {
namespace {

using models::InferRequest;
using models::StartOutcome;

// Between two attempts to start a process that ends again and again.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{5'000};
// A process that has served for so long did not fail to start.
constexpr uint64_t kHealthyNs = 10'000'000'000;

Status failure_of(const bus::Requester::Reply& reply, const std::string& model) {
  const std::string words(reinterpret_cast<const char*>(reply.data.data()), reply.data.size());
  const bool is_input = reply.status == static_cast<uint32_t>(StepStatus::kBadInput);
  return Status::error(is_input ? Code::kInvalidArgument : Code::kInternal, "model '%s': %s",
                       model.c_str(), words.c_str());
}

}  // namespace

Result<std::unique_ptr<StepLink>> StepLink::open(StepSource source) {
  const std::atomic<bool> goes_on{false};
  Result<std::unique_ptr<StepProcess>> process = StepProcess::start(source, goes_on);
  if (!process.ok()) return process.status();
  std::unique_ptr<StepLink> link(new StepLink(std::move(source), std::move(*process)));
  if (!link->alarm_.valid()) return Status::from_errno(errno, "no descriptor for a model's alarm");
  link->thread_ = std::thread([one = link.get()] { one->run(); });
  return link;
}

StepLink::StepLink(StepSource source, std::unique_ptr<StepProcess> process)
    : source_(std::move(source)),
      alarm_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      process_(std::move(process)),
      is_ready_(true) {}

StepLink::~StepLink() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);  // relaxed: the mutex orders it for the thread
  }
  stopping_.notify_all();
  eventfd_write(alarm_.get(), 1);
  thread_.join();
}

StartOutcome StepLink::start(InferRequest& request, Done done) noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_ready_) {
    // First: the thread may be in fail_all(), without the mutex.
    request.status = Status::error(Code::kUnavailable,
                                   "model '%s': its Python process is being started again: %s",
                                   source_.metadata.name.c_str(), why_not_ready_.c_str());
    return StartOutcome::kDone;
  }
  const Place place{&request, done};
  if (!wants_room()) {
    const Sending sending = send(place);
    if (sending == Sending::kSent) return StartOutcome::kPending;
    if (sending == Sending::kRefused) return StartOutcome::kDone;
  }
  if (!waiting_.push(place)) {
    request.status = Status::error(Code::kResourceExhausted,
                                   "model '%s': %u requests wait for room to its Python process",
                                   source_.metadata.name.c_str(), WaitingLine::kMost);
    return StartOutcome::kDone;
  }
  // Asleep, it has not asked to be told of room.
  if (sleeps_until_ns_ != 0) eventfd_write(alarm_.get(), 1);
  return StartOutcome::kPending;
}

StepLink::Sending StepLink::send(const Place& place) noexcept {
  InferRequest& request = *place.request;
  const char* const model = source_.metadata.name.c_str();
  const auto refuse = [&](Status status) {
    request.status = std::move(status);
    return Sending::kRefused;
  };
  bus::Requester& requester = process_->requester();
  const size_t bytes = message_bytes(request.inputs);
  const bus::Publisher::Place room = requester.try_reserve(bytes);
  if (room.outcome == bus::Outcome::kNotNow) return Sending::kNoRoom;
  if (room.outcome == bus::Outcome::kTooLarge) {
    return refuse(
        Status::error(Code::kTooLarge,
                      "model '%s': inputs of %zu bytes, wanted at most %llu, the size of the ring "
                      "to its Python process",
                      model, bytes, static_cast<unsigned long long>(source_.ring_bytes)));
  }
  const auto has_ended = [&](bus::Outcome outcome) {
    return refuse(Status::error(Code::kUnavailable, "model '%s': its Python process: %s", model,
                                bus::name_of(outcome)));
  };
  if (!room) return has_ended(room.outcome);
  write_message(request.inputs, room.bytes.first(bytes));
  request.times.preprocessed_ns = now_ns();
  const uint64_t deadline_ns = request.deadline_ns;
  const bus::Requester::Sent sent =
      requester.send_reserved(bytes, static_cast<uint32_t>(StepMessage::kRun), deadline_ns);
  if (sent.outcome != bus::Outcome::kOk) return has_ended(sent.outcome);
  places_[sent.id % kPlaces] = place;
  requester.flush();
  if (deadline_ns < sleeps_until_ns_) eventfd_write(alarm_.get(), 1);
  return Sending::kSent;
}

std::optional<Place> StepLink::send_waiting() noexcept {
  if (wants_ping_) ping();
  if (std::optional<Place> late = waiting_.take_late(now_ns())) {
    late->request->status = late_status();
    return late;
  }
  while (!wants_ping_ && !waiting_.is_empty()) {
    const Place first = waiting_.front();
    const Sending sending = send(first);
    if (sending == Sending::kNoRoom) break;
    waiting_.pop();
    if (sending == Sending::kRefused) return first;
  }
  return std::nullopt;
}

Status StepLink::late_status() const noexcept {
  return Status::error(Code::kDeadlineExceeded,
                       "model '%s': its Python process did not answer in time",
                       source_.metadata.name.c_str());
}

void StepLink::run() noexcept {
  pthread_setname_np(pthread_self(), "lumen-step");
  std::chrono::milliseconds pause{0};
  for (;;) {
    const uint64_t began_ns = now_ns();
    serve();
    if (!leave_process()) return;
    if (now_ns() - began_ns > kHealthyNs) pause = {};
    do {
      if (!wait(pause)) return;
      pause = std::clamp(2 * pause, kFirstPause, kLongestPause);
    } while (!restart());
  }
}

bool StepLink::wait(std::chrono::milliseconds pause) noexcept {
  std::unique_lock lock(mutex_);
  return !stopping_.wait_for(lock, pause, [this] {
    return stop_.load(std::memory_order_relaxed);  // relaxed: under the mutex
  });
}

bool StepLink::leave_process() noexcept {
  std::unique_lock lock(mutex_);
  // relaxed: under the mutex
  if (stop_.load(std::memory_order_relaxed)) return false;
  is_ready_ = false;
  why_not_ready_ = "it has ended";
  lock.unlock();
  // From here on start() leaves the process and the places alone.
  const std::string why = process_->text_of_end();
  fail_all(Status::error(Code::kUnavailable,
                         "model '%s': its Python process had this request as %s",
                         source_.metadata.name.c_str(), why.c_str()));
  process_.reset();
  lock.lock();
  why_not_ready_ = why;
  lock.unlock();
  tell("is started again", why);
  return true;
}

void StepLink::tell(std::string_view how, std::string_view why) const {
  if (!source_.python.tell) return;
  std::string text("model '");
  text.append(source_.metadata.name).append("': its Python process ").append(how);
  if (!why.empty()) text.append(": ").append(why);
  source_.python.tell(text);
}

bool StepLink::restart() noexcept {
  Result<std::unique_ptr<StepProcess>> process = StepProcess::start(source_, stop_);
  if (!process.ok()) {
    tell("can't be started", process.status().message());
    const std::lock_guard lock(mutex_);
    why_not_ready_ = process.status().message();
    return false;
  }
  restarts_.fetch_add(1, std::memory_order_relaxed);  // relaxed: see restarts()
  tell("is ready again", {});
  const std::lock_guard lock(mutex_);
  process_ = std::move(*process);
  is_ready_ = true;
  ping_id_ = kNoPing;
  wants_ping_ = false;
  silent_until_ns_ = UINT64_MAX;
  unexpected_ = 0;
  return true;
}

void StepLink::serve() noexcept {
  bus::Subscriber& subscriber = *process_->requester().connection().subscriber;
  // A Python that shares the only CPU can't answer while this thread spins.
  IdleStrategy idle(subscriber.peer()->is_on_our_only_cpu() ? 0 : IdleStrategy::kMaxSpinNs);
  // relaxed: the alarm's read orders it
  while (!stop_.load(std::memory_order_relaxed)) {
    bool some = false;
    while (const std::optional<Taken> taken = take()) {
      some = true;
      finish(*taken);
    }
    subscriber.release();  // of late replies too, which are dropped
    if (complete_waiting()) continue;
    if (some) {
      idle.found();
      continue;
    }
    if (subscriber.peer()->state() != bus::Outcome::kOk &&
        subscriber.state() != bus::Outcome::kOk) {
      return;
    }
    if (idle.idle() != IdleStrategy::Step::kPark) continue;
    idle.parking();
    sleep();
    idle.unparked();
  }
}

bool StepLink::complete_waiting() noexcept {
  std::unique_lock lock(mutex_);
  if (!wants_room()) return false;
  const std::optional<Place> over = send_waiting();
  lock.unlock();
  if (over) over->done(*over->request);
  return over.has_value();
}

std::optional<StepLink::Taken> StepLink::take() noexcept {
  const std::lock_guard lock(mutex_);
  bus::Requester& requester = process_->requester();
  for (;;) {
    const std::optional<bus::Requester::Reply> reply = requester.try_take();
    const bool is_late = reply && reply->outcome == bus::Outcome::kTimedOut;
    const bool has_late_reply = requester.unexpected() != unexpected_;
    unexpected_ = requester.unexpected();
    if (has_late_reply || (reply && !is_late)) {
      silent_until_ns_ = UINT64_MAX;
      wants_ping_ = false;
    }
    if (!reply) return std::nullopt;
    if (reply->id == ping_id_) {
      ping_id_ = kNoPing;
      continue;
    }
    if (is_late && silent_until_ns_ == UINT64_MAX) {
      silent_until_ns_ = now_ns() + kSilenceNs;
      ping();
    }
    return Taken{*reply, std::exchange(places_[reply->id % kPlaces], {})};
  }
}

void StepLink::ping() noexcept {
  if (ping_id_ != kNoPing) return;  // its answer is awaited still
  bus::Requester& requester = process_->requester();
  const bus::Requester::Sent sent = requester.send({}, static_cast<uint32_t>(StepMessage::kPing));
  wants_ping_ = sent.outcome == bus::Outcome::kNotNow;
  if (sent.outcome == bus::Outcome::kOk) ping_id_ = sent.id;
}

void StepLink::finish(const Taken& taken) noexcept {
  InferRequest& request = *taken.place.request;
  request.times.inferred_ns = now_ns();
  const bus::Requester::Reply& reply = taken.reply;
  if (reply.outcome != bus::Outcome::kOk) {
    request.status = late_status();
  } else if (reply.status != static_cast<uint32_t>(StepStatus::kDone)) {
    request.status = failure_of(reply, source_.metadata.name);
  } else {
    request.status = read_reply(reply.data, source_.metadata, request);
  }
  request.times.postprocessed_ns = now_ns();
  taken.place.done(request);
}

void StepLink::sleep() noexcept {
  bus::Requester& requester = process_->requester();
  bus::Subscriber& subscriber = *requester.connection().subscriber;
  bus::Publisher& publisher = *requester.connection().publisher;
  std::array<pollfd, 5> entries{};
  std::ranges::copy(subscriber.polls(), entries.begin());
  entries[3] = {alarm_.get(), POLLIN, 0};
  entries[4] = publisher.bell().poll();
  uint64_t deadline_ns = 0;
  bool awaits_room = false;
  bool is_over = false;
  subscriber.announce_sleep();
  {
    const std::lock_guard lock(mutex_);
    awaits_room = wants_room();
    if (awaits_room) {
      publisher.announce_sleep();
      is_over = has_room_now();
    }
    deadline_ns =
        std::min({requester.next_deadline_ns(), waiting_.next_deadline_ns(), silent_until_ns_});
    sleeps_until_ns_ = deadline_ns;
  }
  const uint64_t now = now_ns();
  if (!is_over && !subscriber.look_now() && now < deadline_ns) {
    timespec left{};
    const uint64_t left_ns = deadline_ns - now;
    left.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000);
    left.tv_nsec = static_cast<long>(left_ns % 1'000'000'000);
    (void)ppoll(entries.data(), entries.size(), deadline_ns == UINT64_MAX ? nullptr : &left,
                nullptr);
  }
  subscriber.end_sleep();
  if (entries[0].revents != 0) subscriber.bell().found_rung();
  if ((entries[1].revents | entries[2].revents) != 0) (void)subscriber.peer()->look();
  if ((entries[3].revents & POLLIN) != 0) {
    eventfd_t count = 0;
    (void)eventfd_read(alarm_.get(), &count);
  }
  const std::lock_guard lock(mutex_);
  sleeps_until_ns_ = 0;
  if (awaits_room) publisher.end_sleep();
  if (entries[4].revents != 0) publisher.bell().found_rung();
  if (now_ns() >= silent_until_ns_) process_->kill();
}

bool StepLink::has_room_now() noexcept {
  const size_t bytes = wants_ping_ ? 0 : message_bytes(waiting_.front().request->inputs);
  return process_->requester().try_reserve(bytes).outcome != bus::Outcome::kNotNow;
}

void StepLink::fail_all(const Status& status) noexcept {
  for (Place& place : places_) {
    const Place one = std::exchange(place, {});
    if (one.request == nullptr) continue;
    one.request->status = status;
    one.done(*one.request);
  }
  while (!waiting_.is_empty()) {
    const Place one = waiting_.front();
    waiting_.pop();
    one.request->status = status;
    one.done(*one.request);
  }
}

}  // namespace lumen::backends::python
