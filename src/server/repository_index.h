// POST /v2/repository/index: the versions that are served, and those that lie in the repository and
// are not.
// Threads: the control plane. Memory: the heap. Errors: by the status of the job.
#pragma once

#include <lumen/models/model_repository.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

namespace lumen::server {

void answer_index(const models::ModelRepository& repository,
                  const service::CatalogSnapshot& catalog, service::Job& job);

}  // namespace lumen::server
