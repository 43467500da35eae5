// See the header for threads, memory and errors.
#include "backends/openvino/compiler.h"

#include "backends/openvino/opening_thread.h"

#include <sched.h>

namespace lumen::backends::openvino {
namespace {

constexpr int kUnknown = -1;

void load_plugin(ov::Core& core) { (void)core.get_property("CPU", ov::device::full_name); }

}  // namespace

Compiler::Compiler() : executor_policy_(kUnknown) {}

void Compiler::open() {
  const std::lock_guard lock(opening_);
  if (core_) return;
  const OnOneCpu narrow;
  const SignalStack own;
  try {
    core_.emplace();
    load_plugin(*core_);
  } catch (...) {
    core_.reset();
    throw;
  }
}

ov::CompiledModel Compiler::compile(const std::shared_ptr<ov::Model>& model,
                                    const ov::AnyMap& properties) {
  return build([&] { return core_->compile_model(model, "CPU", properties); });
}

ov::CompiledModel Compiler::import(std::istream& stream, const ov::AnyMap& properties) {
  return build([&] { return core_->import_model(stream, "CPU", properties); });
}

template <typename Build>
ov::CompiledModel Compiler::build(Build&& build_now) {
  const int policy = ::sched_getscheduler(0);
  give_executor(policy);
  ov::CompiledModel built = build_now();
  if (::sched_getscheduler(0) != policy) {  // run_all_threads_as_usual()
    const std::lock_guard lock(executor_mutex_);
    executor_policy_ = kUnknown;
  }
  return built;
}

// The process has one executor, which the first build after the end of a core starts: the thread
// inherits the priority of its starter. A thread can't leave SCHED_IDLE again without a right that
// most users don't have, so that one executor can't serve both. Models that were built before keep
// theirs.
void Compiler::give_executor(int policy) {
  const std::lock_guard lock(executor_mutex_);
  if (executor_policy_ == policy) return;
  const SignalStack own;
  ov::Core ends_at_once;
  load_plugin(ends_at_once);
  executor_policy_ = policy;
}

}  // namespace lumen::backends::openvino
