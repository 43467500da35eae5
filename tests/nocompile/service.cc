// Misuses of service that must not compile; run_nocompile.py says how this file is read.
#include <lumen/service/binder.h>
#include <lumen/service/call.h>
#include <lumen/service/dispatcher.h>

namespace lumen::service {

void what_became_of_a_call_is_looked_at(Dispatcher& dispatcher, Call& call) {
#ifdef WRONG
  dispatcher.submit(call);     // error: ignoring return
  dispatcher.take_back(call);  // error: ignoring return
  inputs_arrived(call);        // error: ignoring return
#else
  if (inputs_arrived(call).ok() && dispatcher.submit(call)) {
    static_cast<void>(dispatcher.take_back(call));
  }
#endif
}
void an_input_that_the_model_refuses_is_looked_at(Binder& binder, const TensorView& tensor) {
#ifdef WRONG
  binder.input("x", tensor, InputBytes::kPresent);  // error: ignoring return
#else
  if (!binder.input("x", tensor, InputBytes::kPresent).ok()) return;
#endif
}
void calls_that_are_away_name_their_dispatcher(Dispatcher& dispatcher) {
#ifdef WRONG
  const Dispatcher moved = std::move(dispatcher);  // error: deleted
#else
  static_cast<void>(dispatcher.next_ns());
#endif
}
// Its transport owns a call, the server its steps.
void a_step_is_not_owned_by_a_dispatcher(Step* step, CallOwner* owner) {
#ifdef WRONG
  delete step;   // error: protected
  delete owner;  // error: protected
#else
  static_cast<void>(step);
  static_cast<void>(owner);
#endif
}

}  // namespace lumen::service
