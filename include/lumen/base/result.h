// Status and Result<T>: how a failure of the world (file, socket, client, model) travels in Lumen.
// Threads: values; share them as you would share an int.
// Memory: never allocates; a short message lives inside the Status, a longer one in a slot of a
// fixed pool (error_text.h), cut at kMaxMessage bytes. Copies share the slot; the last frees it.
// Errors: [[nodiscard]]; our own bugs go to CHECK instead, expected hot-path outcomes to an enum.
#pragma once

#include <lumen/base/error_text.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

namespace lumen {

// One word for each way the world can fail. wire/status_map.h maps it to HTTP (and later gRPC).
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,    // the caller's bytes are wrong
  kNotFound,           // no such model, version, tensor, file or path
  kUnavailable,        // not ready, draining, or the model failed to load
  kUnsupported,        // valid, but Lumen does not do it
  kInternal,           // the backend or the system call failed
  kTooLarge,           // above a named limit (413)
  kDeadlineExceeded,   // expired before the model ran
  kResourceExhausted,  // a bounded queue or pool is full (429)
  kOverBudget,         // not to be answered within the latency budget (429)
  kNoMemory,           // others hold all the memory that requests may take together (429)
  kAlreadyExists,
  kMethodNotAllowed,
  kCancelled,             // its client was gone before the model ran
  kUnauthenticated,       // without a key, or with an unknown one (401)
  kForbidden,             // not by this way, or not for this caller (403)
  kUnsupportedMediaType,  // an encoding that Lumen does not read (415)
  kRequestTimeout,        // the client's bytes did not come in time (408)
};

class [[nodiscard]] Status {
 public:
  // Long enough for "what, where, got, wanted, fix" with names of kMaxNameBytes cut to fit.
  static constexpr size_t kMaxMessage = ErrorText::kMaxBytes;

  // Not "= default": `return {};` would then zero the short message on every good path.
  Status() noexcept {}  // NOLINT(modernize-use-equals-default)
  Status(const Status& other) noexcept { share(other); }
  Status(Status&& other) noexcept { take(other); }
  Status& operator=(const Status& other) noexcept {
    if (this != &other) {
      release();
      share(other);
    }
    return *this;
  }
  Status& operator=(Status&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~Status() { release(); }

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] std::string_view message() const noexcept {
    return text_ != nullptr ? text_->view() : std::string_view(short_.data(), size_);
  }
  // The same for printf's %s. The view's data() is not: old text may stand behind the view.
  [[nodiscard]] const char* c_message() const noexcept {
    if (text_ != nullptr) return text_->c_str();
    return size_ == 0 ? "" : short_.data();
  }
  // The same error with "where: " before its message; an ok status stays ok.
  [[nodiscard]] Status at(std::string_view where) const noexcept;

  // printf-style; a message says what, where, got, wanted and the fix. Cut, never overrun: at
  // kMaxMessage bytes, or at kShortMessage where ErrorText has no slot left.
  [[gnu::format(printf, 2, 3)]] static Status error(Code code, const char* format, ...) noexcept;
  static Status verror(Code code, const char* format, va_list args) noexcept;
  // kInternal with strerror(error_number) at the end.
  [[gnu::format(printf, 2, 3)]] static Status from_errno(int error_number, const char* format,
                                                         ...) noexcept;

 private:
  // As many as make a Status 64 bytes: a cache line, and as much as a register file returns.
  static constexpr size_t kShortMessage = 53;

  Status(Code code, std::string_view message) noexcept;

  void share(const Status& other) noexcept {
    copy_short(other);
    if (text_ != nullptr) text_->hold();
  }
  void take(Status& other) noexcept {
    copy_short(other);
    other.text_ = nullptr;
    other.size_ = 0;
  }
  void copy_short(const Status& other) noexcept {
    text_ = other.text_;
    code_ = other.code_;
    size_ = other.size_;
    if (size_ > 0) short_ = other.short_;
  }
  void release() noexcept {
    if (text_ != nullptr) text_->release();
  }

  ErrorText* text_ = nullptr;  // a longer message; then size_ is 0
  Code code_ = Code::kOk;
  uint8_t size_ = 0;                           // of the short message
  std::array<char, kShortMessage + 1> short_;  // not zeroed, it is on the hot path
};
static_assert(sizeof(Status) <= 64);

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return Status::error(...)` read as they are meant.
  Result(T value) noexcept : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) noexcept : state_(std::in_place_index<1>, std::move(status)) {}

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] T& value() & noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& value() const& noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] T&& value() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  [[nodiscard]] T& operator*() & noexcept { return value(); }
  [[nodiscard]] const T& operator*() const& noexcept { return value(); }
  [[nodiscard]] T* operator->() noexcept { return &value(); }
  [[nodiscard]] const T* operator->() const noexcept { return &value(); }
  // Ok when there is a value.
  [[nodiscard]] Status status() const noexcept {
    return ok() ? Status() : *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Status> state_;
};

}  // namespace lumen

// Returns the status from the enclosing function when `expression` (a Status) is not ok.
#define LUMEN_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                        \
    if (::lumen::Status lumen_status = (expression); !lumen_status.ok()) return lumen_status; \
  } while (false)
