// Plans: one compiled shape of a model with its infer request, and how a request's tensors get in
// and out of it. Part of backend.cc, which alone includes it.
// Threads: one, the worker's. Memory: buffers of small tensors at construction; OpenVINO allocates
// when a tensor is bound anew. Errors: Status; OpenVINO's exceptions pass through.
#pragma once

#include <lumen/models/infer_request.h>

#include "backends/bytes_tensor.h"
#include "backends/openvino/ports.h"
#include "backends/unwritten.h"

#include <openvino/openvino.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::openvino {

// Up to here a tensor is copied into the instance's bound buffer, above it is bound where it lies.
// Measured on an EPYC (Zen 5): binding anew costs 1.2 us a call; copying 16 KiB 0.1 us from cache
// and 0.85 from memory, 32 KiB 1.5.
inline constexpr size_t kMaxCopiedBytes = 16 * 1024;

// One compiled shape of a model with its infer request.
class Plan {
 public:
  Plan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
       const std::vector<Port>& outputs)
      : inputs_(inputs),
        outputs_(outputs),
        compiled_(std::move(compiled)),
        request_(compiled_.create_infer_request()),
        has_variables_(!request_.query_state().empty()) {}
  virtual ~Plan() = default;

  // Inputs bound or copied, room for the outputs. May throw OpenVINO's exceptions.
  virtual Status bind(InferRequest& request, std::span<TensorView> outputs) = 0;
  // After the model ran.
  virtual Status collect(InferRequest& request, std::span<TensorView> outputs) = 0;
  virtual const void* bound_input(size_t index) const noexcept = 0;

  // Throws OpenVINO's exceptions and, with kChecksEachRun, if an output is left unwritten.
  void infer() {
    if constexpr (kChecksEachRun) {
      infer_checked();
    } else {
      run();
    }
  }
  // Runs the model where its shapes are known; throws where it fails or leaves an output unwritten.
  // Elsewhere outputs have memory of OpenVINO's own, which it makes in the run.
  virtual void warm_up() {}

 protected:
  virtual void infer_checked() { run(); }
  // Variables of the model (ReadValue and Assign) live in OpenVINO's request, where the values of
  // one client's request would be in the answer to another's.
  void run() {
    if (has_variables_) request_.reset_state();
    request_.infer();
  }
  static size_t output_index(const InferRequest& request, size_t position) noexcept {
    return request.outputs_wanted.empty() ? position : request.outputs_wanted[position];
  }

  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  ov::CompiledModel compiled_;
  ov::InferRequest request_;

 private:
  const bool has_variables_;
};

