// Misuses of telemetry that must not compile; run_nocompile.py says how this file is read.
#include <lumen/telemetry/counters.h>

#include <utility>

namespace lumen::telemetry {

void a_counter_that_no_table_has_is_not_counted(CounterWriter& writer, const Counters& counters) {
#ifdef WRONG
  writer.add("requets");                               // error: constant expression
  writer.add(0, "requests");                           // error: constant expression
  static_cast<void>(counters.total("responses_6xx"));  // error: constant expression
  static_cast<void>(counters.total(0, "timeouts"));    // error: constant expression
#else
  writer.add("requests");
  writer.add(0, "inference");
  static_cast<void>(counters.total("responses_5xx"));
  static_cast<void>(counters.total(0, "inference"));
#endif
}
void a_counter_is_used_as_its_kind_alone(CounterWriter& writer) {
#ifdef WRONG
  writer.subtract("requests");            // error: constant expression
  writer.set(0, "execution", 7);          // error: constant expression
  writer.add_time(0, "execution", 1000);  // error: constant expression
#else
  writer.subtract("connections_open");
  writer.set(0, "last_inference", 7);
  writer.add_time(0, "queue", 1000);
#endif
}
void a_block_has_one_writer(CounterWriter& writer, Counters& counters) {
#ifdef WRONG
  const CounterWriter copy = writer;           // error: deleted
  const Counters moved = std::move(counters);  // error: deleted
#else
  writer.add("requests");
  const CounterWriter other(counters);
#endif
}
void a_total_is_looked_at(const Counters& counters) {
#ifdef WRONG
  counters.total("requests");  // error: ignoring return
#else
  static_cast<void>(counters.total("requests"));
#endif
}

}  // namespace lumen::telemetry
