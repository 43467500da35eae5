// Requests that fail, each in its own stage, among requests that must not notice: every queue type
// over real OpenVINO models. The answers are compared bit for bit with those of an instance that
// never saw a failure.
// Threads: the test's, which submits as an I/O thread does. Memory: the heap. Errors: by gtest.
#include <lumen/backends/openvino.h>
#include <lumen/engine/engine.h>

#include "support/failing_models.h"
#include "support/source_dir.h"
#include "support/stress.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

using Request = std::unique_ptr<models::PendingRequest>;

// Adds two inputs; the number of rows of each is bounded, which ONNX can't say.
constexpr const char* kBounded = R"(<?xml version="1.0"?>
<net name="bounded" version="11"><layers>
<layer id="0" name="p" type="Parameter" version="opset1"><data shape="1..4,4" element_type="f32"/>
<output><port id="0" precision="FP32" names="left"><dim>-1</dim><dim>4</dim></port></output></layer>
<layer id="1" name="q" type="Parameter" version="opset1"><data shape="1..4,4" element_type="f32"/>
<output><port id="0" precision="FP32" names="right"><dim>-1</dim><dim>4</dim></port></output></layer>
<layer id="2" name="s" type="Add" version="opset1"><data auto_broadcast="numpy"/>
<input><port id="0"><dim>-1</dim><dim>4</dim></port><port id="1"><dim>-1</dim><dim>4</dim></port></input>
<output><port id="2" precision="FP32" names="sum"><dim>-1</dim><dim>4</dim></port></output></layer>
<layer id="3" name="r" type="Result" version="opset1">
<input><port id="0"><dim>-1</dim><dim>4</dim></port></input></layer>
</layers><edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
</edges></net>)";

// A kind of request, and how it ends.
struct Kind {
  std::string what;
  std::function<Request()> make;
  Code wanted = Code::kOk;
  std::vector<std::byte> answer{};  // of one that succeeds
};

std::vector<std::byte> bytes_of(const models::InferRequest& request) {
  std::vector<std::byte> bytes;
  for (const TensorView& output : request.outputs) {
    bytes.insert(bytes.end(), output.data, output.data + output.byte_size);
  }
  return bytes;
}

class FailedRuns : public testing::TestWithParam<models::QueueType> {
 protected:
  void SetUp() override {
    const std::filesystem::path fixtures = test::source_path("tests/fixtures");
    for (const char* name : {"relu_sum", "relu_concat", "pick", "reshape_to"}) {
      files.copy_model(fixtures / "models" / name / "1", name);
    }
    for (const char* name : {"identity_bytes", "identity_int64", "add_one_large"}) {
      files.copy_model(fixtures / "backend" / name / "1", name);
    }
    files.write("bounded/1/model.xml", kBounded);
    repository = std::move(
        models::ModelRepository::open(files.path(), backends::make_openvino(), *counters).value());
    add_kinds();
  }

  [[nodiscard]] Request request_for(const char* model, size_t memory_bytes = 1 << 20) const {
    return std::make_unique<models::PendingRequest>(repository->find(model, ""), memory_bytes);
  }
  [[nodiscard]] Request pair(const char* model, int64_t left_rows, int64_t right_rows) const {
    Request made = request_for(model);
    models::add_pair(*made, left_rows, right_rows);
    return made;
  }
  [[nodiscard]] Request pick(int64_t rows, int32_t index) const {
    Request made = request_for("pick");
    models::add_pick(*made, rows, index);
    return made;
  }
  [[nodiscard]] Request reshape(int64_t first, int64_t second) const {
    Request made = request_for("reshape_to");
    models::add_reshape(*made, first, second);
    return made;
  }
  [[nodiscard]] Request large(size_t memory_bytes) const {
    Request made = request_for("add_one_large", memory_bytes);
    made->add_input(ElementType::kFp32, {1, 16384}, std::vector<float>(16384, 1.5f));
    return made;
  }
  [[nodiscard]] Request text(uint8_t length) const {
    Request made = request_for("identity_bytes");
    made->add_input<uint8_t>(ElementType::kBytes, {1}, {length, 0, 0, 0, 'a', 'b'});
    return made;
  }
  [[nodiscard]] Request wide(int64_t value) const {
    Request made = request_for("identity_int64");
    made->add_input<int64_t>(ElementType::kInt64, {2}, {7, value});
    return made;
  }

