// Bounds the effects of opening OpenVINO on the thread that opens it, and on the process. Threads:
// the one that opens it. Memory: two lists of CPUs. Errors: none; if the kernel refuses, the state
// stays.
#pragma once

#include <lumen/base/cpu.h>

#include <csignal>
#include <cstdint>
#include <vector>

namespace lumen::backends::openvino {

// While it lives, the calling thread and the main thread may use one CPU only. TBB sizes its
// default arena, when it is first touched, by their affinity (the process's, by its number, is that
// of the main thread), and a model run on the calling thread splits its work over that arena: with
// an arena of one, each inference stays on its own worker. (With the usual size SqueezeNet took
// both CPUs of a two-core machine for one request.)
class OnOneCpu {
 public:
  OnOneCpu() {
    const uint32_t cpu = cpus_.back();
    (void)restrict_main_thread({&cpu, 1});
    (void)pin_this_thread(cpu);
  }
  ~OnOneCpu() {
    (void)restrict_main_thread(main_cpus_);
    (void)restrict_this_thread(cpus_);
  }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
  const std::vector<uint32_t> cpus_ = usable_cpus();
  const std::vector<uint32_t> main_cpus_ = main_thread_cpus();
};

// Gives the thread back the signal stack that it had. The plugin sets one for the thread that loads
// it and unmaps it at its own end, long after; a thread that ends before would unmap it, too, with
// AddressSanitizer.
class SignalStack {
 public:
  SignalStack() : is_known_(sigaltstack(nullptr, &before_) == 0) {}
  ~SignalStack() {
    if (is_known_) (void)sigaltstack(&before_, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  stack_t before_{};
  const bool is_known_;
};

}  // namespace lumen::backends::openvino
