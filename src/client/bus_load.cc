// See the header.
#include "client/bus_load.h"

#include "client/thread_share.h"

#include <lumen/base/clock.h>
#include <lumen/bus/wait_any.h>

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::client {
namespace {

using bus::Outcome;
using bus_client::InferClient;
using bus_client::Reply;
using bus_client::Sent;
using wire::BusTensor;
using wire::BusVerb;

constexpr uint64_t kDocumentTimeoutNs = 10'000'000'000u;
// The longest sleep: the end and a stop are seen in time.
constexpr uint64_t kTickNs = 100'000'000u;

uint64_t aligned(uint64_t bytes) noexcept { return bus::payload_bytes(bytes); }

Status lost(const Target& target, Outcome outcome) {
  return Status::error(Code::kUnavailable, "%s: %s", target.url.c_str(), name_of(outcome));
}

// The reply to the only request in flight.
Result<Reply> only_reply(const Target& target, InferClient& client, const Sent& sent) {
  if (sent.outcome != Outcome::kOk) return lost(target, sent.outcome);
  const Outcome outcome = client.wait(now_ns() + kDocumentTimeoutNs);
  if (outcome != Outcome::kOk) return lost(target, outcome);
  std::optional<Reply> reply = client.try_take();
  if (!reply) return lost(target, client.state());
  return *reply;
}

}  // namespace

Result<std::string> fetch_over_bus(const Target& target, BusVerb verb, const std::string& model,
                                   const std::string& version) {
  auto client = InferClient::connect(target.bus_path, now_ns() + kDocumentTimeoutNs);
  if (!client.ok()) return client.status();
  const auto reply =
      only_reply(target, *client, client->send({.model = model, .version = version}, verb));
  if (!reply.ok()) return reply.status();
  std::string text(reply->reply.text);
  if (reply->reply.status == 200) return text;
  return Status::error(Code::kNotFound, "%s answered %d for model '%s': %s", target.url.c_str(),
                       reply->reply.status, model.c_str(), text.c_str());
}

BusLoad::BusLoad(const LoadPlan& plan, uint32_t index, const std::atomic<bool>& stop)
    : plan_(plan),
      stop_(stop),
      index_(index),
      share_(static_cast<uint32_t>(share(plan.clients, plan.threads, index))),
      chooser_(plan.repeat_ratio, VariantChooser::some_first()) {
  for (const InputTensor& input : plan.inputs) request_bytes_ += input.bytes.size();
  if (plan.requests == 0) return;
  warm_up_count_ = share(plan.warm_up_requests, plan.threads, index);
  total_count_ = warm_up_count_ + share(plan.requests, plan.threads, index);
}

void BusLoad::count_failure(Failure failure, const std::string& text) {
  ++tally_.failures[static_cast<size_t>(failure)];
  if (tally_.first_error.empty()) tally_.first_error = text;
}

bool BusLoad::connect_one(uint64_t now) {
  auto connected = InferClient::connect(plan_.target.bus_path, now + plan_.timeout_ns);
  if (!connected.ok()) {
    count_failure(Failure::kConnect, std::string(connected.status().message()));
    return false;
  }
  Client& client = clients_.emplace_back(std::move(*connected));
  client.index = index_ + (clients_.size() - 1) * plan_.threads;
  if (room_bytes_ == 0 && !probe_room(client)) return false;
  lay_out(client);
  if (client.slots.size() < plan_.in_flight) {
    count_failure(Failure::kConnect,
                  "the area of " + std::to_string(client.connection.area().size()) +
                      " bytes has no room for " + std::to_string(plan_.in_flight) +
                      " requests of " + std::to_string(client.slot_bytes) +
                      "; start the server with a larger --bus-area-bytes");
    return false;
  }
  rings_.push_back(&*client.connection.connection().subscriber);
  return true;
}

// One request with all the room that there is tells how much the outputs take.
bool BusLoad::probe_room(Client& client) {
  room_bytes_ = client.connection.area().size() -
                std::min<uint64_t>(client.connection.area().size(),
                                   aligned(request_bytes_) + 64 * plan_.inputs.size());
  room_bytes_ &= ~uint64_t{63};
  lay_out(client);
  if (client.slots.empty()) {
    count_failure(Failure::kConnect,
                  "the inputs do not fit the area; start the server with a larger "
                  "--bus-area-bytes");
    return false;
  }
  Slot& slot = client.slots[0];
  write_inputs(client, slot);
  const uint64_t room = slot.offset + client.slot_bytes - room_bytes_;
  const auto reply = only_reply(plan_.target, client.connection,
                                client.connection.send({.model = plan_.model,
                                                        .version = plan_.version,
                                                        .sequence = next_of_sequence(slot),
                                                        .reply_offset = room,
                                                        .reply_room = room_bytes_,
                                                        .inputs = slot.inputs}));
  if (!reply.ok()) {
    count_failure(Failure::kClosed, std::string(reply.status().message()));
    return false;
  }
  room_bytes_ = 64;
  for (const BusTensor& output : reply->reply.outputs) {
    room_bytes_ = std::max(room_bytes_, aligned(output.offset + output.bytes - room));
  }
  if (reply->reply.status != 200) {
    ++tally_.by_status[std::min<size_t>(reply->reply.status, kMaxStatus - 1)];
    tally_.first_error = reply->reply.text.substr(0, kErrorTextBytes);
  }
  const bool is_ok = reply->reply.status == 200;
  client.connection.release();
  return is_ok;
}

// Places one behind the other: inputs, then the room for outputs.
void BusLoad::lay_out(Client& client) {
  client.slot_bytes = room_bytes_;
  for (const InputTensor& input : plan_.inputs) client.slot_bytes += aligned(input.bytes.size());
  client.slots.clear();
  const std::span<std::byte> area = client.connection.area();
  for (uint64_t offset = 0;
       offset + client.slot_bytes <= area.size() && client.slots.size() < plan_.in_flight;
       offset += client.slot_bytes) {
    const uint64_t index = client.index + client.slots.size() * plan_.clients;
    const uint64_t walks = uint64_t{plan_.clients} * plan_.in_flight;
    Slot& slot = client.slots.emplace_back();
    slot.walk = SequenceWalk(plan_.sequence_length, plan_.first_sequence, index, walks);
    slot.offset = offset;
    uint64_t at = offset;
    for (const InputTensor& input : plan_.inputs) {
      slot.inputs.push_back({.name = input.name,
                             .type = input.type,
                             .shape = input.shape,
                             .offset = at,
                             .bytes = input.bytes.size()});
      at += aligned(input.bytes.size());
    }
  }
}

// As a client with new values does: the server then reads bytes that this core has just written.
void BusLoad::write_inputs(Client& client, const Slot& slot) {
  std::byte* area = client.connection.area().data();
  for (size_t i = 0; i < slot.inputs.size(); ++i) {
    const InputTensor& input = plan_.inputs[i];
    std::memcpy(area + slot.inputs[i].offset, input.bytes.data(), input.bytes.size());
  }
  if (!plan_.variants) return;
  const uint64_t offset = slot.inputs[plan_.variants->input()].offset;
  plan_.variants->write(chooser_.next(), reinterpret_cast<char*>(area + offset));
}

wire::SequenceWishes BusLoad::next_of_sequence(Slot& slot) const noexcept {
  if (plan_.sequence_length == 0) return {};
  const SequencePlace place = slot.walk.next();
  return {.number = place.id, .text = {}, .starts = place.starts, .ends = place.ends};
}

void BusLoad::send_one(Client& client, uint32_t number, uint64_t now) {
  if (total_count_ != 0 && sent_count_ == total_count_) return;
  Slot& slot = client.slots[number];
  slot.measured = total_count_ == 0 || sent_count_ >= warm_up_count_;
  if (total_count_ != 0 && slot.measured && begin_ns_ == 0) {
    begin_ns_ = now;
    open_window();
  }
  ++sent_count_;
  slot.sent_ns = now;
  write_inputs(client, slot);
  const Sent sent =
      client.connection.send({.model = plan_.model,
                              .version = plan_.version,
                              .timeout_us = std::nullopt,
                              .sequence = next_of_sequence(slot),
                              .reply_offset = slot.offset + client.slot_bytes - room_bytes_,
                              .reply_room = room_bytes_,
                              .inputs = slot.inputs},
                             BusVerb::kInfer, number + 1);
  if (sent.outcome == Outcome::kOk) return;
  client.is_over = true;
  ++settled_count_;
  count_failure(Failure::kClosed, name_of(sent.outcome));
}

size_t BusLoad::take_replies(Client& client) {
  size_t taken = 0;
  uint64_t now = 0;
  while (const std::optional<Reply> reply = client.connection.try_take()) {
    if (taken++ == 0) now = now_ns();
    const auto number = static_cast<uint32_t>(reply->id - 1);
    if (number >= client.slots.size()) {
      client.is_over = true;
      count_failure(Failure::kBroken, "a reply to no request");
      break;
    }
    ++settled_count_;
    if (reply->reply.status != 200) client.slots[number].walk.begin_another();
    count_reply(client, client.slots[number], reply->reply, now);
    send_one(client, number, now);
  }
  if (taken == 0) return 0;
  client.connection.release();
  client.connection.flush();
  return taken;
}

void BusLoad::count_reply(Client& client, const Slot& slot, const wire::BusReply& reply,
                          uint64_t now) {
  if (total_count_ != 0 ? !slot.measured : now < begin_ns_) return;
  last_ns_ = now;
  ++tally_.by_status[std::min<size_t>(reply.status, kMaxStatus - 1)];
  if (reply.status != 200) {
    if (tally_.first_error.empty()) tally_.first_error = reply.text.substr(0, kErrorTextBytes);
    return;
  }
  uint64_t bytes = 0;
  const std::span<std::byte> area = client.connection.area();
  for (const BusTensor& output : reply.outputs) {
    bytes += output.bytes;
    for (const std::byte value : area.subspan(output.offset, output.bytes)) read_ ^= value;
  }
  tally_.bytes_sent += request_bytes_;
  tally_.bytes_received += bytes;
  tally_.latency.record(now - slot.sent_ns);
  tally_.shortest_reply = std::min(tally_.shortest_reply, bytes);
  tally_.longest_reply = std::max(tally_.longest_reply, bytes);
}

bool BusLoad::is_over(uint64_t now) const noexcept {
  // relaxed: nothing else is read because of it.
  if (stop_.load(std::memory_order_relaxed) || rings_.empty()) return true;
  if (std::ranges::all_of(clients_, &Client::is_over)) return true;
  return total_count_ != 0 ? settled_count_ >= total_count_ : now >= end_ns_;
}

void BusLoad::wait(uint64_t now) {
  if (plan_.poll) return;
  uint64_t until_ns = now + kTickNs;
  if (end_ns_ > now) until_ns = std::min(until_ns, end_ns_);
  const bus::Ready ready = bus::wait_any(rings_, idle_, 0, until_ns);
  if (!bus::is_over(ready.outcome)) return;
  clients_[ready.index].is_over = true;
  count_failure(Failure::kClosed, name_of(ready.outcome));
  // A ring that is over would end every wait at once.
  rings_.clear();
}

void BusLoad::run(uint64_t start_ns) {
  prctl(PR_SET_TIMERSLACK, 1);
  for (uint32_t i = 0; i < share_; ++i) {
    if (!connect_one(now_ns())) return;
  }
  if (total_count_ == 0) {
    // Connecting takes longer than a short measurement: it makes and maps memory for each client.
    begin_ns_ = std::max(start_ns, now_ns()) + plan_.warm_up_ns;
    end_ns_ = begin_ns_ + plan_.duration_ns;
  }
  uint64_t now = now_ns();
  for (Client& client : clients_) {
    for (uint32_t i = 0; i < client.slots.size(); ++i) send_one(client, i, now);
    client.connection.flush();
  }
  while (!is_over(now)) {
    if (!window_open_ && begin_ns_ != 0 && now >= begin_ns_) open_window();
    size_t taken = 0;
    for (Client& client : clients_) taken += take_replies(client);
    ++looks_;
    if (taken == 0) {
      ++empty_looks_;
      wait(now);
    }
    now = now_ns();
  }
  close_window(now);
}

void BusLoad::open_window() {
  window_open_ = true;
  cpu_at_begin_ns_ = thread_cpu_ns();
  looks_ = 0;
  empty_looks_ = 0;
}

void BusLoad::close_window(uint64_t now) {
  if (!window_open_) return;
  const uint64_t cpu_ns = thread_cpu_ns() - cpu_at_begin_ns_;
  tally_.cpu_seconds = static_cast<double>(cpu_ns) / 1e9;
  tally_.busiest_cpu =
      static_cast<double>(cpu_ns) / static_cast<double>(std::max<uint64_t>(now - begin_ns_, 1));
  if (looks_ > 0) {
    tally_.fewest_empty_polls = static_cast<double>(empty_looks_) / static_cast<double>(looks_);
  }
  tally_.busiest_turns = 1 - tally_.fewest_empty_polls;
  const uint64_t end_ns = total_count_ != 0 ? std::max(last_ns_, begin_ns_) : now;
  tally_.seconds = static_cast<double>(end_ns - begin_ns_) / 1e9;
  if (tally_.seconds > 0) {
    tally_.per_second = static_cast<double>(tally_.ok_count()) / tally_.seconds;
  }
}

}  // namespace lumen::client
