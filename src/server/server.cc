// Start and drain: the wiring of repository, engine and I/O threads. Control thread only.
#include <lumen/server/server.h>

#include "server/control.h"
#include "server/io_thread.h"
#include "server/job_queue.h"
#include "server/listeners.h"
#include "server/log_settings.h"
#include "server/metrics_thread.h"
#include "server/model_loader.h"
#include "server/reply_compressor.h"

#include <lumen/answers/response_cache.h>
#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/base/machine_memory.h>
#include <lumen/models/load_progress.h>
#include <lumen/net/descriptor_limit.h>
#include <lumen/otlp/span_exporter.h>
#include <lumen/sequences/sequences.h>
#include <lumen/service/documents.h>
#include <lumen/service/row_sampler.h>
#include <lumen/transports/grpc/transport.h>
#include <lumen/transports/http/cors.h>
#include <lumen/transports/http/host_check.h>
#include <lumen/transports/http/memory_limits.h>
#include <lumen/transports/http/transport.h>
#include <lumen/transports/shm/transport.h>
#include <lumen/transports/tls/certificates.h>
#include <lumen/transports/tls/handshakes.h>
#include <lumen/transports/tls/transport.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

http::Options http_options_of(const ServerOptions& options) {
  return {.io_thread_count = options.io_thread_count,
          .overload_status = options.overload_status,
          .max_body_bytes = options.max_body_bytes,
          .max_connections = options.max_connections,
          .max_active_requests = options.max_active_requests,
          .access = {.tcp_control = options.tcp_control, .tcp_shm = options.tcp_shm},
          .reply_compression = options.reply_compression,
          .regions = options.regions,
          .timeouts = options.timeouts};
}

grpc::Options grpc_options_of(const ServerOptions& options) {
  return {.max_message_bytes = options.max_body_bytes,
          .max_connections = options.max_connections,
          .max_active_requests = options.max_active_requests,
          .max_backlog_bytes = backlog_bytes(options),
          .idle_ns = options.timeouts.idle_ns,
          .body_period_ns = options.timeouts.body_period_ns,
          .body_min_bytes = options.timeouts.body_min_bytes,
          .write_stall_ns = options.timeouts.write_stall_ns,
          .access = {.tcp_control = options.tcp_control, .tcp_shm = options.tcp_shm}};
}

class RunningServer final : public Server {
 public:
  RunningServer(const ServerOptions& options, Report report)
      : options_(options), log_(std::move(report)), report_(log_.report()) {
    if (options_.max_active_requests == 0) {
      options_.max_active_requests = enough_active_requests(options_.engine);
    }
  }
  ~RunningServer() override { drain(); }

  Status start(models::Backends backends);

  const std::string& http_address() const noexcept override { return listeners_.http_address(); }
  const std::string& grpc_address() const noexcept override { return listeners_.grpc_address(); }
  const std::string& unix_path() const noexcept override { return listeners_.unix_path(); }
  const std::string& bus_path() const noexcept override { return listeners_.bus_path(); }
  std::string_view counters_path() const noexcept override {
    return counters_file_ == nullptr ? std::string_view() : counters_file_->path();
  }
  const std::string& unix_note() const noexcept override { return listeners_.unix_note(); }
  const models::ModelRepository& models() const noexcept override { return *repository_; }
  const telemetry::Counters& counters() const noexcept override { return *counters_; }
  std::string pinning() const override { return engine_->pinning(); }
  engine::EngineConfig engine_config() const override { return engine_->config(); }
  engine::Engine::UsualLane usual_lane_of(const models::Model& model) const override {
    return engine_->usual_lane_of(model);
  }
  engine::Engine::Instances instances_of(const models::Model& model) const override {
    return engine_->instances_of(model);
  }
  Status reconfigure(const engine::EngineConfig& config) override {
    LUMEN_RETURN_IF_ERROR(engine_->reconfigure(config));
    const std::string note = overload_note(options_, engine_->config());
    if (!note.empty()) report_(LogLevel::kWarn, note);
    return {};
  }
  Status add_model(std::string_view name, std::string_view version) override {
    return catalog_->add(name, version);
  }
  Status remove_model(std::string_view name, std::string_view version) override {
    return catalog_->remove(name, version);
  }
  Status load_model(std::string_view name) override { return catalog_->reload(name); }
  Status unload_model(std::string_view name) override { return catalog_->unload(name); }
  std::optional<telemetry::TraceLogCounters> trace_counters() const override {
    if (trace_log_ == nullptr) return std::nullopt;
    return trace_log_->counters();
  }
  Status reload_api_keys() override;
  Status reload_tls() override;
  Status reopen_trace_log() override {
    return trace_log_ == nullptr ? Status() : trace_log_->reopen();
  }
  void begin_leaving() noexcept override {
    readiness_.begin_leaving();
    for (const auto& io : io_threads_) io->wake();  // clients that watch are told
  }
  void drain() noexcept override;

