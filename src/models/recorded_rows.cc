// See the header.
#include "models/recorded_rows.h"

#include <lumen/models/trial_run.h>

#include <nlohmann/json.hpp>

#include "models/answer_gap.h"
#include "models/compare_backends.h"
#include "models/format_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
// `lumen quantize` writes 16 rows at most, and some 10 KB of text.
constexpr size_t kMaxCalls = 64;
constexpr uintmax_t kMaxTextBytes = uintmax_t{4} << 20;
// Room for one row as large as the trial's memory allows.
constexpr uintmax_t kMaxRowsBytes = uintmax_t{256} << 20;
// A backend may run one row, a few and many by different code.
constexpr size_t kPacks[] = {2, 3, 4, 8, 16};

// nullopt: not readable, or larger than `most`.
std::optional<std::vector<std::byte>> bytes_of(const std::filesystem::path& file, uintmax_t most) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > most) return std::nullopt;
  std::vector<std::byte> bytes(size);
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) return std::nullopt;
  return bytes;
}

// Sums over the numbers of one output.
struct Power {
  double signal = 0;
  double noise = 0;
  bool is_comparable = true;  // and of the same shape

  [[nodiscard]] double decibels() const noexcept {
    if (!is_comparable || std::isnan(noise)) return -std::numeric_limits<double>::infinity();
    if (noise == 0) return std::numeric_limits<double>::infinity();
    return 10 * std::log10(signal / noise);
  }
};

bool is_float(ElementType type) noexcept {
  return type == ElementType::kFp32 || type == ElementType::kFp64 || type == ElementType::kFp16 ||
         type == ElementType::kBf16;
}

// `got` has the bytes of one row of `wanted`, or all of them.
void add(Power& power, const TensorView& wanted, const std::byte* got) {
  TensorView other = wanted;
  other.data = const_cast<std::byte*>(got);
  const size_t count = wanted.byte_size / element_size(wanted.type);
  for (size_t i = 0; i < count; ++i) {
    const std::optional<double> a = number_at(wanted, i);
    const std::optional<double> b = number_at(other, i);
    if (!a || !b) {
      power.is_comparable = false;
      return;
    }
    if (*a == *b || (std::isnan(*a) && std::isnan(*b))) {
      if (is_float(wanted.type) && std::isfinite(*a)) power.signal += *a * *a;
      if (!is_float(wanted.type)) power.signal += 1;
      continue;
    }
    if (is_float(wanted.type)) {
      power.signal += *a * *a;
      power.noise += (*a - *b) * (*a - *b);  // infinite or NaN where one of them is
    } else {
      power.signal += 1;
      power.noise += 1;
    }
  }
}

}  // namespace

// Builds the object out of the JSON. Throws nlohmann's exceptions, and std::string of its own.
class RecordedRows::Reader {
 public:
  Reader(RecordedRows& rows, const Json& json) : rows_(rows), json_(json) {}

  void read() {
    if (json_.at("version").get<int>() != kVersion) {
      throw format_text("version %d; wanted %d", json_.at("version").get<int>(), kVersion);
    }
    rows_.precision_ = precision(json_.at("precision").get<std::string>());
    rows_.why_ = json_.value("why", "");
    const Json& check = json_.at("check");
    rows_.least_db_ = check.at("least_db").get<double>();
    const Json& calls = check.at("calls");
    if (!calls.is_array() || calls.empty() || calls.size() > kMaxCalls) {
      throw format_text("check.calls has %zu entries; wanted 1 to %zu", calls.size(), kMaxCalls);
    }
    for (const Json& call : calls) {
      rows_.calls_.push_back({tensors(call.at("inputs")), tensors(call.at("outputs"))});
    }
  }

 private:
  static uint32_t precision(const std::string& name) {
    const auto found = std::ranges::find(kServedPrecisions.begin() + kFirstQuantised,
                                         kServedPrecisions.end(), std::string_view(name));
    if (found == kServedPrecisions.end()) {
      throw format_text("precision '%.40s'; wanted int8, int8_mixed or int8_weights", name.c_str());
    }
    return static_cast<uint32_t>(found - kServedPrecisions.begin());
  }

  std::vector<Tensor> tensors(const Json& list) const {
    std::vector<Tensor> made;
    for (const Json& one : list) made.push_back(tensor(one));
    return made;
  }

