// The start messages of `lumen serve`: a banner of at most 12 lines on stdout, and the warnings:
// more workers than CPUs, and an address that others can reach.
// Threads: main. Memory: control plane. Errors: never.
#pragma once

#include <lumen/base/cpu.h>
#include <lumen/engine/engine.h>
#include <lumen/models/model_repository.h>
#include <lumen/server/options.h>

#include <functional>
#include <string>
#include <string_view>

// Empty where all threads that run models have a CPU of their own.
[[nodiscard]] std::string overcommit_warning(const lumen::server::ServerOptions& options,
                                             const lumen::CpuBudget& budget);

// Empty where `tcp_address`, of the flag, is reached from this machine alone, or is off; and where
// clients are known, by certificates or by keys that TLS hides.
[[nodiscard]] std::string exposure_warning(std::string_view flag, std::string_view tcp_address,
                                           const lumen::server::ServerOptions& options);

// "mlp/1  openvino  input FP32[-1,256] -> output FP32[-1,10]".
[[nodiscard]] std::string model_line(const lumen::models::Model& model);

// "2 instances of 12 MB", without the size where it is not known; empty where there is none.
[[nodiscard]] std::string instances_text(const lumen::engine::Engine::Instances& instances);

// Notes on a model: how its requests go, if not all go alike, and its memory.
using ModelNote = std::function<std::string(const lumen::models::Model&)>;

// `pinning`: as Server::pinning() says it. The addresses as the server bound them; "" for a
// listener that there is not. The last line begins with "lumen: ready"; a caller of the process
// waits for it.
void print_banner(const lumen::server::ServerOptions& options, const lumen::CpuBudget& budget,
                  std::string_view pinning, const lumen::models::ModelRepository& repository,
                  const ModelNote& note_of, std::string_view http_address,
                  std::string_view grpc_address, std::string_view unix_path,
                  std::string_view bus_path, std::string_view counters_path);
