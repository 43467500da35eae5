// See the header.
#include "device/stream.h"

#include <memory>
#include <utility>

namespace lumen::device {
namespace {

OrtStatus* as_status(const char* error) { return error == nullptr ? nullptr : failed(error); }

// A point between the jobs of a stream.
struct Mark : OrtSyncNotificationImpl {
  Stream* stream = nullptr;
  uint64_t job = 0;

  Mark() : OrtSyncNotificationImpl{} {
    ort_version_supported = ORT_API_VERSION;
    Release = [](OrtSyncNotificationImpl* self) noexcept { delete static_cast<Mark*>(self); };
    Activate = [](OrtSyncNotificationImpl* self) noexcept -> OrtStatus* {
      auto* const mark = static_cast<Mark*>(self);
      mark->job = mark->stream->add([]() -> const char* { return nullptr; });
      return nullptr;
    };
    WaitOnDevice = [](OrtSyncNotificationImpl* self, OrtSyncStream* other) noexcept -> OrtStatus* {
      auto* const mark = static_cast<Mark*>(self);
      Stream::of(other)->add(
          [stream = mark->stream, job = mark->job] { return stream->wait(job); });
      return nullptr;
    };
    WaitOnHost = [](OrtSyncNotificationImpl* self) noexcept -> OrtStatus* {
      auto* const mark = static_cast<Mark*>(self);
      return as_status(mark->stream->wait(mark->job));
    };
  }
};

}  // namespace

Stream::Stream() : OrtSyncStreamImpl{} {
  ort_version_supported = ORT_API_VERSION;
  Release = [](OrtSyncStreamImpl* self) noexcept { delete static_cast<Stream*>(self); };
  GetHandle = [](OrtSyncStreamImpl* self) noexcept -> void* { return static_cast<Stream*>(self); };
  CreateNotification = [](OrtSyncStreamImpl* self,
                          OrtSyncNotificationImpl** made) noexcept -> OrtStatus* {
    auto* const mark = std::make_unique<Mark>().release();
    mark->stream = static_cast<Stream*>(self);
    *made = mark;
    return nullptr;
  };
  Flush = [](OrtSyncStreamImpl* self) noexcept -> OrtStatus* {
    return as_status(static_cast<Stream*>(self)->wait_for_all());
  };
  OnSessionRunEnd = [](OrtSyncStreamImpl*) noexcept -> OrtStatus* { return nullptr; };
  thread_ = std::thread([this] { work(); });
  ++control.streams;
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  --control.streams;
}

Stream* Stream::of(const OrtSyncStream* stream) {
  const OrtSyncStreamImpl* const made = ep_api->SyncStream_GetImpl(stream);
  return static_cast<Stream*>(const_cast<OrtSyncStreamImpl*>(made));
}

uint64_t Stream::add(Job job) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    number = ++added_;
  }
  changed_.notify_all();
  return number;
}

const char* Stream::wait(uint64_t job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, job] { return done_ >= job; });
  return std::exchange(error_, nullptr);
}

const char* Stream::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ == added_; });
  return std::exchange(error_, nullptr);
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || is_stopping_; });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (error_ == nullptr) {
      lock.unlock();
      const char* const error = job();
      lock.lock();
      if (error_ == nullptr) error_ = error;
    }
    job = nullptr;  // its memory goes back before anybody hears that it has ended
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace lumen::device
