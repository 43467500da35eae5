/* The bus from C: one process publishes prices, another reads them where they lie.
 *   example_bus_c subscribe /tmp/prices.bus        in one terminal: it listens
 *   example_bus_c publish /tmp/prices.bus          in another
 * Without arguments it does both, in two processes. */
#include <lumen/c/bus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kPrice = 1, kPrices = 100000 };
struct price {
  uint32_t instrument;
  float value;
};

static int publish(const char* path) {
  char* message = NULL;
  lumen_bus_connection* bus = lumen_bus_connect(path, LUMEN_BUS_PUBLISH, UINT64_MAX, true, &message);
  if (bus == NULL) return fprintf(stderr, "%s\n", message), 1;
  lumen_bus_publisher* publisher = lumen_bus_connection_publisher(bus);
  for (uint32_t i = 0; i < kPrices; ++i) {
    void* place = NULL;
    if (lumen_bus_reserve(publisher, sizeof(struct price), UINT64_MAX, &place) != LUMEN_BUS_OK) break;
    *(struct price*)place = (struct price){i % 100, (float)i * 0.01f};
    lumen_bus_commit(publisher, sizeof(struct price), kPrice, i);
    if (i % 32 == 31) lumen_bus_flush(publisher); /* one wake-up at most for 32 prices */
  }
  lumen_bus_close(bus); /* publishes what is left */
  return 0;
}

static int subscribe(const char* path) {
  char* message = NULL;
  const lumen_bus_options options = lumen_bus_default_options(LUMEN_BUS_SUBSCRIBE);
  lumen_bus_listener* listener = lumen_bus_listen(path, &options, &message);
  if (listener == NULL) return fprintf(stderr, "%s\n", message), 1;
  lumen_bus_connection* bus = lumen_bus_accept(listener, UINT64_MAX, NULL);
  lumen_bus_subscriber* subscriber = lumen_bus_connection_subscriber(bus);
  uint64_t count = 0;
  double sum = 0;
  enum lumen_bus_outcome outcome = LUMEN_BUS_OK;
  while ((outcome = lumen_bus_wait(subscriber, UINT64_MAX)) == LUMEN_BUS_OK) {
    lumen_bus_frame frames[64];
    const size_t taken = lumen_bus_take(subscriber, frames, 64);
    for (size_t i = 0; i < taken; ++i) sum += ((const struct price*)frames[i].data)->value;
    count += taken;
    lumen_bus_release(subscriber); /* all 64 together */
  }
  printf("%llu prices, mean %.3f; then: %s\n", (unsigned long long)count, sum / (double)count,
         lumen_bus_outcome_name(outcome));
  lumen_bus_close(bus);
  lumen_bus_listener_close(listener);
  return count == kPrices ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc == 3) return strcmp(argv[1], "publish") == 0 ? publish(argv[2]) : subscribe(argv[2]);
  char folder[] = "/tmp/lumen-example-XXXXXX";
  if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
  if (fork() == 0) _exit(publish("bus"));
  const int failed = subscribe("bus");
  wait(NULL);
  return rmdir(folder) != 0 || failed;
}