 private:
  Status open_trace_log();
  Status start_spans();
  Status check_address_space() const;
  void fit_descriptors();
  void fit_memory();
  http::Services http_services() const;
  service::RecordReaders record_readers() const noexcept {
    return {.trace_log = trace_log_.get(),
            .spans = spans_ == nullptr ? nullptr : &spans_->log(),
            .spans_one_in = options_.otlp_one_in};
  }
  Status start_tls();
  Status start_io_threads();
  void add_to_tables(const models::Model& model);
  Status make_counters();
  Status make_counters_file(const std::string& path, const telemetry::CountersOptions& options);

  // In order of construction: each may point to those above it.
  ServerOptions options_;
  LogSettings log_;
  Report report_;
  Listeners listeners_;
  std::unique_ptr<telemetry::CountersFile> counters_file_;
  std::unique_ptr<telemetry::Counters> counters_;
  std::unique_ptr<models::ModelRepository> repository_;
  std::unique_ptr<service::Documents> documents_;
  http::HostCheck hosts_;
  http::Cors cors_;
  transports::ApiKeysInUse keys_;
  std::mutex reloading_keys_;
  service::Readiness readiness_{options_.ready_when == ReadyWhen::kAll};
  http::Options http_options_{};
  shm::Options shm_options_{};
  grpc::Options grpc_options_{};
  std::unique_ptr<telemetry::TraceLog> trace_log_;
  std::unique_ptr<otlp::SpanExporter> spans_;  // nullptr: there is no collector
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<answers::ResponseCache> cache_;
  std::unique_ptr<sequences::Sequences> sequences_;
  std::unique_ptr<service::RowSampler> sampler_;  // nullptr: recordings are not allowed
  std::vector<service::Step*> steps_;  // those of the options, the sampler, the cache, sequences
  std::unique_ptr<service::Catalog> catalog_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<ModelLoader> loader_;
  std::unique_ptr<JobQueue> control_thread_;
  std::unique_ptr<JobQueue> loader_thread_;
  std::unique_ptr<MetricsThread> metrics_;
  std::unique_ptr<ReplyCompressor> compressor_;
  std::unique_ptr<tls::Certificates> certificates_;  // nullptr: no TLS
  std::unique_ptr<tls::Handshakes> handshakes_;
  std::vector<std::unique_ptr<IoThread>> io_threads_;
  std::vector<std::thread> threads_;
};

models::LoadOptions load_options(const ServerOptions& options) {
  models::LoadOptions loading{.backend = options.backend,
                              .budget_ns = options.backend_trial_ns,
                              .cache = options.backend_choices,
                              .follow_links = options.follow_links,
                              .stop = options.stop_loading,
                              .trials = options.load_trials};
  if (options.backend_choices.empty()) loading.cache = models::default_choices_file();
  if (options.backend_choices == kOff) loading.cache.clear();
  loading.compiled = options.compiled_models;
  if (options.compiled_models.empty()) loading.compiled = models::default_compiled_folder();
  if (options.compiled_models == kOff) loading.compiled.clear();
  return loading;
}

