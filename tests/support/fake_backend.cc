// Bodies of the fake. Locks and allocates freely: it stands in for a library that does so too.
#include "support/fake_backend.h"

#include <lumen/base/clock.h>
#include <lumen/memory/mapping.h>
#include <lumen/models/model_repository.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <thread>
#include <utility>

namespace lumen::models {
namespace {

bool holds_value(const TensorView& view, float wanted) {
  if (view.type != ElementType::kFp32 || std::isnan(wanted)) return false;
  for (size_t i = 0; i < view.byte_size; i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, view.data + i, sizeof(value));
    if (value == wanted) return true;
  }
  return false;
}

void add_to(TensorView& output, float more) {
  for (size_t i = 0; i < output.byte_size; i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, output.data + i, sizeof(value));
    value += more;
    std::memcpy(output.data + i, &value, sizeof(value));
  }
}

void add_tensor(TensorView& output, const std::byte* more) {
  for (size_t i = 0; i < output.byte_size; i += sizeof(float)) {
    float value = 0;
    float other = 0;
    std::memcpy(&value, output.data + i, sizeof(value));
    std::memcpy(&other, more + i, sizeof(other));
    value += other;
    std::memcpy(output.data + i, &value, sizeof(value));
  }
}

// `more`: a number for each row.
void add_to_rows(TensorView& output, const std::byte* more) {
  const auto rows = static_cast<size_t>(output.shape[0]);
  const size_t row_bytes = output.byte_size / rows;
  for (size_t row = 0; row < rows; ++row) {
    float number = 0;
    std::memcpy(&number, more + row * sizeof(number), sizeof(number));
    TensorView one = output;
    one.data += row * row_bytes;
    one.byte_size = row_bytes;
    add_to(one, number);
  }
}

void repeat_rows(std::span<const std::byte> source, size_t repeats, TensorView& output) {
  const size_t row_bytes = source.size() / static_cast<size_t>(output.shape[0]);
  std::byte* place = output.data;
  for (size_t begin = 0; begin < source.size(); begin += row_bytes) {
    for (size_t i = 0; i < repeats; ++i, place += row_bytes) {
      std::memcpy(place, source.data() + begin, row_bytes);
    }
  }
  const size_t last = output.shape.rank() - 1;
  output.shape[last] *= static_cast<int64_t>(repeats);
}

void sum_rows(TensorView& output) {
  const auto rows = static_cast<size_t>(output.shape[0]);
  const size_t columns = output.byte_size / sizeof(float) / rows;
  std::vector<float> values(rows * columns);
  std::memcpy(values.data(), output.data, output.byte_size);
  for (size_t i = columns; i < values.size(); ++i) values[i % columns] += values[i];
  for (size_t i = columns; i < values.size(); ++i) values[i] = values[i % columns];
  std::memcpy(output.data, values.data(), output.byte_size);
}

// The parts that the instances of a model share.
struct FakeRun {
  std::shared_ptr<FakeControl> control;
  // Of the model that it was made for, for any model that the request names.
  const ModelMetadata* metadata;
  float adds = 1;
};

Status run_model(const FakeRun& fake, InferRequest& request,
                 std::span<const std::vector<std::byte>> staged) {
  FakeControl& control = *fake.control;
  const ModelMetadata& metadata = *fake.metadata;
  const uint64_t begin = now_ns();
  if (request.inputs[0].shape.rank() > 0) {
    const auto rows = static_cast<uint64_t>(request.inputs[0].shape[0]);
    control.note_rows_run(rows);
    while (control.cost_ns != nullptr && now_ns() - begin < control.cost_ns(rows)) {
    }
  }
  if (metadata.name == control.model_that_fails ||
      holds_value(request.inputs[0], control.value_that_fails)) {
    return Status::error(Code::kInternal, "model '%s' failed as the test wants",
                         metadata.name.c_str());
  }
  const bool has_state = control.models_with_a_state.contains(metadata.name);
  const size_t repeats = has_state ? 1 : control.repeats;
  request.times.inferred_ns = now_ns();
  const size_t wanted =
      request.outputs_wanted.empty() ? metadata.outputs.size() : request.outputs_wanted.size();
  const auto outputs = request.list_memory().allocate_array<TensorView>(wanted);
  if (outputs.size() != wanted) return Status::error(Code::kTooLarge, "no room for outputs");
  for (size_t position = 0; position < wanted; ++position) {
    const size_t index =
        request.outputs_wanted.empty() ? position : request.outputs_wanted[position];
    const TensorView& input = request.inputs[index];
    const std::byte* source = staged.empty() ? input.data : staged[index].data();
    TensorView& output = outputs[position];
    output = input;
    output.byte_size *= repeats;
    output.data = static_cast<std::byte*>(request.memory->allocate(output.byte_size, 64));
    if (output.data == nullptr) {
      return Status::error(Code::kTooLarge, "output '%s' needs %zu bytes",
                           metadata.outputs[index].name.c_str(), output.byte_size);
    }
    if (repeats == 1) {
      std::memcpy(output.data, source, input.byte_size);
    } else {
      repeat_rows({source, input.byte_size}, repeats, output);
    }
    if (input.type != ElementType::kFp32) continue;
    add_to(output, fake.adds);
    if (has_state) {
      const size_t other = 1 - index;
      add_tensor(output, staged.empty() ? request.inputs[other].data : staged[other].data());
    }
    if (control.models_told_of_a_start.contains(metadata.name)) {
      add_to_rows(output, staged.empty() ? request.inputs[2].data : staged[2].data());
    }
    if (control.models_that_sum_rows.contains(metadata.name)) sum_rows(output);
  }
  request.outputs = outputs;
  request.times.postprocessed_ns = now_ns();
  return {};
}