  void add_kinds() {
    for (const int64_t rows : {1, 2, 3}) {
      good.push_back({"sum", [this, rows] { return pair("relu_sum", rows, rows); }});
      good.push_back({"concat", [this, rows] { return pair("relu_concat", rows, rows); }});
      good.push_back({"bounded", [this, rows] { return pair("bounded", rows, rows); }});
      good.push_back({"pick", [this, rows] { return pick(rows, 1); }});
    }
    good.push_back({"broadcast", [this] { return pair("relu_sum", 3, 1); }});
    good.push_back({"reshape", [this] { return reshape(4, 2); }});
    good.push_back({"reshape", [this] { return reshape(8, 1); }});
    good.push_back({"large", [this] { return large(1 << 20); }});
    good.push_back({"text", [this] { return text(2); }});
    good.push_back({"wide", [this] { return wide(8); }});

    const auto refused = Code::kInvalidArgument;
    bad.push_back({"bounds", [this] { return pair("bounded", 5, 5); }, refused});
    bad.push_back({"tied shapes", [this] { return pair("relu_concat", 2, 3); }, refused});
    bad.push_back({"shapes", [this] { return pair("relu_sum", 2, 3); }, refused});
    bad.push_back({"shapes", [this] { return pair("relu_sum", 3, 2); }, refused});
    bad.push_back({"bind text", [this] { return text(9); }, refused});
    bad.push_back({"bind wide", [this] { return wide(int64_t{1} << 40); }, refused});
    bad.push_back({"numbers", [this] { return reshape(3, 3); }, refused});
    for (const int64_t rows : {1, 2, 3}) {
      bad.push_back({"run", [this, rows] { return pick(rows, 9); }, Code::kInternal});
    }
    // Room for the input and not for the output.
    bad.push_back({"collect", [this] { return large(64 * 1024 + 4096); }, Code::kTooLarge});
    bad.push_back({"encode", [this] { return unspeakable(); }, Code::kUnsupported});
  }
  // Runs, and then its reply can't be written.
  [[nodiscard]] Request unspeakable() const {
    Request made = pair("relu_sum", 2, 2);
    made->request.encode = [](models::InferRequest& request) noexcept {
      while (request.memory->allocate(4096, 64) != nullptr) continue;
      request.status = Status::error(Code::kUnsupported, "no room for the reply");
    };
    return made;
  }

  // The answers of an instance that never saw a failure.
  void learn_answers() {
    for (Kind& kind : good) {
      const Request request = kind.make();
      auto instance = request->request.model->loaded()->create_instance({}).value();
      ASSERT_EQ(instance->start(request->request, nullptr), models::StartOutcome::kDone);
      ASSERT_TRUE(request->request.status.ok())
          << kind.what << ": " << request->request.status.message();
      kind.answer = bytes_of(request->request);
    }
  }

  void check(const Kind& kind, const models::PendingRequest& pending) {
    EXPECT_EQ(pending.times_completed(), 1u);
    const Status& status = pending.request.status;
    ASSERT_EQ(status.code(), kind.wanted) << kind.what << ": " << status.message();
    if (status.ok()) {
      EXPECT_EQ(bytes_of(pending.request), kind.answer) << kind.what;
    }
  }

  const uint64_t seed = test::stress_seed();
  models::TempRepository files;
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::vector<Kind> good;
  std::vector<Kind> bad;
};

TEST_P(FailedRuns, NeighboursGetTheirOwnAnswersBitForBit) {
  learn_answers();
  EngineOptions options;
  const bool packs =
      GetParam() == models::QueueType::kBatched || GetParam() == models::QueueType::kInline;
  options.config = {
      .queue_type = GetParam(),
      .thread_count = 2,
      .batch_size = 8,
      .max_queue_delay_us = packs ? 5'000u : 0u,  // under a sanitizer they come slowly
      .queue_capacity = 64};
  options.pin_threads.mode = PinThreads::Mode::kOff;
  auto engine = Engine::create(options, *repository).value();
  std::mt19937_64 random(seed);
  constexpr size_t kWindow = 32;
  std::vector<uint64_t> failed(bad.size());
  uint64_t ran_alone = 0;
  uint64_t bad_count = 0;
  // Two windows hold each way to fail, also where a sanitizer makes the test smaller.
  const uint64_t rounds = std::max<uint64_t>(test::stress_count(16), 2);
  // With these two, requests that succeed are in batches that fail, sooner or later.
  constexpr uint64_t kMostRounds = 200;
  const auto goes_on = [&](uint64_t round) {
    return round < rounds || (packs && ran_alone == 0 && round < kMostRounds);
  };
  for (uint64_t round = 0; goes_on(round); ++round) {
    std::vector<std::pair<const Kind*, Request>> window;
    size_t bad_place = 0;
    for (size_t i = 0; i < kWindow; ++i) {
      // One in four, anywhere in its group of four; each way to fail has its turn.
      if (i % 4 == 0) bad_place = i + random() % 4;
      const bool fails = i == bad_place;
      const size_t which = fails ? bad_count++ % bad.size() : random() % good.size();
      if (fails) ++failed[which];
      const Kind& kind = fails ? bad[which] : good[which];
      window.emplace_back(&kind, kind.make());
      ASSERT_EQ(engine->submitter(0).submit(window.back().second->request),
                SubmitOutcome::kAccepted);
    }
    for (const auto& [kind, pending] : window) {
      while (pending->times_completed() == 0) {
        if (engine->submitter(0).end_turn() == 0) std::this_thread::yield();
      }
      check(*kind, *pending);
      if (pending->request.runs_alone && kind->wanted == Code::kOk) ++ran_alone;
    }
  }
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_GT(failed[i], 0u) << bad[i].what;
  engine->drain();
  EXPECT_EQ(ran_alone > 0, packs) << ran_alone;
}

INSTANTIATE_TEST_SUITE_P(All, FailedRuns,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kSpsc,
                                         models::QueueType::kNaive, models::QueueType::kBatched,
                                         models::QueueType::kInline),
                         [](const testing::TestParamInfo<models::QueueType>& one) {
                           return std::string(name_of(one.param));
                         });

}  // namespace
}  // namespace lumen::engine
