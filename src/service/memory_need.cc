// See the header. No memory.
#include <lumen/service/memory_need.h>

#include <lumen/models/model_repository.h>

#include <algorithm>
#include <optional>

namespace lumen::service {
namespace {

// The shortest text of an element is "1,", and the longest element that it can be has eight bytes.
constexpr size_t kTextBytesOfAnElement = 2;
constexpr size_t kMostBytesOfAnElement = 8;
// The longest text of a byte of output: "false," of a BOOL.
constexpr size_t kTextOfAByte = 6;
// Lists, names and numbers around one tensor, in the request and in the reply, and its alignment.
constexpr size_t kListBytesOfATensor = 1024;
constexpr size_t kListBytes = 4096;
// The same of a step of an ensemble, with the request that runs it, and of a tensor between steps:
// no text holds these.
constexpr size_t kListBytesOfAStep = 1024;
constexpr size_t kListBytesOfATensorBetween = 256;

size_t saturated_sum(size_t a, size_t b) noexcept {
  size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}
size_t saturated_product(size_t a, size_t b) noexcept {
  size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

// Elements of all axes but a free first one; nullopt: another axis is free.
std::optional<size_t> elements_of_a_row(const Shape& shape) noexcept {
  Shape row = shape;
  if (row.rank() > 0 && row[0] < 0) row[0] = 1;
  return row.element_count();
}

bool has_rows(const Shape& shape) noexcept { return shape.rank() > 0 && shape[0] < 0; }

}  // namespace

ModelNeed::ModelNeed(const models::ModelMetadata& model) noexcept
    : list_bytes_(kListBytes + (model.inputs.size() + model.outputs.size()) * kListBytesOfATensor),
      has_rows_(std::ranges::any_of(
          model.inputs, [](const models::TensorSpec& input) { return has_rows(input.shape); })) {
  for (const models::TensorSpec& input : model.inputs) {
    if (!has_rows(input.shape)) continue;
    const size_t elements = elements_of_a_row(input.shape).value_or(1);
    row_elements_ = saturated_sum(row_elements_, elements);
    const size_t element = std::max({element_size(input.type), input.usual_bytes, size_t{1}});
    row_bytes_ = saturated_sum(row_bytes_, saturated_product(elements, element));
  }
  row_elements_ = std::max<size_t>(row_elements_, 1);
  row_bytes_ = std::max<size_t>(row_bytes_, 1);
  for (const models::TensorSpec& output : model.outputs) add_output(output, Text::kOfOutputs);
  outputs_.add(has_rows_, model.prepared_bytes);
}

ModelNeed::ModelNeed(const models::Model& model) noexcept : ModelNeed(model.metadata()) {
  if (model.ensemble() == nullptr) return;
  for (const models::EnsemblePlan::Step& step : model.ensemble()->steps) {
    const models::ModelMetadata& metadata = step.model->metadata();
    list_bytes_ +=
        kListBytesOfAStep + (step.inputs.size() + step.outputs.size()) * kListBytesOfATensorBetween;
    if (step.is_last) continue;  // they are the ensemble's own
    for (const uint16_t output : step.outputs_wanted) {
      add_output(metadata.outputs[output], Text::kNone);
    }
  }
}

void ModelNeed::Sums::add(bool has_rows, size_t bytes) noexcept {
  size_t& sum = has_rows ? row : fixed;
  sum = saturated_sum(sum, bytes);
}

void ModelNeed::add_output(const models::TensorSpec& output, Text text) noexcept {
  const std::optional<size_t> row = elements_of_a_row(output.shape);
  const size_t element = element_size(output.type);  // 0: BYTES, of any length
  if (!row || element == 0 || !output.has_rank) {
    ++open_outputs_;
    return;
  }
  const size_t bytes = saturated_product(*row, element);
  outputs_.add(has_rows(output.shape), bytes);
  if (text == Text::kNone) return;
  texts_.add(has_rows(output.shape), saturated_product(bytes, kTextOfAByte));
}

// As many as the whole body could be, if all inputs with rows have the same number of them, as
// nearly all models want.
size_t ModelNeed::most_rows(const BodySize& body) const noexcept {
  if (!has_rows_) return 1;
  return body.binary_bytes / row_bytes_ + body.text_bytes / kTextBytesOfAnElement / row_elements_ +
         2;
}

MemoryNeed ModelNeed::of(const BodySize& body) const noexcept {
  MemoryNeed need{.body_bytes = list_bytes_, .reply_bytes = outputs_.fixed};
  const size_t decoded =
      saturated_product(body.text_bytes, kMostBytesOfAnElement / kTextBytesOfAnElement);
  for (const size_t part : {body.binary_bytes, body.collected_bytes, decoded}) {
    need.body_bytes = saturated_sum(need.body_bytes, part);
  }
  const size_t inputs = saturated_sum(body.binary_bytes, decoded);
  const size_t rows = most_rows(body);
  for (const size_t part :
       {saturated_product(outputs_.row, rows), saturated_product(open_outputs_, inputs),
        body.may_want_text ? texts_.fixed : 0,
        body.may_want_text ? saturated_product(texts_.row, rows) : 0}) {
    need.reply_bytes = saturated_sum(need.reply_bytes, part);
  }
  return need;
}

}  // namespace lumen::service
