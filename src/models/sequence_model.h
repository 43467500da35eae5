// SequenceModel: a model whose states the server keeps, around the model as a backend loaded it.
// Its clients see neither the inputs nor the outputs of states, nor the controls: inputs that tell
// the model of its sequence. InferRequest::turn says where the states of a sequence lie; with
// nullptr they are those of a beginning, and nobody keeps them (a warm-up).
//
// A request alone has its states bound where they lie. For a packed run they are gathered into one
// tensor. The new states go to SequenceTurn::new_state. The owner of the request makes them
// those of the sequence once it has ended well.
//
// Threads: as those of the model within; one request of a sequence at a time (module sequences).
// Memory: gathered and new states in the request's scratch memory. Errors: as a request's status.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/sequence_options.h>

#include <memory>

namespace lumen::models {

[[nodiscard]] std::unique_ptr<LoadedModel> make_sequence_model(std::unique_ptr<LoadedModel> inner,
                                                               SequencePlan plan);

}  // namespace lumen::models
