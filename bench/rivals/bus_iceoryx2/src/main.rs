// iceoryx2 in bench/bus.py: what bench/bus/two_processes.h measures, by its native publish-subscribe. The producer
// on CPU 0 writes every byte, the consumer on CPU 1 reads every byte, both spin, nothing is lost.
//   bench_iceoryx2 --row stream|trip --bytes 32|1024 --count N [--capacity BYTES]
// A message is a sample; the subscriber's buffer has capacity / bytes of them, at most MOST_SAMPLES.
use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

// Its samples and their queues are made at once; more took seconds to begin with and were no faster.
const MOST_SAMPLES: u64 = 4096;

#[repr(C)]
struct Shared {
    ready: AtomicU32,
    timed: AtomicU64,
    ns: AtomicU64,
}

fn give_up(why: &str) -> ! {
    eprintln!("bench iceoryx2: {why}");
    std::process::exit(2)
}

fn must<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| give_up(&format!("{error:?}")))
}

fn option(name: &str, fallback: &str) -> String {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name);
    at.and_then(|i| words.get(i + 1).cloned()).unwrap_or(fallback.to_string())
}

fn number(name: &str, fallback: u64) -> u64 {
    must(option(name, &fallback.to_string()).parse())
}

fn pin_to(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set) != 0 {
            give_up("sched_setaffinity");
        }
    }
}

type Words<const N: usize> = [u64; N];
type Out<const N: usize> = Publisher<ipc::Service, Words<N>, ()>;
type In<const N: usize> = Subscriber<ipc::Service, Words<N>, ()>;

// One side: what it publishes and what it reads, of two services.
struct End<const N: usize> {
    out: Option<Out<N>>,
    r#in: Option<In<N>>,
    _node: Node<ipc::Service>,
}

impl<const N: usize> End<N> {
    fn open(publishes: &str, reads: &str, samples: usize) -> Self {
        let node = must(NodeBuilder::new().create::<ipc::Service>());
        let service = |name: &str| {
            let name: ServiceName = must(name.try_into());
            let builder = node.service_builder(&name).publish_subscribe::<Words<N>>();
            let builder = builder.enable_safe_overflow(false).subscriber_max_buffer_size(samples);
            let builder = builder.subscriber_max_borrowed_samples(2).max_publishers(1);
            must(builder.max_subscribers(1).open_or_create())
        };
        let out = (!publishes.is_empty()).then(|| {
            let service = service(publishes);
            let builder = service.publisher_builder().max_loaned_samples(1);
            must(builder.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create())
        });
        let r#in =
            (!reads.is_empty()).then(|| must(service(reads).subscriber_builder().create()));
        End { out, r#in, _node: node }
    }
    fn send(&self, value: u64) {
        let sample = must(self.out.as_ref().unwrap().loan_uninit());
        must(sample.write_payload([value; N]).send());
    }
    // The sum of the next message's words, if one is there.
    fn receive(&self) -> Option<u64> {
        let sample = must(self.r#in.as_ref().unwrap().receive())?;
        let words: Words<N> = unsafe { std::ptr::read_volatile(sample.payload()) };
        Some(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)))
    }
    fn next(&self) -> u64 {
        loop {
            if let Some(sum) = self.receive() {
                return sum / N as u64;
            }
        }
    }
}

// `ready` counts the ends that are open and connected.
fn meet(shared: &Shared) {
    shared.ready.fetch_add(1, Ordering::SeqCst);
    while shared.ready.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
}

fn stream<const N: usize>(shared: &Shared, child: bool, name: &str, count: u64, samples: usize) {
    if !child {
        let end = End::<N>::open(name, "", samples);
        meet(shared);
        for i in 0..count {
            end.send(i);
        }
        while shared.ns.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let timed = shared.timed.load(Ordering::SeqCst) as f64;
        println!("{{\"mops\": {:.4}}}", timed * 1e3 / shared.ns.load(Ordering::SeqCst) as f64);
        return;
    }
    let end = End::<N>::open("", name, samples);
    meet(shared);
    let (mut received, mut sum) = (0u64, 0u64);
    let mut start = Instant::now();
    while received < count {
        let Some(words) = end.receive() else { continue };
        sum = sum.wrapping_add(words);
        received += 1;
        if received == count / 10 {
            start = Instant::now();
        }
    }
    let ns = start.elapsed().as_nanos() as u64;
    if sum != (N as u64).wrapping_mul(count * (count - 1) / 2) {
        give_up("the consumer has read other bytes than were written");
    }
    shared.timed.store(count - count / 10, Ordering::SeqCst);
    shared.ns.store(ns, Ordering::SeqCst);
}

fn trip(shared: &Shared, child: bool, name: &str, count: u64, samples: usize) {
    let (there, back) = (format!("{name}/there"), format!("{name}/back"));
    let warm_up = count / 10;
    if child {
        let end = End::<4>::open(&back, &there, samples);
        meet(shared);
        for _ in 0..warm_up + count {
            end.send(end.next());
        }
        // Who asks has the last answer before this side goes.
        while shared.ns.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        return;
    }
    let end = End::<4>::open(&there, &back, samples);
    meet(shared);
    let mut ns = vec![0u64; count as usize];
    let mut before = Instant::now();
    for i in 0..warm_up + count {
        end.send(i);
        if end.next() != i {
            give_up("another message came back than was sent");
        }
        let now = Instant::now();
        if i >= warm_up {
            ns[(i - warm_up) as usize] = (now - before).as_nanos() as u64;
        }
        before = now;
    }
    shared.ns.store(1, Ordering::SeqCst);
    ns.sort_unstable();
    let at = |part: f64| ns[((count - 1) as f64 * part) as usize];
    println!("{{\"p50_ns\": {}.0, \"p99_ns\": {}.0}}", at(0.5), at(0.99));
}

fn main() {
    set_log_level(LogLevel::Error);
    let (row, bytes, count) = (option("--row", "stream"), number("--bytes", 32), number("--count", 1_000_000));
    let samples = (number("--capacity", 1 << 20) / bytes.max(64)).clamp(2, MOST_SAMPLES) as usize;
    let name = format!("bench_iceoryx2/{}", std::process::id());
    let page = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), std::mem::size_of::<Shared>(), protection, flags, -1, 0)
    };
    if page == libc::MAP_FAILED {
        give_up("mmap");
    }
    let shared = unsafe { &*(page as *const Shared) };
    let child = unsafe { libc::fork() };
    if child == 0 {
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
    let is_child = child == 0;
    pin_to(is_child as usize);
    match (row.as_str(), bytes) {
        ("stream", 32) => stream::<4>(shared, is_child, &name, count, samples),
        ("stream", 1024) => stream::<128>(shared, is_child, &name, count, samples),
        ("trip", _) => trip(shared, is_child, &name, count, samples),
        _ => give_up("--row stream|trip, --bytes 32|1024"),
    }
    if !is_child {
        let mut status = 0;
        if unsafe { libc::waitpid(child, &mut status, 0) } != child || status != 0 {
            give_up("the consumer has failed");
        }
    }
}