// relaxed, both: statistics
class Counted {
 public:
  explicit Counted(std::shared_ptr<FakeControl> control) : control_(std::move(control)) {
    control_->live_instances.fetch_add(1, std::memory_order_relaxed);
  }
  ~Counted() { control_->live_instances.fetch_sub(1, std::memory_order_relaxed); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::shared_ptr<FakeControl> control_;
};

// Pages of its own, all touched: memory of a heap may have been touched before.
Mapping touched(size_t bytes) {
  if (bytes == 0) return {};
  Result<Mapping> made = Mapping::create(bytes);
  LUMEN_CHECK(made.ok());
  std::memset(made->data(), 1, bytes);
  return std::move(*made);
}

class SyncInstance final : public Instance {
 public:
  explicit SyncInstance(const FakeRun& fake)
      : fake_(fake),
        control_(fake.control),
        counted_(control_),
        memory_(touched(control_->instance_bytes)) {}

  StartOutcome start(InferRequest& request, void (*)(InferRequest&) noexcept) noexcept override {
    control_->starts.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
    control_->starts.notify_all();
    request.times.preprocessed_ns = now_ns();
    control_->pass_gate();
    if (control_->first_run_bytes > 0 && memory_of_runs_.size() == 0) {
      memory_of_runs_ = touched(control_->first_run_bytes);
    }
    bound_ = request.inputs[0].data;
    request.status = run_model(fake_, request, {});
    return StartOutcome::kDone;
  }
  const void* last_bound_input(size_t) const noexcept override { return bound_; }

 private:
  const FakeRun fake_;
  std::shared_ptr<FakeControl> control_;
  const Counted counted_;
  const Mapping memory_;
  Mapping memory_of_runs_;
  const void* bound_ = nullptr;
};

class AsyncInstance final : public Instance {
 public:
  explicit AsyncInstance(const FakeRun& fake)
      : fake_(fake),
        control_(fake.control),
        counted_(control_),
        random_(control_->seed),
        device_([this] { run_device(); }) {}

  ~AsyncInstance() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    device_.join();
  }

  uint32_t max_in_flight() const noexcept override { return control_->max_in_flight; }

  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    control_->starts.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
    control_->starts.notify_all();
    if (control_->cost_ns != nullptr) {
      // Somebody measures: by the device's thread it would be the time of a wake-up.
      request.status = run_model(fake_, request, {});
      return StartOutcome::kDone;
    }
    Job job{&request, done, {}};
    for (const TensorView& input : request.inputs) {
      job.staged.emplace_back(input.data, input.data + input.byte_size);
    }
    request.times.preprocessed_ns = now_ns();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      ++pending_;
      // Of one that is shared each runner has so many.
      LUMEN_CHECK(control_->traits.shares_instances || pending_ <= control_->max_in_flight);
    }
    changed_.notify_all();
    return StartOutcome::kPending;
  }

 private:
  struct Job {
    InferRequest* request;
    void (*done)(InferRequest&) noexcept;
    std::vector<std::vector<std::byte>> staged;
  };

  void run_device() {
    for (;;) {
      Job job = next_job();
      if (job.request == nullptr) return;
      control_->pass_gate();
      job.request->status = run_model(fake_, *job.request, job.staged);
      {
        const std::lock_guard lock(mutex_);
        --pending_;
      }
      job.done(*job.request);
    }
  }

  Job next_job() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return {nullptr, nullptr, {}};
    const size_t pick = random_() % jobs_.size();
    std::swap(jobs_[pick], jobs_.back());
    Job job = std::move(jobs_.back());
    jobs_.pop_back();
    return job;
  }

  const FakeRun fake_;
  std::shared_ptr<FakeControl> control_;
  const Counted counted_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint32_t pending_ = 0;
  bool stopping_ = false;
  std::thread device_;
};

