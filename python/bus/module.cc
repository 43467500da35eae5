// lumen_engine._bus: the bus for Python; lumen_engine/bus.py is its face.
// Threads and errors: see the parts. Memory: views of shared memory keep it mapped.
#include "support.h"

NB_MODULE(_bus, module) {
  using namespace lumen::bus::python;
  module.doc() = "Shared-memory rings between processes. Use lumen_engine.bus.";
  bind_errors(module);
  bind_publisher(module);
  bind_subscriber(module);
  bind_connections(module);
  bind_requests(module);
  bind_infer(module);
}
