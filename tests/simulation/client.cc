// The clients. See the header for threads, memory and errors.
#include "simulation/client.h"

#include "simulation/backend.h"
#include "support/compress.h"
#include "support/http_client.h"

#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

namespace lumen::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
// Beyond all timeouts of the server together: a client that waits longer is never answered.
constexpr uint64_t kPatienceNs = 5'000 * kMs;

// Of the largest requests: 900 KiB.
constexpr size_t kMostRows = 57'000;
constexpr size_t kMostAsText = 25'000;  // nine bytes each

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Numbers as text, or as they are behind the JSON, with `spare` spaces between; now and then with a
// deadline and a wish of its own.
// `more`: of its parameters.
std::string infer_request(const std::string& model, const std::string& id,
                          const std::vector<float>& values, size_t spare,
                          const std::string& more = {}) {
  const bool as_text = values.size() < kMostAsText && random().one_in(8);
  const std::string bytes = bytes_of(values);
  std::string json = R"({"id":")" + id + R"(","inputs":[{"name":"x","datatype":"FP32","shape":[)" +
                     std::to_string(values.size() / 4) + ",4],";
  if (as_text) {
    json += R"("data":[)";
    for (const float value : values) json += std::to_string(static_cast<int64_t>(value)) + ",";
    json.back() = ']';
  } else {
    json += R"("parameters":{"binary_data_size":)" + std::to_string(bytes.size()) + "}";
  }
  json += R"(}],"parameters":{"binary_data_output":true)";
  if (random().one_in(6)) json += R"(,"timeout":)" + std::to_string(1 + random().below(20'000));
  if (random().one_in(16)) json += R"(,"no_cache":true)";
  if (random().one_in(8)) json += R"(,"ttl_ms":)" + std::to_string(1 + random().below(20));
  json += more + "}}" + std::string(spare, ' ');
  std::string headers = "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n";
  if (random().one_in(4)) {
    headers +=
        std::string("Accept-Encoding: ") + (random().one_in(2) ? "gzip" : "deflate") + "\r\n";
  }
  return server::post_request("/v2/models/" + model + "/infer", as_text ? json : json + bytes,
                              headers);
}

// Each row of four floats so many times.
std::string repeated(const std::string& rows, size_t times) {
  constexpr size_t kRowBytes = 4 * sizeof(float);
  std::string all;
  all.reserve(rows.size() * times);
  for (size_t begin = 0; begin < rows.size(); begin += kRowBytes) {
    for (size_t i = 0; i < times; ++i) all.append(rows, begin, kRowBytes);
  }
  return all;
}

std::string chunked(const std::string& request) {
  const size_t head_end = request.find("\r\n\r\n") + 4;
  std::string head = request.substr(0, head_end);
  const std::string body = request.substr(head_end);
  const size_t at = head.find("\r\nContent-Length: ") + 2;
  head.replace(at, head.find("\r\n", at) - at, "Transfer-Encoding: chunked");
  std::string text = head;
  for (size_t done = 0; done < body.size();) {
    const size_t bytes = 1 + random().below(body.size() - done);
    char size[32];
    std::snprintf(size, sizeof(size), "%zx\r\n", bytes);
    text += size + body.substr(done, bytes) + "\r\n";
    done += bytes;
  }
  return text + "0\r\n\r\n";
}

size_t content_length(const std::string& head) {
  const size_t at = head.find("\r\nContent-Length: ");
  return at == std::string::npos ? 0 : std::strtoul(head.c_str() + at + 18, nullptr, 10);
}

}  // namespace

bool SimClient::connect() {
  is_local_ = random().one_in(4);
  wire_ = connect_wire(is_local_);
  if (wire_ == nullptr) return false;
  if (random().one_in(4)) wire_->window = 64 + random().below(2000);  // a slow reader
  asked_.clear();
  // Nobody knows which of its requests have run.
  sequence_ = 0;
  sum_.clear();
  unread_.clear();
  sent_bytes_ = 0;
  return true;
}

void SimClient::leave() {
  if (wire_ == nullptr) return;
  // Requests that the server has whole, and then neither answers nor may have been stopped from
  // answering.
  const bool spoiled = wire_->client_reset || wire_->client_ended || wire_->lost_reply;
  if (!spoiled && !asked_.empty() && wire_->delivered >= asked_.front().sent_bytes &&
      !wire_->was_refused && !tally_.draining) {
    ++tally_.unanswered;
  }
  if (!wire_->client_reset && (random().one_in(2) || !wire_->server_closed)) {
    if (random().one_in(3)) {
      reset_wire(*wire_);
    } else {
      end_wire(*wire_);
    }
  }
  wire_ = nullptr;
}

void SimClient::send_slowly(const std::string& text) {
  if (tally_.reply_repeats > 1 && !random().one_in(8)) {
    write_wire(*wire_, text);
    sent_bytes_ += text.size();
    return;
  }
  std::string_view rest = text;
  while (!rest.empty() && !wire_->is_over()) {
    const size_t bytes = random().one_in(3) ? 1 + random().below(rest.size()) : rest.size();
    write_wire(*wire_, rest.substr(0, bytes));
    rest.remove_prefix(bytes);
    sent_bytes_ += bytes;
    if (rest.empty()) break;
    if (random().one_in(60)) {
      let_time_pass_ns(random().below(400 * kMs));  // slower than the server allows
    } else if (random().one_in(2)) {
      let_time_pass_ns(random().below(100'000));
    }
    if (random().one_in(100)) return reset_wire(*wire_);
  }
}

std::string SimClient::some_document() {
  if (is_local_ && random().one_in(2)) {
    static constexpr const char* kTypes[] = {"mpmc", "spsc", "naive", "batched", "inline", "auto"};
    static constexpr const char* kPolicies[] = {"fair", "deadline", "fifo"};
    const std::string change = std::string(R"({"queue_type":")") + kTypes[random().below(6)] +
                               R"(","policy":")" + kPolicies[random().below(3)] + R"("})";
    return random().one_in(2) ? server::get_request("/v2/lumen/engine")
                              : server::post_request("/v2/lumen/engine", change);
  }
  static constexpr const char* kPaths[] = {"/v2",
                                           "/v2/health/ready",
                                           "/metrics",
                                           "/v2/models/plus_one/stats",
                                           "/v2/models/stats",
                                           "/v2/models/plus_three/ready",
                                           "/v2/nowhere"};
  return server::get_request(kPaths[random().below(std::size(kPaths))]);
}

std::vector<float> SimClient::some_values() {
  size_t rows = 1 + random().below(3);
  if (random().one_in(10)) rows = 1 + random().below(tally_.reply_repeats > 1 ? 8 : 200);
  if (tally_.reply_repeats == 1 && random().one_in(tally_.large_one_in))
    rows = 1 + random().below(kMostRows);
  std::vector<float> values;
  values.reserve(rows * 4);
  // Exact in a float, and so is one more.
  for (size_t i = 0; i < rows * 4; ++i) {
    values.push_back(static_cast<float>(2 + tally_.next_value++ % 8'000'000));
  }
  if (random().one_in(25)) values[0] = -values[0];
  return values;
}

std::vector<float> SimClient::some_request(Asked& asked) {
  asked.model = kModels[random().below(std::size(kModels))];
  if (random().one_in(4)) asked.model = kModelThatGoes;
  if (random().one_in(50)) asked.model = kModelThatDoesNotLoad;
  const bool fits = tally_.reply_repeats == 1;  // a step takes the rows that the one before makes
  if (fits && random().one_in(6)) asked.model = kEnsembles[random().below(2)];
  asked.id = std::to_string(tally_.histories);
  asked.presence = tally_.presence;
  std::vector<float> values = some_values();
  if (tally_.repeats && !random().one_in(4)) {  // the same as others send
    if (asked.model != kModelThatGoes) asked.model = kModels[0];
    const auto value = static_cast<float>(random().below(4));
    values = {value == 3 ? -value : value, 1, 2, 3};
  }
  return values;
}

constexpr uint64_t kSharedSequence = 1'000'000'000;

std::string SimClient::some_inference_of_a_sequence(Asked& asked) {
  asked.model = kModelWithState;
  asked.id = std::to_string(tally_.histories);
  asked.values = {static_cast<float>(random().below(100)), 1, 2, 3};
  if (random().one_in(25)) asked.values[0] = -2 - asked.values[0];
  if (asked.values[0] < 0) asked.failure = failure_of(asked.values[0]);
  if (!answers_in_order_ || random().one_in(3)) {
    asked.place = {.sequence = kSharedSequence, .starts = true, .ends = true};
  } else {
    const bool is_new = sequence_ == 0 || random().one_in(12);
    if (is_new) sequence_ = tally_.next_sequence++;
    asked.place = {.sequence = sequence_,
                   .starts = is_new || random().one_in(12),
                   .ends = random().one_in(12)};
  }
  const auto said = [](bool is) { return is ? std::string("true") : std::string("false"); };
  return infer_request(asked.model, asked.id, asked.values, 0,
                       R"(,"sequence_id":)" + std::to_string(asked.place.sequence) +
                           R"(,"sequence_start":)" + said(asked.place.starts) +
                           R"(,"sequence_end":)" + said(asked.place.ends));
}

std::string SimClient::some_inference(Asked& asked) {
  if (tally_.reply_repeats == 1 && random().one_in(6)) return some_inference_of_a_sequence(asked);
  std::vector<float> values = some_request(asked);
  // The memory that a request asks for before it is read grows with its text.
  const size_t spare = tally_.reply_repeats > 1 ? random().below(600) : 0;
  std::string request = infer_request(asked.model, asked.id, values, spare);
  expect_reply(asked, std::move(values));
  return request;
}

void SimClient::expect_reply(Asked& asked, std::vector<float> values) {
  if (values[0] < 0) {
    asked.failure = failure_of(values[0]);
    return;
  }
  for (float& value : values) value += added_by(asked.model);
  asked.reply_values = repeated(bytes_of(values), tally_.reply_repeats);
}

void SimClient::ask() {
  ++tally_.histories;
  Asked asked;
  const bool is_document = random().one_in(8);
  std::string text = is_document ? some_document() : some_inference(asked);
  if (!is_document && random().one_in(8)) text = chunked(text);
  send_slowly(text);
  if (!wire_->is_over()) asked.sent_bytes = sent_bytes_;
  asked_.push_back(std::move(asked));
}

void SimClient::check(const Asked& asked, const std::string& head, const std::string& body) {
  const int status = std::atoi(head.c_str() + 9);
  if (status < 100 || status > 599) fail("not a head: %s", head.c_str());
  ++tally_.by_status[static_cast<size_t>(status)];
  if (random().one_in(20)) tally_.look();
  ++(status == 200 ? tally_.replies_ok : tally_.replies_refused);
  if (asked.place.sequence != 0) return check_sequence(asked, status, body);
  switch (status) {
    case 408:
    case 429:
    case 503:
    case 504: return;
    default: break;
  }
  if (!asked.model.empty()) {
    check_inference(asked, status, body);
  } else if (status != 200 && status != 404 &&
             !(status == 500 && body.find("as the test wants") != std::string::npos)) {
    fail("status %d of a document: %s", status, body.c_str());
  }
}

// Replies come in the order of the requests, so that the sum is known to be that of all before.
void SimClient::check_sequence(const Asked& asked, int status, const std::string& body) {
  const bool is_shared = asked.place.sequence == kSharedSequence;
  const bool is_current = asked.place.sequence == sums_of_;
  if (!is_shared && !is_current) {
    sums_of_ = asked.place.sequence;
    sum_.clear();
    sum_is_known_ = true;
  }
  const std::vector<float> at_start(4, kFirstState + kToldOfStart);
  std::vector<float> before = is_shared || asked.place.starts ? at_start : sum_;
  const bool is_known = is_shared || asked.place.starts || sum_is_known_;
  if (!is_shared && asked.place.starts) {
    // Refused at the door, it leaves the sequence as it was; by its run, none is left.
    sum_is_known_ = status == 200 || sum_.empty();
    sum_.clear();
  }
  if (status == 408 || status == 429 || status == 503 || status == 504) return;
  if (status == 500 && !asked.failure.empty() && body.find(asked.failure) != std::string::npos) {
    ++tally_.failures;
    return;
  }
  if (status == 400 && !asked.place.starts &&
      body.find("has no live sequence") != std::string::npos) {
    // It was idle for too long, or has never begun.
    ++tally_.sequences_refused;
    sum_.clear();
    sum_is_known_ = true;
    return;
  }
  if (status != 200) fail("status %d of %s: %s", status, asked.id.c_str(), body.c_str());
  if (!asked.failure.empty()) fail("a reply of what fails: %s", body.c_str());
  if (!is_known) {
    before.resize(4);
    if (body.size() < 16) fail("a reply without a sum: %s", body.c_str());
    std::memcpy(before.data(), body.data() + body.size() - 16, 16);
  } else if (before.empty()) {
    fail("a sequence goes on that is not live: %s", body.c_str());
  } else {
    for (size_t i = 0; i < before.size(); ++i) {
      before[i] += asked.values[i] + added_by(kModelWithState);
    }
  }
  check_names(asked, body, bytes_of(before));
  if (!asked.place.starts) ++tally_.sequence_replies;
  if (is_shared) return;
  sum_ = asked.place.ends ? std::vector<float>() : before;
  sum_is_known_ = true;
}

void SimClient::check_inference(const Asked& asked, int status, const std::string& body) {
  using Is = Presence::Is;
  const bool goes = asked.model == kModelThatGoes;
  const bool is_sure = tally_.presence.changes == asked.presence.changes;
  if (status == 404 && goes && !(is_sure && asked.presence.is == Is::kThere)) {
    ++tally_.not_there;
    return;
  }
  if (status == 500 && !asked.failure.empty() && body.find(asked.failure) != std::string::npos) {
    ++tally_.failures;
    return;
  }
  if (status != 200) fail("status %d of %s: %s", status, asked.id.c_str(), body.c_str());
  if (!asked.failure.empty()) fail("a reply of what fails: %s", body.c_str());
  if (goes && is_sure && asked.presence.is == Is::kGone) fail("a reply of a model that is gone");
  check_names(asked, body, asked.reply_values);
}

void SimClient::check_names(const Asked& asked, const std::string& body,
                            const std::string& values) {
  const auto names = [&body](std::string key, const std::string& value) {
    key += value;
    key += '"';
    return body.find(key) != std::string::npos;
  };
  if (!names(R"("id":")", asked.id) || !names(R"("model_name":")", asked.model) ||
      !body.ends_with(values)) {
    fail("a reply is not its own request's, %s of %s: %s", asked.id.c_str(), asked.model.c_str(),
         body.c_str());
  }
}

bool SimClient::read_reply() {
  const uint64_t patience_ns = time_ns() + kPatienceNs;
  size_t end = 0;
  size_t length = 0;
  for (;;) {
    end = unread_.find("\r\n\r\n");
    if (end != std::string::npos) {
      length = content_length(unread_.substr(0, end + 2));
      if (unread_.size() >= end + 4 + length) break;
    }
    if (random().one_in(200)) let_time_pass_ns(random().below(400 * kMs));
    if (random().one_in(tally_.large_one_in)) {
      reset_wire(*wire_);
      return false;
    }
    const std::string more = read_wire(*wire_, patience_ns);
    if (more.empty()) {
      if (wire_->server_ended || wire_->is_over()) return false;
      fail("no reply and no end came for %zu requests; %zu bytes delivered, %zu wait",
           asked_.size(), wire_->delivered, wire_->to_server.size());
    }
    unread_ += more;
  }
  const std::string head = unread_.substr(0, end + 4);
  std::string body = unread_.substr(end + 4, length);
  if (head.find("\r\nContent-Encoding: ") != std::string::npos) {
    body = test::inflate(body);
    ++tally_.compressed;
  }
  unread_.erase(0, end + 4 + length);
  if (asked_.empty()) fail("a reply that nobody asked for: %s", head.c_str());
  check(asked_.front(), head, body);
  asked_.pop_front();
  const bool closes = head.find("Connection: close") != std::string::npos;
  if (closes) asked_.clear();  // requests pipelined behind it are not answered
  return !closes;
}

void SimClient::break_off() {
  if (random().one_in(2)) let_time_pass_ns(random().below(2 * kMs));
  if (!wire_->is_over() && random().one_in(2)) write_wire(*wire_, "P");
  if (random().one_in(2)) let_time_pass_ns(random().below(kMs));
  if (wire_->client_reset) return;
  random().one_in(2) ? reset_wire(*wire_) : end_wire(*wire_);
}

void SimClient::run(size_t histories) {
  while (histories > 0) {
    if (wire_ == nullptr && !connect()) return;
    size_t pipelined = random().one_in(5) ? 1 + random().below(3) : 1;
    for (; pipelined > 0 && histories > 0; --pipelined, --histories) ask();
    if (random().one_in(50)) end_wire(*wire_);  // a half-close: the replies are still owed
    bool goes_on = true;
    if (tally_.reply_repeats > 1 && random().one_in(4)) {
      break_off();
      goes_on = false;
    }
    while (goes_on && !asked_.empty()) goes_on = read_reply();
    if (!goes_on && wire_->was_refused && random().one_in(2)) let_time_pass_ns(random().below(kMs));
    if (!unread_.empty() && asked_.empty() && goes_on) fail("bytes behind the last reply");
    if (!goes_on || wire_->client_ended || random().one_in(20)) leave();
    if (random().one_in(10)) let_time_pass_ns(random().below(2 * kMs));
    if (random().one_in(300)) let_time_pass_ns(random().below(600 * kMs));  // idle too long
  }
  leave();
}

}  // namespace lumen::sim
