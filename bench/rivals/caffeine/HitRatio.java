// How many requests of a trace hit in Caffeine: java -cp ... HitRatio FILE ENTRIES...
//
// FILE holds the keys, 8 bytes each, little-endian. The maintenance runs on the calling thread, so that
// nothing is lost between it and the policy. A line of JSON for each number of entries.

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

public final class HitRatio {
  public static void main(String[] words) throws IOException {
    ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[0])));
    LongBuffer trace = bytes.order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    for (int i = 1; i < words.length; ++i) {
      run(trace, Long.parseLong(words[i]));
    }
  }

  private static void run(LongBuffer trace, long entries) {
    Cache<Long, Boolean> cache =
        Caffeine.newBuilder().maximumSize(entries).executor(Runnable::run).build();
    long hits = 0;
    for (int i = 0; i < trace.limit(); ++i) {
      Long key = trace.get(i);
      if (cache.getIfPresent(key) != null) {
        ++hits;
      } else {
        cache.put(key, Boolean.TRUE);
      }
    }
    System.out.printf(
        "{\"policy\": \"Caffeine\", \"entries\": %d, \"hits\": %d, \"requests\": %d}%n",
        entries, hits, trace.limit());
  }
}
