// One measurement of Caffeine for bench/cache.py, as a JSON line; the arguments are those of
// bench_cache_threads and of bench/rivals/cache_rust. Every entry has its own deadline, which Caffeine
// keeps by its own clock. What is measured runs once before, so that it is compiled.

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.Expiry;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

public final class Timing {
  private static final int BURST = 1_000;
  private static final long TTL_NS = 600_000_000_000L;

  private static volatile boolean stop;
  private static long sink;

  private final String row;
  private final int threads;
  private final int keys;
  private final int count;
  private final int ms;
  private final long writesPerSecond;

  private Timing(String[] words) {
    row = text(words, "--row", "reads");
    threads = number(words, "--threads", 1);
    keys = number(words, "--keys", 1_000);
    count = number(words, "--count", 4_000_000);
    ms = number(words, "--ms", 200);
    String writer = text(words, "--writer", "0");
    writesPerSecond = writer.equals("max") ? Long.MAX_VALUE : Long.parseLong(writer);
  }

  // Every entry lives as long as its row says: the expiry is asked for each.
  private static Cache<Integer, Integer> make(long entries, long ttlNs) {
    Expiry<Integer, Integer> expiry =
        new Expiry<>() {
          @Override
          public long expireAfterCreate(Integer key, Integer value, long now) {
            return ttlNs;
          }

          @Override
          public long expireAfterUpdate(Integer key, Integer value, long now, long left) {
            return ttlNs;
          }

          @Override
          public long expireAfterRead(Integer key, Integer value, long now, long left) {
            return left;
          }
        };
    return Caffeine.newBuilder().maximumSize(2 * entries + 1_000).expireAfter(expiry).build();
  }

  // The same sequence as the other contenders'.
  private static final class RandomKeys {
    private long state;
    private final long below;

    RandomKeys(long seed, long below) {
      state = seed * 0x9e3779b97f4a7c15L;
      this.below = below;
    }

    int next() {
      state = state * 6364136223846793005L + 1442695040888963407L;
      return (int) ((state >>> 32) * below >>> 32);
    }
  }

  public static void main(String[] words) throws InterruptedException {
    Timing timing = new Timing(words);
    switch (timing.row) {
      case "reads", "mixed", "fresh" -> {
        timing.race(Math.min(timing.ms, 200));
        double[] found = timing.race(timing.ms);
        System.out.printf("{\"mops\": %.4f, \"writer_mops\": %.4f}%n", found[0], found[1]);
      }
      default -> {
        timing.five();
        System.out.printf("{\"ns\": %.4f}%n", timing.five());
      }
    }
  }

  private double five() {
    boolean random = row.equals("getRandomKeys");
    long ttlNs = row.equals("putSingle") ? 1_000_000_000L : TTL_NS;
    int entries = row.equals("putStress") ? count : 1_000;
    Cache<Integer, Integer> cache = make(entries, ttlNs);
    for (int key = 0; random && key < 1_000; ++key) {
      cache.put(key, key);
    }
    cache.put(42, 99);
    RandomKeys wanted = new RandomKeys(1, 1_000);
    long sum = 0;
    long start = System.nanoTime();
    for (int i = 0; i < count; ++i) {
      switch (row) {
        case "putSingle" -> cache.put(42, 99);
        case "putStress" -> cache.put(i, 99);
        default -> {
          int key = random ? wanted.next() : row.equals("getHit") ? 42 : -1;
          Integer found = cache.getIfPresent(key);
          sum += found == null ? 1 : found;
        }
      }
    }
    sink = sum;
    return (double) (System.nanoTime() - start) / count;
  }

  // Millions of operations a second, and those of the writer. The virtual machine places the threads.
  private double[] race(int lasting) throws InterruptedException {
    boolean fresh = row.equals("fresh");
    Cache<Integer, Integer> cache = make(fresh ? count : keys, TTL_NS);
    for (int key = 0; !fresh && key < keys; ++key) {
      cache.put(key, key % 1000);
    }
    stop = false;
    int writers = writesPerSecond > 0 ? 1 : 0;
    long[] done = new long[threads + 1];
    CountDownLatch go = new CountDownLatch(1);
    Thread[] running = new Thread[threads + writers];
    for (int t = 0; t < running.length; ++t) {
      int at = t;
      running[t] =
          new Thread(
              () -> {
                awaitQuietly(go);
                done[at] = at == threads ? write(cache) : work(cache, at);
              });
      running[t].start();
    }
    long start = System.nanoTime();
    go.countDown();
    if (!fresh) {
      Thread.sleep(lasting);
      stop = true;
    }
    for (Thread thread : running) {
      thread.join();
    }
    double ns = System.nanoTime() - start;
    long sum = 0;
    for (int t = 0; t < threads; ++t) {
      sum += done[t];
    }
    return new double[] {sum * 1000 / ns, done[threads] * 1000 / ns};
  }

  private long work(Cache<Integer, Integer> cache, int thread) {
    long done = 0;
    long sum = 0;
    if (row.equals("fresh")) {
      int each = count / threads;
      for (int i = 0; i < each; ++i) {
        cache.put(thread * each + i, 99);
      }
      return each;
    }
    RandomKeys random = new RandomKeys(thread + 1, keys);
    boolean mixed = row.equals("mixed");
    while (!stop) {
      for (int i = 0; i < BURST; ++i) {
        int key = random.next();
        if (mixed && i % 2 == 1) {
          cache.put(key, key % 1000);
        } else {
          Integer found = cache.getIfPresent(key);
          sum += found == null ? 1 : found;
        }
      }
      done += BURST;
    }
    sink = sum;
    return done;
  }

  private long write(Cache<Integer, Integer> cache) {
    RandomKeys random = new RandomKeys(77, keys);
    boolean paced = writesPerSecond != Long.MAX_VALUE;
    long burst = paced ? writesPerSecond / 1000 : BURST;
    long next = System.nanoTime();
    long done = 0;
    while (!stop) {
      for (long i = 0; i < burst; ++i) {
        int key = random.next();
        cache.put(key, key % 1000);
      }
      done += burst;
      if (paced) {
        next += 1_000_000;
        LockSupport.parkNanos(next - System.nanoTime());
      }
    }
    return done;
  }

  private static void awaitQuietly(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String text(String[] words, String name, String otherwise) {
    for (int i = 0; i + 1 < words.length; ++i) {
      if (words[i].equals(name)) {
        return words[i + 1];
      }
    }
    return otherwise;
  }

  private static int number(String[] words, String name, int otherwise) {
    return Integer.parseInt(text(words, name, Integer.toString(otherwise)));
  }
}
