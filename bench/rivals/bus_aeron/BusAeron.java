// Aeron IPC in bench/bus.py: this process produces and starts another that consumes.
//   java BusAeron --row stream|trip --bytes 32|1024 --count N [--term BYTES]   prints one line of JSON
// The media driver is invoked by the producer, whenever it lacks room: its own thread would need a third
// CPU. As many messages as are measured come before, so that the code is compiled. A message is claimed in
// place, written and read wholly; a wrong sum is an error.
import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.AgentInvoker;

import sun.misc.Unsafe;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

public final class BusAeron
{
  private static final int THERE = 1;
  private static final int BACK = 2;
  // Longer messages go through an array: the compiler makes vector instructions of loops over arrays alone.
  private static final int FEW_WORDS = 16;
  private static final Unsafe UNSAFE = unsafe();

  static Unsafe unsafe()
  {
    try
    {
      final var field = Unsafe.class.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      return (Unsafe)field.get(null);
    }
    catch (final ReflectiveOperationException error)
    {
      throw new IllegalStateException(error);
    }
  }

  static String text(final String[] args, final String name, final String otherwise)
  {
    for (int i = 0; i + 1 < args.length; ++i) if (args[i].equals(name)) return args[i + 1];
    return otherwise;
  }

  // The calling thread alone; the JVM's own threads go where there is room.
  static void pinTo(final int cpu) throws Exception
  {
    final String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
    final Process pin = new ProcessBuilder("taskset", "-p", "-c", Integer.toString(cpu), tid)
      .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    if (pin.waitFor() != 0) throw new IllegalStateException("can't pin to CPU " + cpu);
  }

  private final boolean trip;
  private final int words;
  private final long[] message;
  private final int count;
  private final int term;
  private final String folder;
  private final BufferClaim claim = new BufferClaim();
  // null in the consumer, whose client has a thread that sleeps most of the time
  private AgentInvoker driver;
  private AgentInvoker client;
  private long sum;
  private final FragmentHandler add = this::add;

  BusAeron(final String[] args)
  {
    trip = text(args, "--row", "stream").equals("trip");
    words = Integer.parseInt(text(args, "--bytes", "32")) / 8;
    message = new long[words];
    count = Integer.parseInt(text(args, "--count", "1000000"));
    term = Integer.parseInt(text(args, "--term", "1048576"));
    folder = text(args, "--folder", "/dev/shm/bench_aeron." + ProcessHandle.current().pid());
  }

  void work()
  {
    driver.invoke();
    if (client != null) client.invoke();
  }

  void send(final ExclusivePublication to, final long value)
  {
    while (to.tryClaim(words * 8, claim) < 0)
    {
      if (driver != null) work();
    }
    final var buffer = claim.buffer();
    final int offset = claim.offset();
    if (words <= FEW_WORDS)
    {
      for (int i = 0; i < words; ++i) buffer.putLong(offset + 8 * i, value);
    }
    else
    {
      Arrays.fill(message, value);
      UNSAFE.copyMemory(message, Unsafe.ARRAY_LONG_BASE_OFFSET, null, buffer.addressOffset() + offset, words * 8L);
    }
    claim.commit();
  }

  void add(final DirectBuffer buffer, final int offset, final int length, final Header header)
  {
    long ofThis = 0;
    if (words <= FEW_WORDS)
    {
      for (int i = 0; i < words; ++i) ofThis += buffer.getLong(offset + 8 * i);
    }
    else
    {
      UNSAFE.copyMemory(null, buffer.addressOffset() + offset, message, Unsafe.ARRAY_LONG_BASE_OFFSET, words * 8L);
      for (final long word : message) ofThis += word;
    }
    sum += ofThis;
  }

  Image image(final Subscription in)
  {
    while (in.imageCount() == 0)
    {
      if (driver != null) work();
      Thread.yield();
    }
    return in.imageAtIndex(0);
  }

  String channel() { return "aeron:ipc?term-length=" + term; }

