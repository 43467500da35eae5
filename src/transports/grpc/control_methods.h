// The methods that a thread of the control plane answers: who may call them, and how their messages
// become the JSON of a Job and back, by protobuf's library.
// Threads: find: any; the forms by the control plane. Memory: the heap, and the job's. Errors:
// kInvalidArgument where a message is broken.
#pragma once

#include "transports/grpc/method.h"

#include <lumen/service/job.h>
#include <lumen/transports/common/access.h>

namespace lumen::grpc {

struct ControlMethod {
  Method method;
  service::Job::Topic topic;
  transports::Audience audience;
  const service::JobForm& form;
};

// nullptr: an I/O thread answers it.
[[nodiscard]] const ControlMethod* find_control_method(Method method) noexcept;

}  // namespace lumen::grpc
