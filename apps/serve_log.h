// The log of `lumen serve`: lines on stderr, as text or as one JSON object each.
// Threads: set up by the main thread; spdlog's own lock lets all others log. Memory: control plane.
// Errors: never.
#pragma once

#include <lumen/server/options.h>

// Makes it, or changes its level and format while it is in use.
void configure_log(lumen::server::LogLevel level, lumen::server::LogFormat format);
