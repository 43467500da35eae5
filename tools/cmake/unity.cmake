# The sanitizers' builds compile the sources of a target as one file: the headers and the templates of
# JSON and of GoogleTest once, not once a source, which is half of a cold build. The release build
# compiles each source alone, and has the warnings about shadowed names.

# Sources with a private name that another source of their target has, too; and those of which a program
# brings its own: liblumen_c.so the C face, the simulation and the tests of late loops the loop and the
# memory.
set(LUMEN_UNITY_ALONE
    apps/doctor/server_checks.cc
    apps/serve_command.cc
    src/answers/shared_runs.cc
    src/base/cpu_pinning.cc
    src/base/process_memory.cc
    src/bus/bus_c.cc
    src/bus/publisher.cc
    src/bus/subscriber.cc
    src/client/bus_load.cc
    src/client/load_flow.cc
    src/client/model_info.cc
    src/client/report_parts.cc
    src/client/telemetry_csv.cc
    src/memory/shared_buffer_c.cc
    src/models/execution_provider.cc
    src/models/model_config.cc
    src/models/picture_config.cc
    src/models/picture_plan.cc
    src/models/recorded_rows.cc
    src/models/row_values.cc
    src/models/scan_files.cc
    src/models/sequence_config.cc
    src/models/sequence_inputs.cc
    src/models/sequence_plan.cc
    src/net/make_loop.cc
    src/server/recordings.cc
    src/server/region_request.cc
    src/server/settings_file.cc
    src/service/catalog.cc
    src/service/intake.cc
    src/service/reservoir.cc
    src/telemetry/prometheus_protobuf.cc
    src/transports/grpc/replies.cc
    src/wire/grpc_request.cc
    src/wire/oip_request.cc
    tests/stress/queue_stress_test.cc
    tests/stress/shared_buffer_stress_test.cc
    tests/unit/answers/stored_answer_test.cc
    tests/unit/apps/mix_load_test.cc
    tests/unit/cache/failure_test.cc
    tests/unit/cache/get_or_compute_test.cc
    tests/unit/cache/linearizability_test.cc
    tests/unit/cache/model_test.cc
    tests/unit/engine/inline_choice_test.cc
    tests/unit/engine/model_queues_test.cc
    tests/unit/engine/scheduler_test.cc
    tests/unit/memory/request_memory_test.cc
    tests/unit/memory/shared_buffer_model_test.cc
    tests/unit/models/model_config_test.cc
    tests/unit/models/picture_model_test.cc
    tests/unit/models/sequence_config_test.cc
    tests/unit/models/sequence_inputs_test.cc
    tests/unit/models/sequence_model_test.cc
    tests/unit/models/triton_keys_test.cc
    tests/unit/models/warm_up_config_test.cc
    tests/unit/wire/http_attack_test.cc
    tests/unit/wire/infer_refusal_test.cc
    tests/unit/wire/inflate_test.cc
    tests/unit/wire/json_number_run_test.cc)
set_source_files_properties(${LUMEN_UNITY_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

function(lumen_unity TARGET)
  if(LUMEN_SANITIZE)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    # The joint file names its sources by whole paths, and __FILE__ is one: with a path of the checkout in
    # it, ccache would keep nothing for another checkout.
    target_compile_options(${TARGET} PRIVATE -Wno-shadow
                                             "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>"
                                             -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
  endif()
endfunction()
