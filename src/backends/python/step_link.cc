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
  Status status = send(request, done);
  if (status.ok()) return StartOutcome::kPending;
  request.status = std::move(status);
  return StartOutcome::kDone;
}

Status StepLink::send(InferRequest& request, Done done) noexcept {
  const char* const model = source_.metadata.name.c_str();
  if (!is_ready_) {
    return Status::error(Code::kUnavailable,
                         "model '%s': its Python process is being started again: %s", model,
                         why_not_ready_.c_str());
  }
  bus::Requester& requester = process_->requester();
  const size_t bytes = message_bytes(request.inputs);
  const bus::Publisher::Place place = requester.try_reserve(bytes);
  if (place.outcome == bus::Outcome::kTooLarge) {
    return Status::error(Code::kTooLarge,
                         "model '%s': inputs of %zu bytes, wanted at most %llu, the size of the ring "
                         "to its Python process",
                         model, bytes, static_cast<unsigned long long>(source_.ring_bytes));
  }
  if (place.outcome == bus::Outcome::kNotNow) {
    return Status::error(Code::kResourceExhausted,
                         "model '%s': its Python process has as many requests as fit into its ring",
                         model);
  }
  if (!place) {
    return Status::error(Code::kUnavailable, "model '%s': its Python process: %s", model,
                         bus::name_of(place.outcome));
  }
  write_message(request.inputs, place.bytes.first(bytes));
  request.times.preprocessed_ns = now_ns();
  const uint64_t deadline_ns = request.deadline_ns;
  const bus::Requester::Sent sent = requester.send_reserved(
      bytes, static_cast<uint32_t>(StepMessage::kRun), deadline_ns);
  if (sent.outcome != bus::Outcome::kOk) {
    return Status::error(Code::kUnavailable, "model '%s': its Python process: %s", model,
                         bus::name_of(sent.outcome));
  }
  places_[sent.id % kPlaces] = {&request, done};
  requester.flush();
  if (deadline_ns < sleeps_until_ns_) eventfd_write(alarm_.get(), 1);
  return {};
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
  // relaxed: under the mutex
  const auto stops = [this] { return stop_.load(std::memory_order_relaxed); };
  return !stopping_.wait_for(lock, pause, stops);
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
  fail_all(Status::error(Code::kUnavailable, "model '%s': its Python process had this request as %s",
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
  restarts_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
  tell("is ready again", {});
  const std::lock_guard lock(mutex_);
  process_ = std::move(*process);
  is_ready_ = true;
  ping_id_ = kNoPing;
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
    if (some) {
      subscriber.release();
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

std::optional<StepLink::Taken> StepLink::take() noexcept {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const std::optional<bus::Requester::Reply> reply = process_->requester().try_take();
    if (!reply) return std::nullopt;
    if (reply->id == ping_id_) {
      ping_id_ = kNoPing;
      if (reply->outcome == bus::Outcome::kTimedOut) process_->kill();
      continue;
    }
    if (reply->outcome == bus::Outcome::kTimedOut && ping_id_ == kNoPing) ping();
    return Taken{*reply, std::exchange(places_[reply->id % kPlaces], {})};
  }
}

void StepLink::ping() noexcept {
  bus::Requester& requester = process_->requester();
  const uint64_t deadline_ns = now_ns() + kSilenceNs;
  const bus::Requester::Sent sent =
      requester.send({}, static_cast<uint32_t>(StepMessage::kPing), deadline_ns);
  // Without room it is asked after the next deadline.
  if (sent.outcome == bus::Outcome::kOk) ping_id_ = sent.id;
}

void StepLink::finish(const Taken& taken) noexcept {
  InferRequest& request = *taken.place.request;
  request.times.inferred_ns = now_ns();
  const bus::Requester::Reply& reply = taken.reply;
  if (reply.outcome != bus::Outcome::kOk) {
    request.status = Status::error(Code::kDeadlineExceeded,
                                   "model '%s': its Python process did not answer in time",
                                   source_.metadata.name.c_str());
  } else if (reply.status != static_cast<uint32_t>(StepStatus::kDone)) {
    request.status = failure_of(reply, source_.metadata.name);
  } else {
    request.status = read_reply(reply.data, source_.metadata, request);
  }
  request.times.postprocessed_ns = now_ns();
  taken.place.done(request);
}

void StepLink::sleep() noexcept {
  bus::Subscriber& subscriber = *process_->requester().connection().subscriber;
  std::array<pollfd, 4> entries{};
  std::ranges::copy(subscriber.polls(), entries.begin());
  entries[3] = {alarm_.get(), POLLIN, 0};
  uint64_t deadline_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    deadline_ns = process_->requester().next_deadline_ns();
    sleeps_until_ns_ = deadline_ns;
  }
  subscriber.announce_sleep();
  const uint64_t now = now_ns();
  if (!subscriber.look_now() && now < deadline_ns) {
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
}

void StepLink::fail_all(const Status& status) noexcept {
  for (Place& place : places_) {
    const Place one = std::exchange(place, {});
    if (one.request == nullptr) continue;
    one.request->status = status;
    one.done(*one.request);
  }
}

}  // namespace lumen::backends::python