// All shapes known at compile time: buffers of their own for small tensors, large ones bound where
// the request has them.
class StaticPlan final : public Plan {
 public:
  StaticPlan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
             const std::vector<Port>& outputs)
      : Plan(std::move(compiled), inputs, outputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      slots_in_.push_back(make_slot(compiled_.input(i)));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      slots_out_.push_back(make_slot(compiled_.output(i)));
    }
    bind_own();
    if (is_bound_as_asked()) return;
    find_tied();
    // A request to which a tied output was bound has lost its input.
    request_ = compiled_.create_infer_request();
    bind_own();
  }

  // Before the first request.
  void warm_up() override { infer_checked(); }

  void infer_checked() override {
    std::optional<size_t> unwritten;
    for (const int filling : kFillings) {
      unwritten = find_unwritten(filling);
      if (!unwritten) return;
    }
    throw std::runtime_error("OpenVINO does not write output '" + outputs_[*unwritten].spec.name +
                             "' where it is asked to; \"backend\": \"onnxruntime\" may serve it");
  }

  Status bind(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t i = 0; i < slots_in_.size(); ++i) {
      Slot& slot = slots_in_[i];
      const TensorView& input = request.inputs[i];
      LUMEN_RETURN_IF_ERROR(check_wide_integers(inputs_[i].spec.name, input));
      if (slot.bytes <= kMaxCopiedBytes) {
        std::memcpy(slot.bound, input.data, slot.bytes);
      } else if (is_aligned(input)) {
        if (input.data != slot.bound) {
          request_.set_input_tensor(i, ov::Tensor(slot.type, slot.shape, input.data));
          slot.bound = input.data;
        }
      } else {
        if (slot.bound != slot.own.data()) {
          request_.set_input_tensor(i, slot.own);
          slot.bound = slot.own.data();
        }
        std::memcpy(slot.bound, input.data, slot.bytes);
      }
    }
    return bind_outputs(request, outputs);
  }

  Status collect(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t position = 0; position < outputs.size(); ++position) {
      const size_t index = output_index(request, position);
      const Slot& slot = slots_out_[index];
      if (is_bound(slot)) continue;  // the model wrote it where it belongs
      void* memory = request.memory->allocate(slot.bytes, kTensorAlignment);
      if (memory == nullptr) return no_room(outputs_[index].spec.name, slot.bytes);
      const void* from = slot.is_tied ? request_.get_output_tensor(index).data() : slot.bound;
      std::memcpy(memory, from, slot.bytes);
      outputs[position] = view(slot, static_cast<std::byte*>(memory));
    }
    return {};
  }

  const void* bound_input(size_t index) const noexcept override { return slots_in_[index].bound; }

 private:
  struct Slot {
    ov::element::Type type;
    ov::Shape shape;
    ElementType our_type;
    Shape our_shape;
    size_t bytes;
    ov::Tensor own;
    void* bound;
    bool is_tied =
        false;  // of outputs: one tensor with an input or with another output, never bound
  };
  static constexpr size_t kTensorAlignment = 64;

  // Written by the model where the request has it.
  static bool is_bound(const Slot& slot) noexcept {
    return slot.bytes > kMaxCopiedBytes && !slot.is_tied;
  }

  void bind_own() {
    for (size_t i = 0; i < slots_in_.size(); ++i) request_.set_input_tensor(i, slots_in_[i].own);
    for (size_t i = 0; i < slots_out_.size(); ++i) {
      if (!slots_out_[i].is_tied) request_.set_output_tensor(i, slots_out_[i].own);
    }
  }

  // Where OpenVINO reduces a way through the graph to nothing (an output that is an input, Sum of
  // one input, two names of one value), both ports become one tensor: memory that is bound to the
  // one replaces the memory of the other, and the output then holds old bytes. The graph does not
  // tell before it is compiled.
  bool is_bound_as_asked() {
    for (size_t i = 0; i < slots_in_.size(); ++i) {
      if (request_.get_input_tensor(i).data() != slots_in_[i].own.data()) return false;
    }
    for (size_t i = 0; i < slots_out_.size(); ++i) {
      if (request_.get_output_tensor(i).data() != slots_out_[i].own.data()) return false;
    }
    return true;
  }

  // Binds each output by itself and asks all other ports for their memory then.
  void find_tied() {
    for (size_t index = 0; index < slots_out_.size(); ++index) {
      Slot& slot = slots_out_[index];
      ov::InferRequest trial = compiled_.create_infer_request();
      for (size_t i = 0; i < slots_in_.size(); ++i) trial.set_input_tensor(i, slots_in_[i].own);
      std::vector<const void*> others_before;
      others_before.reserve(slots_out_.size());
      for (size_t i = 0; i < slots_out_.size(); ++i) {
        others_before.push_back(trial.get_output_tensor(i).data());
      }
      trial.set_output_tensor(index, slot.own);
      for (size_t i = 0; i < slots_in_.size(); ++i) {
        slot.is_tied |= trial.get_input_tensor(i).data() != slots_in_[i].own.data();
      }
      for (size_t i = 0; i < slots_out_.size(); ++i) {
        slot.is_tied |= i != index && trial.get_output_tensor(i).data() != others_before[i];
      }
    }
  }

  // Fills the memory that outputs are bound to, runs, and names the first that still holds nothing
  // but that.
  std::optional<size_t> find_unwritten(int filling) {
    for (const Slot& slot : slots_out_) {
      if (!slot.is_tied) std::memset(slot.bound, filling, slot.bytes);
    }
    run();
    for (size_t i = 0; i < slots_out_.size(); ++i) {
      const Slot& slot = slots_out_[i];
      if (!slot.is_tied && holds_only(filling, slot.bound, slot.bytes)) return i;
    }
    return std::nullopt;
  }

  static Slot make_slot(const ov::Output<const ov::Node>& port) {
    ov::Tensor own(port.get_element_type(), port.get_shape());
    std::memset(own.data(), 0, own.get_byte_size());
    return {port.get_element_type(),
            port.get_shape(),
            *our_type(port.get_element_type()),
            *our_shape(port.get_partial_shape()),
            own.get_byte_size(),
            own,
            own.data()};
  }
  static bool is_aligned(const TensorView& view) noexcept {
    return reinterpret_cast<uintptr_t>(view.data) % std::max<size_t>(element_size(view.type), 1) ==
           0;
  }
  static TensorView view(const Slot& slot, std::byte* data) noexcept {
    return {.type = slot.our_type, .shape = slot.our_shape, .data = data, .byte_size = slot.bytes};
  }

  // Invariant at every infer(): a large output is bound either to this request's memory or to the
  // slot's own; never to that of a request before, which may be someone else's by now.
  Status bind_outputs(InferRequest& request, std::span<TensorView> outputs) {
    for (size_t index = 0; index < slots_out_.size(); ++index) {
      Slot& slot = slots_out_[index];
      if (!is_bound(slot)) continue;
      void* target = slot.own.data();
      for (size_t position = 0; position < outputs.size(); ++position) {
        if (output_index(request, position) != index) continue;
        if (target == slot.own.data()) {
          target = request.memory->allocate(slot.bytes, kTensorAlignment);
          if (target == nullptr) return no_room(outputs_[index].spec.name, slot.bytes);
        }
        outputs[position] = view(slot, static_cast<std::byte*>(target));
      }
      if (target == slot.bound) continue;
      request_.set_output_tensor(index, ov::Tensor(slot.type, slot.shape, target));
      slot.bound = target;
    }
    return {};
  }

  std::vector<Slot> slots_in_;
  std::vector<Slot> slots_out_;
};