  void consume() throws Exception
  {
    try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(folder));
      Subscription in = aeron.addSubscription(channel(), THERE);
      ExclusivePublication out = aeron.addExclusivePublication(channel(), BACK))
    {
      final Image image = image(in);
      pinTo(1);
      if (trip)
      {
        for (int i = 0; i < 2 * count; ++i)
        {
          sum = 0;
          while (image.poll(add, 1) == 0) continue;
          send(out, sum / words);
        }
      }
      else
      {
        long start = 0;
        int received = 0;
        int timed = 0;
        while (received < 2 * count)
        {
          received += image.poll(add, 256);
          if (timed == 0 && received >= count)
          {
            timed = 2 * count - received;
            start = System.nanoTime();
          }
        }
        final double ns = System.nanoTime() - start;
        final long all = 2L * count;
        if (sum != words * (all * (all - 1) / 2)) throw new IllegalStateException("other bytes came");
        send(out, 1);
        System.out.printf("{\"mops\": %.4f}%n", timed * 1e3 / ns);
      }
      Thread.sleep(200);
    }
  }

  void produce(final List<String> consumer) throws Exception
  {
    final var context = new MediaDriver.Context().aeronDirectoryName(folder)
      .threadingMode(ThreadingMode.INVOKER).dirDeleteOnStart(true).dirDeleteOnShutdown(true)
      .termBufferSparseFile(false).spiesSimulateConnection(false);
    try (MediaDriver media = MediaDriver.launch(context))
    {
      driver = media.sharedAgentInvoker();
      final Process other = new ProcessBuilder(consumer).inheritIO().start();
      try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(folder)
        .useConductorAgentInvoker(true).driverAgentInvoker(driver));
        ExclusivePublication out = aeron.addExclusivePublication(channel(), THERE);
        Subscription in = aeron.addSubscription(channel(), BACK))
      {
        client = aeron.conductorAgentInvoker();
        final Image image = image(in);
        while (!out.isConnected()) work();
        pinTo(0);
        if (trip) tripAll(out, image); else streamAll(out, image);
        while (!other.waitFor(1, java.util.concurrent.TimeUnit.MILLISECONDS)) work();
      }
      if (other.exitValue() != 0) throw new IllegalStateException("the consumer has failed");
    }
  }

  void streamAll(final ExclusivePublication out, final Image back)
  {
    for (int i = 0; i < 2 * count; ++i)
    {
      send(out, i);
      if ((i & 0xffff) == 0) work();
    }
    while (back.poll(add, 1) == 0) work();
  }

  void tripAll(final ExclusivePublication out, final Image back)
  {
    final long[] ns = new long[2 * count];
    long before = System.nanoTime();
    for (int i = 0; i < 2 * count; ++i)
    {
      sum = 0;
      send(out, i);
      while (back.poll(add, 1) == 0) continue;
      if (sum != (long)i * words) throw new IllegalStateException("another message came back");
      final long now = System.nanoTime();
      ns[i] = now - before;
      before = now;
      if ((i & 0xffff) == 0) work();
    }
    final long[] timed = Arrays.copyOfRange(ns, count, 2 * count);
    Arrays.sort(timed);
    System.out.printf("{\"p50_ns\": %d, \"p99_ns\": %d}%n", timed[count / 2], timed[count / 100 * 99]);
  }

  public static void main(final String[] args) throws Exception
  {
    final BusAeron bench = new BusAeron(args);
    if (Arrays.asList(args).contains("--folder"))
    {
      bench.consume();
      return;
    }
    // The same JVM with the same options.
    final List<String> consumer = new ArrayList<>();
    consumer.add(ProcessHandle.current().info().command().orElse("java"));
    consumer.addAll(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments());
    consumer.addAll(List.of("-cp", System.getProperty("java.class.path"), "BusAeron"));
    consumer.addAll(List.of(args));
    consumer.addAll(List.of("--folder", bench.folder));
    bench.produce(consumer);
  }
}