Status RunningServer::start(models::Backends backends) {
  LUMEN_RETURN_IF_ERROR(validate_options(options_));
  LUMEN_RETURN_IF_ERROR(check_address_space());
  LUMEN_RETURN_IF_ERROR(reload_api_keys());
  // Sockets first: a port that is taken should not cost the loading of every model.
  LUMEN_RETURN_IF_ERROR(listeners_.open(options_, report_));
  LUMEN_RETURN_IF_ERROR(start_spans());
  LUMEN_RETURN_IF_ERROR(start_tls());  // before models are loaded, which takes its time
  LUMEN_RETURN_IF_ERROR(make_counters());
  if (options_.backend != models::kAutoBackend) {
    LUMEN_RETURN_IF_ERROR(backends.find(options_.backend).status());
  }
  models::LoadProgress progress(now_ns(),
                                [this](std::string_view text) { report_(LogLevel::kInfo, text); });
  auto repository = models::ModelRepository::open(
      options_.model_repository, std::move(backends), *counters_, load_options(options_),
      [&progress](const models::Model& model, size_t number, size_t count) {
        progress.on_loaded(model, number, count, now_ns());
      });
  if (!repository.ok()) return repository.status();
  repository_ = std::move(*repository);
  LUMEN_RETURN_IF_ERROR(open_trace_log());
  documents_ = std::make_unique<service::Documents>();
  allow_spinning(options_.spin == SpinMode::kAuto);
  const engine::EngineOptions engine_options{
      .config = options_.engine,
      .submitter_count = options_.io_thread_count,
      .pin_threads = options_.pin_threads,
      .warn = [this](std::string_view text) { report_(LogLevel::kWarn, text); },
      .regions = options_.regions};
  auto engine = engine::Engine::create(engine_options, *repository_);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  // On both transports.
  const size_t calls = 2 * size_t{options_.io_thread_count} * options_.max_active_requests;
  cache_ = std::make_unique<answers::ResponseCache>(calls);
  sequences_ = std::make_unique<sequences::Sequences>(calls, *counters_);
  steps_ = options_.steps;
  if (options_.allows_recording) {
    sampler_ = std::make_unique<service::RowSampler>(options_.recording_bytes,
                                                     [this] { catalog_->wait_for_turns(); });
    steps_.push_back(sampler_.get());
    report_(LogLevel::kInfo,
            "recording is on: users of the unix socket can record the rows that clients send");
  }
  steps_.push_back(cache_.get());
  steps_.push_back(sequences_.get());
  catalog_ = std::make_unique<service::Catalog>(
      *repository_, *engine_, &service::Documents::describe,
      [this](const models::Model& model) { add_to_tables(model); },
      [this](const models::Model& model) {
        cache_->remove(model);
        sequences_->remove(model);
      });
  hosts_ = http::HostCheck::create(options_.allowed_hosts);
  cors_ = http::Cors::create(options_.cors_origins);
  control_ =
      std::make_unique<Control>(*engine_, *catalog_, *repository_, sampler_.get(), log_, options_);
  loader_ = std::make_unique<ModelLoader>(*catalog_, *repository_, report_, options_);
  control_thread_ = std::make_unique<JobQueue>("lumen-control", *control_);
  loader_thread_ = std::make_unique<JobQueue>("lumen-loader", *loader_);
  metrics_ = std::make_unique<MetricsThread>(*catalog_, *counters_, *cache_, *sequences_,
                                             trace_log_.get(), spans_.get());
  if (options_.reply_compression != http::ReplyCompression::kOff) {
    auto compressor = ReplyCompressor::create();
    if (!compressor.ok()) return compressor.status();
    compressor_ = std::move(*compressor);
  }
  return start_io_threads();
}

Status RunningServer::start_tls() {
  if (options_.tls_cert.empty()) {
    const bool has_more = !options_.tls_key.empty() || !options_.tls_client_ca.empty();
    if (!has_more) return {};
    return Status::error(Code::kInvalidArgument,
                         "tls_key and tls_client_ca want tls_cert, the server's certificate");
  }
  Result<std::unique_ptr<tls::Certificates>> read =
      tls::Certificates::load({.certificate = options_.tls_cert,
                               .key = options_.tls_key,
                               .client_ca = options_.tls_client_ca});
  if (!read.ok()) return read.status();
  certificates_ = std::move(*read);
  handshakes_ = std::make_unique<tls::Handshakes>(
      *certificates_, [this](std::string_view text) { report_(LogLevel::kWarn, text); });
  return {};
}

