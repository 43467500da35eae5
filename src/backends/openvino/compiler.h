// Compiler: OpenVINO's core. It builds each graph on a thread of OpenVINO's own, the executor, at
// the priority of the thread that asks: a model that is loaded in the background (SCHED_IDLE) is
// built there, too.
// Threads: any. Memory: the heap. Errors: OpenVINO's exceptions.
#pragma once

#include <openvino/openvino.hpp>

#include <istream>
#include <memory>
#include <mutex>
#include <optional>

namespace lumen::backends::openvino {

class Compiler {
 public:
  Compiler();
  // Loads the plugin, the first time.
  void open();
  [[nodiscard]] ov::CompiledModel compile(const std::shared_ptr<ov::Model>& model,
                                          const ov::AnyMap& properties);
  // What CompiledModel::export_model() wrote.
  [[nodiscard]] ov::CompiledModel import(std::istream& stream, const ov::AnyMap& properties);

 private:
  // At the priority of the calling thread. Where that has changed meanwhile, the executor's is not
  // known any more, and the next build gets another one.
  template <typename Build>
  ov::CompiledModel build(Build&& build_now);
  void give_executor(int policy);

  std::mutex opening_;
  std::optional<ov::Core> core_;
  std::mutex executor_mutex_;
  int executor_policy_;  // of the scheduler; kUnknown: to be made anew
};

}  // namespace lumen::backends::openvino
