// Binder: makes a call of a transport's request: checks names, types, shapes and sizes against the
// model, and gives each input that is still to come an aligned place in the call's memory.
//
//   Binder binder(call, model);
//   for (each input)  binder.input(name, tensor, where its bytes are)
//   binder.inputs_named()
//   for (each output that is wanted)  binder.output(name)
//
// Threads: its transport's. Memory: the call's scratch. Errors: Status naming the tensor, the value
// got, the value wanted and the fix; the call is not to be submitted then.
#pragma once

#include <lumen/models/model_repository.h>
#include <lumen/service/call.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::service {

enum class InputBytes : uint8_t {
  kToReceive,  // not here yet; the binder gives them a place in call.to_receive
  kPresent,    // at tensor.data, and nobody writes there before the call is done
  // At tensor.data, where another process may write at any time. Floats, small integers and
  // booleans are read in place: any value of them is harmless. Data that decides which memory is
  // read is copied first: the lengths inside a BYTES tensor, and integers of 32 and 64 bits, which
  // a kernel may use as indices after it has checked them. If the model's answers are cached
  // everything is copied, so that the hashed bytes are those that run.
  kShared,
};

class Binder {
 public:
  // Takes the lists that the model wants. `model` outlives the call.
  Binder(Call& call, models::Model& model) noexcept;
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  // `tensor` is the caller's own copy: with kShared, the description of the input has been read
  // once.
  [[nodiscard]] Status input(std::string_view name, const TensorView& tensor,
                             InputBytes bytes) noexcept;
  // Its only input, of all `bytes` that follow: one axis that is free in the model follows from
  // them.
  [[nodiscard]] Status only_input(size_t bytes) noexcept;
  // None is missing, and sizes that the model ties together are equal.
  [[nodiscard]] Status inputs_named() noexcept;
  // In the order in which the reply has them; without any, all outputs.
  [[nodiscard]] Status output(std::string_view name) noexcept;

 private:
  [[nodiscard]] Status place(std::string_view name, TensorView& tensor) noexcept;
  [[nodiscard]] Status copy_shared(std::string_view name, TensorView& tensor) noexcept;

  Call& call_;
  const models::Model& model_;
  const models::ModelMetadata& metadata_;
  std::span<TensorView> bound_;
  std::span<bool> is_named_;
  std::span<iovec> segments_;
  std::span<uint16_t> outputs_;
  std::span<bool> is_wanted_;
  size_t named_ = 0;
  size_t placed_ = 0;
  size_t wanted_ = 0;
};

}  // namespace lumen::service
