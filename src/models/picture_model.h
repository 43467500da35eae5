// PictureModel: a model whose inputs of pictures are pixels or files, around the model as a backend
// loaded it. It decodes, resizes and turns pixels into the model's numbers on the thread that runs
// the model, unless the backend does the last part in its graph.
// Threads: as those of the model within. Memory: pixels and numbers in the request's scratch
// memory, the decoder's own on the heap until it is done. Errors: as a request's status.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/pictures.h>

#include <memory>
#include <vector>

namespace lumen::models {

// `inner` takes pixels (UINT8, PictureInput::pixel_shape()) for each of `pictures` if
// `takes_pixels`, otherwise the tensors that the model's file names.
[[nodiscard]] std::unique_ptr<LoadedModel> make_picture_model(std::unique_ptr<LoadedModel> inner,
                                                              std::vector<PictureInput> pictures,
                                                              bool takes_pixels);

}  // namespace lumen::models