  Tensor tensor(const Json& json) const {
    Tensor made;
    made.name = json.at("name").get<std::string>();
    const std::string datatype = json.at("datatype").get<std::string>();
    const std::optional<ElementType> type = parse_element_type(datatype);
    if (!type || *type == ElementType::kBytes) {
      throw format_text("'%.100s' has datatype '%.20s'", made.name.c_str(), datatype.c_str());
    }
    const auto shape = json.at("shape").get<std::vector<int64_t>>();
    const auto offset = json.at("offset").get<uint64_t>();
    const auto size = json.at("bytes").get<uint64_t>();
    uint64_t elements = 1;
    for (const int64_t axis : shape) {
      if (!made.view.shape.append(axis)) {
        throw format_text("'%.100s' has %zu axes", made.name.c_str(), shape.size());
      }
      const bool fits = axis > 0 && static_cast<uint64_t>(axis) <= kMaxRowsBytes / elements;
      if (!fits) {
        throw format_text("'%.100s' has an axis of %lld", made.name.c_str(),
                          static_cast<long long>(axis));
      }
      elements *= static_cast<uint64_t>(axis);
    }
    const uint64_t available = rows_.bytes_.size();
    if (size != elements * element_size(*type) || offset > available || size > available - offset) {
      throw format_text("'%.100s' has %llu bytes at %llu of a file of %llu", made.name.c_str(),
                        static_cast<unsigned long long>(size),
                        static_cast<unsigned long long>(offset),
                        static_cast<unsigned long long>(available));
    }
    made.view.type = *type;
    made.view.byte_size = size;
    made.view.data = rows_.bytes_.data() + offset;
    return made;
  }

  RecordedRows& rows_;
  const Json& json_;
};

Result<std::shared_ptr<const RecordedRows>> RecordedRows::read(
    const std::filesystem::path& model_file) {
  const std::filesystem::path file = model_file.parent_path() / "quantization.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::shared_ptr<const RecordedRows>();
  const auto refused = [&file](const std::string& reason) {
    return Status::error(Code::kUnavailable,
                         "%s: %.200s; run lumen quantize again, or remove it to serve the version "
                         "without a check of its answers",
                         file.c_str(), reason.c_str());
  };
  const auto text = bytes_of(file, kMaxTextBytes);
  if (!text) return refused("can't be read, or is larger than 4 MiB");
  auto rows = std::make_shared<RecordedRows>();
  const std::filesystem::path rows_file = model_file.parent_path() / "quantization.rows";
  auto bytes = bytes_of(rows_file, kMaxRowsBytes);
  if (!bytes) {
    return refused("quantization.rows beside it can't be read, or is larger than 256 MiB");
  }
  rows->bytes_ = std::move(*bytes);
  try {
    const auto* begin = reinterpret_cast<const char*>(text->data());
    const Json json = Json::parse(begin, begin + text->size());
    Reader(*rows, json).read();
  } catch (const Json::exception& problem) {
    return refused(problem.what());
  } catch (const std::string& problem) {
    return refused(problem);
  }
  return std::shared_ptr<const RecordedRows>(std::move(rows));
}

// Calls of one size, and how far their answers are off.
class RecordedRows::Trial {
 public:
  Trial(const ModelMetadata& metadata, Instance& instance, RequestMemory& memory)
      : metadata_(metadata),
        instance_(instance),
        memory_(memory),
        powers_(metadata.outputs.size()) {}

  // Empty: it ran.
  std::string run(std::span<const Call> calls) {
    memory_.reset(kTrialBytes);
    std::vector<TensorView> inputs;
    for (const TensorSpec& spec : metadata_.inputs) {
      std::optional<TensorView> input = joined(calls, spec);
      if (!input) {
        return format_text("no input '%.100s' is recorded with its datatype and shape",
                           spec.name.c_str());
      }
      inputs.push_back(*input);
    }
    TrialRun trial(metadata_, nullptr, memory_);
    if (!trial.run_inputs(instance_, inputs)) {
      return format_text("a call failed: %.150s", trial.status().c_message());
    }
    for (size_t i = 0; i < metadata_.outputs.size(); ++i) judge(calls, i, trial.outputs()[i]);
    return {};
  }

