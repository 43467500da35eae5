// See the header.
#include "backends/onnxruntime/device_link.h"

#include <lumen/base/check.h>

#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace lumen::backends::onnxruntime {

void DeviceLink::Memory::Free::operator()(std::byte* p) const noexcept {
  const Error ignored(api().AllocatorFree(allocator, p));  // it can't be given back twice
}

std::byte* DeviceLink::Memory::at_least(size_t bytes) {
  if (bytes_ > 0 && bytes <= bytes_) return allocator_ == nullptr ? heap_.get() : taken_.get();
  bytes_ = 0;
  const size_t wanted = bytes == 0 ? kTensorAlignment : bytes;
  if (allocator_ == nullptr) {
    heap_.reset();
    heap_ = make_buffer(wanted);
    bytes_ = wanted;
    return heap_.get();
  }
  taken_ = {nullptr, Free{allocator_}};
  void* place = nullptr;
  must(api().AllocatorAlloc(allocator_, wanted, &place));
  if (place == nullptr) {
    throw Failure("the device has no memory left for a tensor of " + std::to_string(bytes) +
                  " bytes");
  }
  taken_ = {static_cast<std::byte*>(place), Free{allocator_}};
  bytes_ = wanted;
  return taken_.get();
}

DeviceLink::DeviceLink(std::shared_ptr<const SharedSession> shared, const OrtEpDevice* device)
    : shared_(std::move(shared)), info_here_(&shared_->library->cpu()) {
  if (device == nullptr) return;
  info_there_ = api().EpDevice_MemoryInfo(device, OrtDeviceMemoryType_DEFAULT);
  if (info_there_ == nullptr) return;  // it computes in the host's memory
  OrtAllocator* made = nullptr;
  must(api().CreateAllocator(shared_->session.get(), info_there_, &made));
  there_.reset(made);
  const OrtMemoryInfo* pinned =
      api().EpDevice_MemoryInfo(device, OrtDeviceMemoryType_HOST_ACCESSIBLE);
  if (pinned != nullptr) {
    must(api().GetSharedAllocator(&shared_->library->env(), pinned, &here_));
    if (here_ != nullptr) info_here_ = pinned;
  }
  OrtSyncStream* stream = nullptr;
  Error error(api().CreateSyncStreamForEpDevice(device, nullptr, &stream));
  if (error != nullptr && api().GetErrorCode(error.get()) != ORT_NOT_IMPLEMENTED) {
    must(error.release());
  }
  stream_.reset(stream);
}

void DeviceLink::set_stream(OrtRunOptions& options) const {
  if (stream_ == nullptr) return;
  api().RunOptionsSetSyncStream(&options, stream_.get());
  // wait() does. ONNX Runtime 1.31 forgets the error of a stream that it waits for: a failed run
  // would be answered with old bytes.
  must(api().AddRunConfigEntry(&options, "disable_synchronize_execution_providers", "1"));
}

Error DeviceLink::copy(std::span<const OrtValue* const> from, std::span<OrtValue* const> to) {
  LUMEN_CHECK(from.size() == to.size());
  if (from.empty()) return nullptr;
  return Error(api().CopyTensors(&shared_->library->env(), from.data(), to.data(), stream_.get(),
                                 from.size()));
}

Error DeviceLink::wait() {
  if (stream_ == nullptr) return nullptr;
  const OrtSyncStreamImpl* const made = api().GetEpApi()->SyncStream_GetImpl(stream_.get());
  return Error(made->Flush(const_cast<OrtSyncStreamImpl*>(made)));
}

bool DeviceLink::answers() noexcept try {
  constexpr size_t kBytes = 64;
  if (info_there_ == nullptr) return false;
  Shape shape;
  LUMEN_CHECK(shape.append(kBytes));
  Memory sent = memory_here();
  Memory there = memory_there();
  Memory received = memory_here();
  std::byte* const from = sent.at_least(kBytes);
  std::byte* const to = received.at_least(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i + 1);
  std::memset(to, 0, kBytes);
  BoundValue values[3];
  const auto bind = [&](BoundValue& value, const OrtMemoryInfo& info, std::byte* data) {
    return value.bind(info, ElementType::kUint8, shape, data, kBytes);
  };
  OrtValue* const first = bind(values[0], *info_here_, from);
  OrtValue* const second = bind(values[1], *info_there_, there.at_least(kBytes));
  OrtValue* const third = bind(values[2], *info_here_, to);
  const std::array<const OrtValue*, 2> sources = {first, second};
  const std::array<OrtValue*, 2> targets = {second, third};
  for (size_t i = 0; i < sources.size(); ++i) {
    if (copy({&sources[i], 1}, {&targets[i], 1}) != nullptr) return false;
  }
  return wait() == nullptr && std::memcmp(from, to, kBytes) == 0;
} catch (const std::exception&) {
  return false;
}

}  // namespace lumen::backends::onnxruntime
