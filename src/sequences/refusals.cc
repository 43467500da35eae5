// See the header.
#include "sequences/refusals.h"

#include <lumen/models/model_repository.h>

#include <cstdio>

namespace lumen::sequences {
namespace {

// As a request names it: 7, or "7".
struct IdText {
  char text[limits::kMaxSequenceIdBytes + 3];
  explicit IdText(const wire::SequenceWishes& sequence) noexcept {
    if (sequence.text.empty()) {
      std::snprintf(text, sizeof(text), "%llu", static_cast<unsigned long long>(sequence.number));
    } else {
      std::snprintf(text, sizeof(text), "\"%.*s\"", static_cast<int>(sequence.text.size()),
                    sequence.text.data());
    }
  }
};

}  // namespace

Status refusal(Answer answer, const service::Call& call) noexcept {
  const models::Model& model = *call.infer.model;
  const IdText id(call.sequence);
  const models::SequenceOptions& options = model.sequences();
  if (answer == Answer::kFull) {
    return Status::error(Code::kResourceExhausted,
                         "model '%s' has %u live sequences, as many as \"sequences.most\" in its "
                         "config.json allows; end one with sequence_end, or raise it",
                         model.metadata().name.c_str(), options.most);
  }
  return Status::error(Code::kInvalidArgument,
                       "model '%s' has no live sequence %s: it has not begun, has ended, or was "
                       "dropped after %llu ms without a request; begin it with sequence_start",
                       model.metadata().name.c_str(), id.text,
                       static_cast<unsigned long long>(options.idle_ms));
}

}  // namespace lumen::sequences
