// SharedBuffer against a model, exhaustively: every sequence of operations of two writers up to a
// length: in dense mode, where each byte's place is determined, and in chunked mode the part that
// is determined.
// Threads: one. Memory: two buffers of four bytes. Errors: by gtest, with the sequence.
#include "unit/memory/shared_buffer_fixture.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>

namespace lumen {
namespace {

using Mode = SharedBuffer::Mode;

constexpr size_t kCapacity = 4;
constexpr size_t kBuffers = 2;
constexpr const char* kOperations = "aAbBcCsf";  // reserve 1 or 3 / commit by writer a or b, seal…

// The requirement, said plainly: buffers of records, each committed or not.
class Model {
 public:
  // True: it got its bytes. The bytes handed over so far are in `flushed`.
  bool reserve(int writer, size_t bytes, char fill) {
    flush();
    if (buffers_.empty() || buffers_.back().sealed) open();
    if (buffers_.empty() || buffers_.back().sealed) return false;
    if (used(buffers_.back()) + bytes > kCapacity) {
      buffers_.back().sealed = true;
      flush();
      if (!open()) return false;
    }
    buffers_.back().records.push_back({writer, std::string(bytes, fill), false});
    return true;
  }
  void commit(int writer) {
    for (Buffer& b : buffers_) {
      for (Record& r : b.records) r.committed |= r.writer == writer;
    }
  }
  void seal() {
    if (!buffers_.empty() && used(buffers_.back()) != 0) buffers_.back().sealed = true;
    flush();
    open();
  }
  void flush() {
    while (!buffers_.empty() && buffers_.front().sealed) {
      std::string text;
      for (const Record& r : buffers_.front().records) {
        if (!r.committed) return;
        text += r.text;
      }
      flushed.push_back(text);
      buffers_.pop_front();
    }
    open();
  }

  std::vector<std::string> flushed;

 private:
  struct Record {
    int writer;
    std::string text;
    bool committed;
  };
  struct Buffer {
    std::vector<Record> records;
    bool sealed = false;
  };
  static size_t used(const Buffer& b) {
    size_t sum = 0;
    for (const Record& r : b.records) sum += r.text.size();
    return sum;
  }
  bool open() {
    if (!buffers_.empty() && !buffers_.back().sealed) return true;
    if (buffers_.size() == kBuffers) return false;
    buffers_.emplace_back();
    return true;
  }

  std::deque<Buffer> buffers_;
};

class Session {
 public:
  explicit Session(Mode mode) : mode_(mode) {
    SharedBuffer::Options o;
    o.mode = mode;
    o.when_full = SharedBuffer::WhenFull::kDrop;
    o.buffer_bytes = kCapacity;
    o.chunk_bytes = kCapacity / 2;
    o.buffer_count = kBuffers;
    o.max_writers = 2;
    o.stall_timeout_ns = 0;
    o.flush = &Collector::flush;
    o.context = &collector_;
    buffer_ = SharedBuffer::create(o, memory_).value();
    for (auto& w : writers_) w.emplace(buffer_->writer().value());
  }

  // False: the operation makes no sense here (a second reservation, a commit of nothing).
  bool step(char operation) {
    const int writer = operation == 'a' || operation == 'A' || operation == 'c' ? 0 : 1;
    switch (operation) {
      case 'a':
      case 'A':
      case 'b':
      case 'B': {
        if (open_[writer] != nullptr) return false;
        const size_t bytes = operation == 'a' || operation == 'b' ? 1 : 3;
        const char fill = static_cast<char>('0' + count_++ % 64);
        open_[writer] = writers_[writer]->reserve(bytes);
        open_bytes_[writer] = bytes;
        got_ = open_[writer] != nullptr;
        if (got_) std::memset(open_[writer], fill, bytes);
        wanted_ = model_.reserve(writer, bytes, fill);
        written_ += got_ ? bytes : 0;
        break;
      }
      case 'c':
      case 'C':
        if (open_[writer] == nullptr) return false;
        writers_[writer]->commit();
        open_[writer] = nullptr;
        model_.commit(writer);
        break;
      case 's':
        buffer_->seal();
        model_.seal();
        break;
      default:
        buffer_->flush_ready();
        model_.flush();
        break;
    }
    return true;
  }

  void finish_and_check(const std::string& sequence) {
    for (int w = 0; w < 2; ++w) {
      if (open_[w] != nullptr) step(w == 0 ? 'c' : 'C');
    }
    buffer_->flush();
    model_.seal();
    model_.flush();
    if (mode_ == Mode::kDense) {
      ASSERT_EQ(collector_.buffers, model_.flushed) << sequence;
    } else {
      size_t bytes = 0;
      for (const std::string& r : collector_.records) bytes += r.size();
      ASSERT_EQ(bytes, written_) << sequence;
    }
    for (const size_t missing : collector_.missing) ASSERT_EQ(missing, 0u) << sequence;
    ASSERT_EQ(buffer_->stats().abandoned_records, 0u) << sequence;
  }
  bool agrees() const { return mode_ == Mode::kChunked || got_ == wanted_; }

 private:
  Mode mode_;
  Collector collector_;
  std::byte memory_[kCapacity * kBuffers] = {};
  std::unique_ptr<SharedBuffer> buffer_;
  std::optional<SharedBuffer::Writer> writers_[2];
  std::byte* open_[2] = {};
  size_t open_bytes_[2] = {};
  Model model_;
  int count_ = 0;
  size_t written_ = 0;
  bool got_ = true;
  bool wanted_ = true;
};

void exhaust(Mode mode, size_t length) {
  size_t total = 1;
  for (size_t i = 0; i < length; ++i) total *= 8;
  for (size_t code = 0; code < total; ++code) {
    Session run(mode);
    std::string sequence;
    bool sensible = true;
    size_t rest = code;
    for (size_t i = 0; i < length && sensible; ++i, rest /= 8) {
      sequence += kOperations[rest % 8];
      sensible = run.step(sequence.back());
      ASSERT_TRUE(run.agrees()) << sequence;
    }
    if (sensible) run.finish_and_check(sequence);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(SharedBufferModel, AgreesWithTheModelOverEverySequenceOfSixOperations) {
  exhaust(Mode::kDense, 6);
}

TEST(SharedBufferModel, LanesLoseNoByteOverEverySequenceOfFiveOperations) {
  exhaust(Mode::kChunked, 5);
}

// Longer ones at random: the laps around the two buffers that six operations cannot reach.
TEST(SharedBufferModel, AgreesWithTheModelOverLongRandomSequences) {
  for (const Mode mode : {Mode::kDense, Mode::kChunked}) {
    for (uint32_t seed = 1; seed <= 300; ++seed) {
      Session run(mode);
      std::string sequence = "seed " + std::to_string(seed) + " ";
      uint32_t random = seed * 2654435761u;
      for (int i = 0; i < 200; ++i) {
        random = random * 1664525u + 1013904223u;
        const char operation = kOperations[random >> 29];
        if (run.step(operation)) sequence += operation;
        ASSERT_TRUE(run.agrees()) << sequence;
      }
      run.finish_and_check(sequence);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace lumen
