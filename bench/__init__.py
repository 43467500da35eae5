"""The benches: a module here that sets BENCH is one. `./dev bench NAME` runs it."""