// Shapes that differ from call to call, and strings. Outputs are copied: their size is known only
// after the run.
class DynamicPlan final : public Plan {
 public:
  DynamicPlan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
              const std::vector<Port>& outputs)
      : Plan(std::move(compiled), inputs, outputs), slots_(inputs.size()) {
    for (Slot& slot : slots_) {
      slot.small = ov::Tensor(ov::element::u8, ov::Shape{kMaxCopiedBytes});
    }
  }

  Status bind(InferRequest& request, std::span<TensorView>) override {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const TensorView& input = request.inputs[i];
      LUMEN_RETURN_IF_ERROR(check_wide_integers(inputs_[i].spec.name, input));
      if (input.type == ElementType::kBytes) {
        LUMEN_RETURN_IF_ERROR(bind_strings(i, input));
      } else {
        bind_numbers(i, input);
      }
    }
    return {};
  }

  Status collect(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t position = 0; position < outputs.size(); ++position) {
      const size_t index = output_index(request, position);
      const std::string& name = outputs_[index].spec.name;
      const ov::Tensor tensor = request_.get_output_tensor(index);
      TensorView& output = outputs[position];
      output.type = outputs_[index].spec.type;
      output.shape = *our_shape(tensor.get_shape());
      const bool strings = output.type == ElementType::kBytes;
      const std::span<const std::string> texts =
          strings ? std::span(tensor.data<const std::string>(), tensor.get_size())
                  : std::span<const std::string>();
      output.byte_size = tensor.get_byte_size();
      if (strings) {
        output.byte_size = texts.size() * sizeof(uint32_t);
        for (const std::string& text : texts) output.byte_size += text.size();
      }
      output.data = static_cast<std::byte*>(
          request.memory->allocate(output.byte_size, alignof(std::max_align_t)));
      if (output.data == nullptr) return no_room(name, output.byte_size);
      if (strings) {
        std::byte* next = output.data;
        for (const std::string& text : texts) next = write_bytes_element(text, next);
      } else if (output.byte_size > 0) {
        std::memcpy(output.data, tensor.data(), output.byte_size);
      }
    }
    return {};
  }

  const void* bound_input(size_t index) const noexcept override { return slots_[index].bound; }

 private:
  struct Slot {
    ov::Tensor small;  // bytes that small inputs are copied to
    ov::Tensor strings;
    Shape shape;  // of the bound tensor
    const void* bound = nullptr;
  };

  void bind_numbers(size_t index, const TensorView& input) {
    Slot& slot = slots_[index];
    std::byte* data = input.data;
    const bool aligned =
        reinterpret_cast<uintptr_t>(data) % std::max<size_t>(element_size(input.type), 1) == 0;
    if (input.byte_size <= kMaxCopiedBytes) {
      data = static_cast<std::byte*>(slot.small.data());
      std::memcpy(data, input.data, input.byte_size);
    } else if (!aligned) {
      ov::Tensor copy(their_type(input.type), their_shape(input.shape));
      std::memcpy(copy.data(), input.data, input.byte_size);
      slot.bound = nullptr;
      return request_.set_input_tensor(index, copy);
    }
    if (slot.bound == data && slot.shape == input.shape) return;
    request_.set_input_tensor(index,
                              ov::Tensor(their_type(input.type), their_shape(input.shape), data));
    slot.bound = data;
    slot.shape = input.shape;
  }

  Status bind_strings(size_t index, const TensorView& input) {
    Slot& slot = slots_[index];
    if (slot.bound == nullptr || !(slot.shape == input.shape)) {
      slot.strings = ov::Tensor(ov::element::string, their_shape(input.shape));
      request_.set_input_tensor(index, slot.strings);
      slot.bound = slot.strings.data();
      slot.shape = input.shape;
    }
    auto* texts = slot.strings.data<std::string>();
    return read_bytes_tensor(inputs_[index].spec.name, input.bytes(), slot.strings.get_size(),
                             [texts](size_t i, std::string_view text) { texts[i] = text; });
  }

  std::vector<Slot> slots_;
};

}  // namespace lumen::backends::openvino