Status RunningServer::reload_tls() {
  return certificates_ == nullptr ? Status() : certificates_->reload();
}

Status RunningServer::reload_api_keys() {
  if (options_.api_key_file.empty()) return {};
  Result<transports::ApiKeys> read = transports::ApiKeys::read(options_.api_key_file);
  if (!read.ok()) return read.status();
  const std::lock_guard lock(reloading_keys_);
  keys_.replace(*std::move(read), [this] { catalog_->wait_for_turns(); });
  return {};
}

void RunningServer::add_to_tables(const models::Model& model) {
  if (trace_log_ != nullptr) {
    trace_log_->name_model(static_cast<uint16_t>(model.index()), model.metadata().name);
  }
  if (spans_ != nullptr) {
    spans_->name_model(static_cast<uint16_t>(model.index()), model.metadata().name);
  }
  // It is served without, then.
  if (const Status status = cache_->add(model); !status.ok()) {
    report_(LogLevel::kWarn, status.message());
  }
  // Its requests are refused, then.
  if (const Status status = sequences_->add(model); !status.ok()) {
    report_(LogLevel::kError, status.message());
  }
}

// A file that was asked for by its path must be there; the usual one is gone without, and that is
// said.
Status RunningServer::make_counters() {
  const telemetry::CountersOptions options{.shards = options_.io_thread_count,
                                           .queue_types = models::kQueueTypeNames,
                                           .allocator_types = models::kAllocatorTypeNames};
  if (options_.stats_path != kOff) {
    const bool is_usual = options_.stats_path == kAuto;
    if (is_usual) telemetry::remove_old_counters_files(telemetry::default_counters_path());
    Status status = make_counters_file(
        is_usual ? telemetry::default_counters_path() : options_.stats_path, options);
    if (status.ok()) return {};
    if (!is_usual) return status;
    report_(LogLevel::kWarn, std::string(status.message()) + "; this server goes on without one");
  }
  Result<Mapping> region = Mapping::create(telemetry::Counters::bytes_for(options.shards));
  if (!region.ok()) return region.status();
  counters_ = std::make_unique<telemetry::Counters>(std::move(*region), options);
  return {};
}

Status RunningServer::make_counters_file(const std::string& path,
                                         const telemetry::CountersOptions& options) {
  auto file = telemetry::CountersFile::create(path, telemetry::Counters::bytes_for(options.shards));
  if (!file.ok()) return file.status();
  auto counters = telemetry::Counters::create(**file, options);
  if (!counters.ok()) return counters.status();
  counters_file_ = std::move(*file);
  counters_ = std::move(*counters);
  if (!counters_file_->is_in_memory()) {
    report_(LogLevel::kWarn, "counters file " + path +
                                 " is not on a tmpfs: a thread that counts may wait for the disk; "
                                 "wanted a path below $XDG_RUNTIME_DIR or /dev/shm");
  }
  return {};
}

Status RunningServer::start_spans() {
  if (options_.otlp_endpoint.empty()) return {};
  auto spans = otlp::SpanExporter::start({.endpoint = options_.otlp_endpoint,
                                          .service_name = options_.otlp_service_name,
                                          .queue_types = models::kQueueTypeNames,
                                          .on_error = [report = report_](const Status& status) {
                                            report(LogLevel::kError, status.message());
                                          }});
  if (!spans.ok()) return spans.status().at("otlp_endpoint");
  spans_ = std::move(*spans);
  return {};
}

