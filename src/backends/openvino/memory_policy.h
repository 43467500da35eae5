// Takes back the memory policies that OpenVINO leaves on the heap. Its CPU plugin calls mbind() for
// scratchpads (2026.4) and, with the latency hint, for weights: for pages of the heap, which go on
// being bound to one node when others use them, and which the kernel keeps as mappings of their
// own: it merges neighbours only where their policies are equal. A server that compiled often went
// towards the limit of 65,530 mappings.
// Threads: any; the control plane's, for it reads /proc. Memory: the heap. Errors: never; a mapping
// that can't be read or changed stays as it is.
#pragma once

#include <cstddef>

namespace lumen::backends::openvino {

// Private mappings without a file that are bound to nodes (MPOL_BIND, which Lumen itself never
// uses) get the default policy again; their pages stay where they are. Returns how many those were.
size_t release_bound_mappings();

}  // namespace lumen::backends::openvino