  // Of the output that is furthest off; outputs of floats count alone where there are any.
  [[nodiscard]] double decibels() const {
    const bool has_floats = std::ranges::any_of(
        metadata_.outputs, [](const TensorSpec& spec) { return is_float(spec.type); });
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < powers_.size(); ++i) {
      if (has_floats && !is_float(metadata_.outputs[i].type)) continue;
      least = std::min(least, powers_[i].decibels());
    }
    return least;
  }

 private:
  static const Tensor* find(const std::vector<Tensor>& tensors, std::string_view name) {
    const auto found = std::ranges::find(tensors, name, &Tensor::name);
    return found == tensors.end() ? nullptr : &*found;
  }

  // The input of all calls, behind each other along the first axis.
  std::optional<TensorView> joined(std::span<const Call> calls, const TensorSpec& spec) {
    const Tensor* first = find(calls.front().inputs, spec.name);
    if (first == nullptr || first->view.type != spec.type) return std::nullopt;
    TensorView made = first->view;
    if (calls.size() > 1) made.shape[0] = static_cast<int64_t>(calls.size());
    if (!spec.shape.accepts(made.shape)) return std::nullopt;  // no backend checks it again
    made.byte_size = first->view.byte_size * calls.size();
    made.data = static_cast<std::byte*>(memory_.allocate(made.byte_size, 64));
    if (made.data == nullptr) return std::nullopt;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Tensor* one = find(calls[i].inputs, spec.name);
      if (one == nullptr || one->view.byte_size != first->view.byte_size) return std::nullopt;
      std::memcpy(made.data + i * first->view.byte_size, one->view.data, one->view.byte_size);
    }
    return made;
  }

  void judge(std::span<const Call> calls, size_t index, const TensorView& got) {
    const std::byte* place = got.data;
    size_t left = got.byte_size;
    for (const Call& call : calls) {
      const Tensor* wanted = find(call.outputs, metadata_.outputs[index].name);
      if (wanted == nullptr || wanted->view.type != got.type || wanted->view.byte_size > left) {
        powers_[index].is_comparable = false;
        return;
      }
      add(powers_[index], wanted->view, place);
      place += wanted->view.byte_size;
      left -= wanted->view.byte_size;
    }
    if (left != 0) powers_[index].is_comparable = false;
  }

  const ModelMetadata& metadata_;
  Instance& instance_;
  RequestMemory& memory_;
  std::vector<Power> powers_;
};

std::string RecordedRows::problem_of(const ModelMetadata& metadata, Instance& instance,
                                     RequestMemory& memory, bool may_pack) const {
  const auto problem = [this](Trial& trial, const std::string& failed, size_t rows) -> std::string {
    if (!failed.empty()) return failed + " (of the rows in quantization.json)";
    if (trial.decibels() >= least_db_) return {};
    return format_text(
        "its answers to the rows in quantization.json are wrong here: signal to error %.1f dB with "
        "%zu row%s a call, wanted %.1f",
        trial.decibels(), rows, rows == 1 ? "" : "s", least_db_);
  };
  Trial single(metadata, instance, memory);
  std::string failed;
  for (size_t i = 0; i < calls_.size() && failed.empty(); ++i) {
    failed = single.run(std::span(calls_).subspan(i, 1));
  }
  if (std::string found = problem(single, failed, 1); !found.empty()) return found;
  const auto is_one_row = [](const Tensor& tensor) {
    return tensor.view.shape.rank() > 0 && tensor.view.shape[0] == 1;
  };
  const auto has_shapes_of_first = [&](const Call& call) {
    return std::ranges::equal(
               call.inputs, calls_.front().inputs, {},
               [](const Tensor& one) { return one.view.byte_size; },
               [](const Tensor& one) { return one.view.byte_size; }) &&
           std::ranges::all_of(call.inputs, is_one_row) &&
           std::ranges::all_of(call.outputs, is_one_row);
  };
  if (!may_pack || !std::ranges::all_of(calls_, has_shapes_of_first)) return {};
  for (const size_t rows : kPacks) {
    if (rows > calls_.size()) break;
    Trial packed(metadata, instance, memory);
    std::string found = problem(packed, packed.run(std::span(calls_).first(rows)), rows);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace lumen::models