Status RunningServer::open_trace_log() {
  if (options_.telemetry_csv_path.empty()) return {};
  telemetry::TraceLogOptions trace;
  trace.path = options_.telemetry_csv_path;
  trace.max_bytes = options_.telemetry_csv_max_bytes;
  trace.keep = options_.telemetry_csv_keep;
  trace.on_error = [report = report_](const Status& status) {
    report(LogLevel::kError, status.message());
  };
  trace.queue_types = models::kQueueTypeNames;
  trace.allocator_types = models::kAllocatorTypeNames;
  Result<std::unique_ptr<telemetry::TraceLog>> log = telemetry::TraceLog::open(std::move(trace));
  if (!log.ok()) return log.status();
  trace_log_ = std::move(*log);
  return {};
}

// The region of each request reserves addresses for the largest body; a limit may leave fewer than
// that. The server does not lower max_active_requests by itself: a handful of requests at once
// would surprise its user later.
Status RunningServer::check_address_space() const {
  const UnusedAddresses unused = unused_addresses();
  // The rest is for the stacks and heaps of the threads, and for models that are added.
  const size_t ours = unused.bytes == SIZE_MAX ? SIZE_MAX : unused.bytes / 4 * 3;
  const size_t wanted = address_bytes(options_);
  if (wanted <= ours) return {};
  const size_t contexts = ours / options_.io_thread_count / address_bytes_of_a_request(options_);
  const size_t fit = contexts > http::kHeadContexts ? contexts - http::kHeadContexts : 0;
  return Status::error(
      Code::kTooLarge,
      "address space (%s): %zu MiB are left, wanted %zu MiB for max_active_requests %zu with "
      "max_body_bytes %zu; %zu such requests would fit. Raise the limit, or lower max_body_bytes "
      "or max_active_requests",
      unused.limit.c_str(), unused.bytes >> 20, wanted >> 20, options_.max_active_requests,
      options_.max_body_bytes, fit);
}

// A limit that is met is a connection refused; better the one that closes the oldest idle
// connection.
void RunningServer::fit_descriptors() {
  const uint64_t threads = options_.io_thread_count;
  const uint64_t wanted = most_descriptors(options_, net::open_descriptors());
  const uint64_t own = wanted - threads * options_.max_connections;
  const uint64_t got = net::raise_descriptor_limit(wanted);
  if (got >= wanted) return;
  const size_t asked_for = options_.max_connections;
  options_.max_connections = std::max<uint64_t>(got > own ? (got - own) / threads : 0, 1);
  const Status what = Status::error(
      Code::kResourceExhausted,
      "descriptor limit: got %llu, wanted %llu for max_connections %zu on %llu I/O threads; each "
      "serves at most %zu connections. Raise the hard limit (ulimit -Hn, LimitNOFILE of systemd), "
      "or "
      "lower --max-connections",
      static_cast<unsigned long long>(got), static_cast<unsigned long long>(wanted), asked_for,
      static_cast<unsigned long long>(threads), options_.max_connections);
  report_(LogLevel::kWarn, what.message());
}

// Where nothing was asked for: half, so that models, their buffers and other programs have the
// rest.
void RunningServer::fit_memory() {
  if (options_.max_memory_bytes != 0) return;
  const MachineMemory machine = machine_memory();
  const size_t least = least_memory_bytes(options_);
  options_.max_memory_bytes = std::max(machine.bytes / 2, least);
  const bool is_too_little = machine.bytes / 2 < least;
  std::string text = "max_memory_bytes: all requests together take at most ";
  text += std::to_string(options_.max_memory_bytes >> 20);
  text +=
      is_too_little
          ? " MiB: receive buffers and a largest request need so much, but it is more than half of "
          : " MiB, half of ";
  text += machine.source + " (" + std::to_string(machine.bytes >> 20) + " MiB)";
  if (is_too_little) text += "; lower max_body_bytes or max_active_requests";
  report_(is_too_little ? LogLevel::kWarn : LogLevel::kInfo, text);
}

http::Services RunningServer::http_services() const {
  return {.options = http_options_,
          .documents = *documents_,
          .hosts = hosts_,
          .cors = cors_,
          .keys = keys_,
          .readiness = readiness_,
          .backends = repository_->backends(),
          .control = *control_thread_,
          .loader = *loader_thread_,
          .metrics = *metrics_,
          .compressor = compressor_.get()};
}

