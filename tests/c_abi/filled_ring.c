/* A bus at PATH with one ring, filled to three quarters by frames of two types, until its standard
 * input ends. What `lumen bus top` is tested with: Python can't load the library of a sanitized
 * build. */
#include <lumen/c/bus.h>

#include <stdio.h>

static int fail(const char* what) {
  fprintf(stderr, "filled_ring: %s\n", what);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return fail("wanted PATH");
  lumen_bus_options options = lumen_bus_default_options(LUMEN_BUS_SUBSCRIBE);
  options.capacity = 4096;
  char* message = NULL;
  lumen_bus_listener* listener = lumen_bus_listen(argv[1], &options, &message);
  if (listener == NULL) return fail(message);
  lumen_bus_connection* theirs =
      lumen_bus_connect(argv[1], LUMEN_BUS_PUBLISH, UINT64_MAX, false, &message);
  if (theirs == NULL) return fail(message);
  lumen_bus_connection* ours = lumen_bus_accept(listener, UINT64_MAX, NULL);
  if (ours == NULL) return fail("nobody connected");
  const uint32_t types[] = {7, 7, 9};
  const char data[1024] = {0};
  for (int i = 0; i < 3; ++i) {
    const enum lumen_bus_outcome sent = lumen_bus_send(lumen_bus_connection_publisher(theirs), data,
                                                       sizeof(data), types[i], 0, 0);
    if (sent != LUMEN_BUS_OK) return fail(lumen_bus_outcome_name(sent));
  }
  puts("filled");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  lumen_bus_close(theirs);
  lumen_bus_close(ours);
  lumen_bus_listener_close(listener);
  return 0;
}