class FakeModel final : public LoadedModel {
 public:
  FakeModel(std::shared_ptr<FakeControl> control, const ModelSource& source)
      : control_(std::move(control)) {
    metadata_ = {source.name, source.version, "fake", control_->inputs, control_->outputs};
    if (!control_->models_with_a_state.contains(source.name)) return;
    metadata_.inputs.push_back({"h", ElementType::kFp32, FakeControl::row_of_four()});
    metadata_.outputs = {{"y", ElementType::kFp32, FakeControl::row_of_four()},
                         {"h_out", ElementType::kFp32, FakeControl::row_of_four()}};
    if (!control_->models_told_of_a_start.contains(source.name)) return;
    Shape number_a_row = FakeControl::row_of_four();
    number_a_row[1] = 1;
    metadata_.inputs.push_back({"start", ElementType::kFp32, number_a_row});
  }
  const ModelMetadata& metadata() const noexcept override { return metadata_; }
  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    control_->on_instance();
    if (control_->models_without_instance.contains(metadata_.name)) {
      return Status::error(Code::kInternal, "no instance of '%s', as the test wants",
                           metadata_.name.c_str());
    }
    // relaxed: statistics
    if (control_->instances.load(std::memory_order_relaxed) >=
        control_->most_instances.load(std::memory_order_relaxed)) {
      return Status::error(Code::kInternal, "no more instances of '%s', as the test wants",
                           metadata_.name.c_str());
    }
    control_->instances.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
    FakeRun fake{control_, &metadata_};
    fake.adds = control_->number_added_by(metadata_.name);
    if (control_->asynchronous) {
      return std::unique_ptr<Instance>(std::make_unique<AsyncInstance>(fake));
    }
    return std::unique_ptr<Instance>(std::make_unique<SyncInstance>(fake));
  }

 private:
  std::shared_ptr<FakeControl> control_;
  ModelMetadata metadata_;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(std::shared_ptr<FakeControl> control) : control_(std::move(control)) {}
  std::string_view name() const noexcept override { return control_->backend_name; }
  std::string description() const override { return control_->backend_name; }
  BackendTraits traits() const noexcept override { return control_->traits; }
  Status availability() const override {
    if (control_->why_not_available.empty()) return {};
    return Status::error(Code::kUnavailable, "%s", control_->why_not_available.c_str());
  }
  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    control_->on_load();
    LUMEN_RETURN_IF_ERROR(availability());
    if (control_->fails_to_load(source.name)) {
      return Status::error(Code::kUnavailable, "model '%s' fails to load, as the test wants",
                           source.name.c_str());
    }
    return std::unique_ptr<LoadedModel>(std::make_unique<FakeModel>(control_, source));
  }
  Status register_memory(std::span<std::byte> region) override {
    if (region.size() > control_->largest_region) {
      return Status::error(Code::kTooLarge, "no region of %zu bytes, as the test wants",
                           region.size());
    }
    control_->registered_bytes.fetch_add(region.size(),
                                         std::memory_order_relaxed);  // relaxed: a statistic
    return {};
  }
  void unregister_memory(std::span<std::byte> region) noexcept override {
    control_->registered_bytes.fetch_sub(region.size(),
                                         std::memory_order_relaxed);  // relaxed: a statistic
  }

 private:
  std::shared_ptr<FakeControl> control_;
};

}  // namespace

void FakeControl::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeControl::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeControl::wait_until_held(uint32_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, count] { return waiting_ >= count; });
}

bool FakeControl::wait_until_held(uint32_t count, uint64_t at_most_ns) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(at_most_ns),
                           [this, count] { return waiting_ >= count; });
}

void FakeControl::pass_gate() {
  std::unique_lock lock(mutex_);
  if (!held_) return;
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !held_; });
  --waiting_;
}

std::vector<uint64_t> FakeControl::take_rows_run() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rows_run_, {});
}

void FakeControl::note_rows_run(uint64_t rows) {
  const std::lock_guard lock(mutex_);
  rows_run_.push_back(rows);
}

std::unique_ptr<Backend> make_fake_backend(std::shared_ptr<FakeControl> control) {
  return std::make_unique<FakeBackend>(std::move(control));
}

}  // namespace lumen::models