Status RunningServer::start_io_threads() {
  fit_descriptors();
  fit_memory();
  http_options_ = http_options_of(options_);
  const http::Services services = http_services();
  shm_options_ = {.overload_status = options_.overload_status,
                  .max_body_bytes = options_.max_body_bytes,
                  .max_active_requests = options_.max_active_requests};
  grpc_options_ = grpc_options_of(options_);
  std::vector<transports::MakeTransport> make_transports;
  // First: the transports that serve its connections ask for it.
  if (handshakes_ != nullptr) {
    make_transports.emplace_back([this](const transports::ThreadServices& thread) {
      return tls::make_transport({{.max_connections = http_options_.max_connections}, *handshakes_},
                                 thread);
    });
  }
  make_transports.emplace_back([this](const transports::ThreadServices& thread) {
    return grpc::make_transport(
        {grpc_options_, *documents_, keys_, *control_thread_, *loader_thread_, readiness_}, thread);
  });
  make_transports.emplace_back([&services](const transports::ThreadServices& thread) {
    return http::make_transport(services, thread);
  });
  if (listeners_.bus() != nullptr) {
    make_transports.emplace_back([this](const transports::ThreadServices& thread) {
      return shm::make_transport({shm_options_, *documents_, readiness_, *listeners_.bus()},
                                 thread);
    });
  }
  const auto loop = net::choose_loop(options_.loop);
  if (!loop.ok()) return loop.status();
  report_(LogLevel::kInfo, "loop " + std::string(name_of(loop->kind)) + ": " + loop->why);
  for (uint32_t i = 0; i < options_.io_thread_count; ++i) {
    auto sockets = listeners_.sockets_of(i);
    if (!sockets.ok()) return sockets.status();
    auto io = IoThread::create({.index = i,
                                .loop = loop->kind,
                                .counters = *counters_,
                                .record_readers = record_readers(),
                                .submitter = engine_->submitter(i),
                                .catalog = *catalog_,
                                .steps = steps_,
                                .options = options_},
                               make_transports, std::move(*sockets));
    if (!io.ok()) return io.status();
    io_threads_.push_back(std::move(*io));
  }
  // Ready means begun: a thread that began after the first requests (of its neighbour) allocated
  // then.
  // Shared, since the last to count down may still be inside when the wait is over.
  const auto begun = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(io_threads_.size()));
  for (auto& io : io_threads_) {
    threads_.emplace_back([&io, begun, index = threads_.size()] {
      name_this_thread("lumen-io" + std::to_string(index));
      // Let in at once where a CPU is busy, as while models are loaded (./dev bench reloads).
      ask_for_time_slice(kShortestTimeSliceNs);
      io->begin();
      begun->count_down();
      io->run();
    });
  }
  begun->wait();
  return {};
}

void RunningServer::drain() noexcept {
  listeners_.close();
  for (auto& io : io_threads_) io->request_drain();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  listeners_.close_bus();
  if (catalog_ != nullptr) catalog_->close();
  if (control_thread_ != nullptr) control_thread_->join();
  if (loader_thread_ != nullptr) loader_thread_->join();
  if (metrics_ != nullptr) metrics_->join();
  if (compressor_ != nullptr) compressor_->join();
  if (handshakes_ != nullptr) handshakes_->join();
  // The I/O threads have answered everything they submitted, so the engine is empty by now.
  if (engine_ != nullptr) engine_->drain();
  if (trace_log_ != nullptr) trace_log_->close();
  if (spans_ != nullptr) spans_->close();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options,
                                              models::Backends backends, Report report) {
  // A client that closes early must be an error code, not the end of the process.
  (void)std::signal(SIGPIPE, SIG_IGN);
  // So must a file that has reached RLIMIT_FSIZE.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  auto server = std::make_unique<RunningServer>(options, std::move(report));
  LUMEN_RETURN_IF_ERROR(server->start(std::move(backends)));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace lumen::server
