// The loop that a server runs on, in a file of its own: a program that links another definition
// runs the server on another loop. See loop.h for threads, memory and errors.
#include "net/loop_trial.h"

#include <lumen/net/loop.h>

#include <cstdio>
#include <string>
#include <utility>

namespace lumen::net {
namespace {

// io_uring serves where a turn costs at most this part of epoll's. It is the younger interface, and
// a trial of 10 ms errs by some percent.
constexpr double kWorthwhile = 0.9;

std::string why_of(const LoopTrial& trial) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "a request of 16 connections at once costs the loop %.1f us with io_uring, %.1f "
                "with epoll",
                trial.io_uring_ns / 1000, trial.epoll_ns / 1000);
  return text;
}

}  // namespace

Result<LoopChoice> choose_loop(LoopKind wanted) {
  if (wanted == LoopKind::kEpoll) return LoopChoice{LoopKind::kEpoll, "as set"};
  NoWakeHandler nobody;
  const auto probe = make_uring_loop(nobody);
  if (wanted == LoopKind::kIoUring) {
    if (probe.ok()) return LoopChoice{LoopKind::kIoUring, "as set"};
    return Status::error(probe.status().code(), "loop io_uring: %s; --loop epoll works without",
                         std::string(probe.status().message()).c_str());
  }
  if (!probe.ok()) return LoopChoice{LoopKind::kEpoll, std::string(probe.status().message())};
  const auto trial = try_loops();
  if (!trial.ok()) {
    return LoopChoice{LoopKind::kEpoll,
                      "the trial has failed: " + std::string(trial.status().message())};
  }
  const bool is_faster = trial->io_uring_ns <= kWorthwhile * trial->epoll_ns;
  return LoopChoice{is_faster ? LoopKind::kIoUring : LoopKind::kEpoll, why_of(*trial)};
}

Result<std::unique_ptr<Loop>> make_loop(LoopKind kind, WakeHandler& wake_handler) {
  return kind == LoopKind::kIoUring ? make_uring_loop(wake_handler) : make_epoll_loop(wake_handler);
}

}  // namespace lumen::net
