//! One measurement of one Rust rival of bench/cache.py, as a JSON line; the arguments are those of
//! bench_cache_threads, and `--row putSingle|putStress|getHit|getRandomKeys|GetMiss --count N` gives
//! {"ns"}, as bench_chronocache has it.
//!
//! Deadlines stand in the value, against a cached tick that thread 0 advances every 1,000 operations
//! (moka and segcache keep deadlines themselves, by their own clocks). Threads: thread i on CPU i, the
//! writer on the last. Memory: the rivals'. Errors: exit 2.
mod rivals;

use rivals::{names, with_rival, Cache, Work};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BURST: u64 = 1_000;
const TICK_EVERY: u64 = 2_000;
const TTL_MS: u32 = 600_000;

struct Row {
    name: String,
    threads: u64,
    keys: u64,
    count: u64,
    ms: u64,
    writes_per_s: u64,
}

struct RandomKeys {
    state: u64,
    below: u64,
}

impl RandomKeys {
    fn new(seed: u64, below: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), below }
    }
    #[inline(always)]
    fn next(&mut self) -> i32 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.state >> 32) * self.below >> 32) as i32
    }
}

fn pin_to(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set) != 0 {
            eprintln!("bench_cache_rust: can't pin to CPU {cpu}");
            std::process::exit(2);
        }
    }
}

fn read_until<C: Cache>(cache: &C, row: &Row, thread: u64, stop: &AtomicBool) -> u64 {
    let mut keys = RandomKeys::new(thread + 1, row.keys);
    let (mut done, mut sum) = (0, 0u64);
    while !stop.load(Ordering::Acquire) {
        if thread == 0 {
            cache.tick();
        }
        for _ in 0..BURST {
            sum += cache.get(keys.next()).map_or(1_000_000_000_000, |v| v as u64);
        }
        done += BURST;
    }
    if sum >= 1_000_000_000_000 {
        eprintln!("bench_cache_rust: a key was missed");
        std::process::exit(2);
    }
    done
}

fn write_until<C: Cache>(cache: &C, row: &Row, stop: &AtomicBool) -> u64 {
    let mut keys = RandomKeys::new(77, row.keys);
    let paced = row.writes_per_s != u64::MAX;
    let burst = if paced { row.writes_per_s / 1000 } else { BURST };
    let mut next = Instant::now();
    let mut done = 0;
    while !stop.load(Ordering::Acquire) {
        for _ in 0..burst {
            let key = keys.next();
            cache.put(key, key % 1000, TTL_MS);
        }
        done += burst;
        if paced {
            next += Duration::from_millis(1);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    done
}

fn mix_until<C: Cache>(cache: &C, row: &Row, thread: u64, stop: &AtomicBool) -> u64 {
    let mut keys = RandomKeys::new(thread + 1, row.keys);
    let (mut done, mut sum) = (0, 0u64);
    while !stop.load(Ordering::Acquire) {
        if thread == 0 {
            cache.tick();
        }
        for _ in 0..BURST / 2 {
            sum += cache.get(keys.next()).unwrap_or(0) as u64;
            let key = keys.next();
            cache.put(key, key % 1000, TTL_MS);
        }
        done += BURST;
    }
    black_box(sum);
    done
}

fn put_fresh<C: Cache>(cache: &C, row: &Row, thread: u64) -> u64 {
    let each = row.count / row.threads;
    for i in 0..each {
        if thread == 0 && i % BURST == 0 {
            cache.tick();
        }
        cache.put((thread * each + i) as i32, 99, TTL_MS);
    }
    each
}

fn fill<C: Cache>(cache: &C, keys: u64) {
    cache.tick();
    for key in 0..keys as i32 {
        cache.put(key, key % 1000, TTL_MS);
    }
}

fn race<C: Cache>(row: &Row) {
    let fresh = row.name == "fresh";
    let cache = C::new(if fresh { row.count } else { row.keys } as usize);
    if !fresh {
        fill(&cache, row.keys);
    }
    let (ready, go, stop) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let writers = u64::from(row.writes_per_s > 0);
    let (ns, done) = std::thread::scope(|scope| {
        let (cache, ready, go, stop) = (&cache, &ready, &go, &stop);
        let running: Vec<_> = (0..row.threads + writers)
            .map(|t| {
                scope.spawn(move || {
                    pin_to(if t == row.threads { 1 } else { (t % 2) as usize });
                    ready.fetch_add(1, Ordering::AcqRel);
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    match row.name.as_str() {
                        _ if t == row.threads => write_until(cache, row, stop),
                        "reads" => read_until(cache, row, t, stop),
                        "mixed" => mix_until(cache, row, t, stop),
                        _ => put_fresh(cache, row, t),
                    }
                })
            })
            .collect();
        while ready.load(Ordering::Acquire) != (row.threads + writers) as usize {
            std::thread::yield_now();
        }
        let start = Instant::now();
        go.store(true, Ordering::Release);
        if !fresh {
            std::thread::sleep(Duration::from_millis(row.ms));
            stop.store(true, Ordering::Release);
        }
        let done: Vec<u64> = running.into_iter().map(|t| t.join().unwrap()).collect();
        (start.elapsed().as_nanos() as f64, done)
    });
    let sum: u64 = done[..row.threads as usize].iter().sum();
    let written = done.get(row.threads as usize).copied().unwrap_or(0);
    let mops = |count: u64| count as f64 * 1000.0 / ns;
    println!("{{\"mops\": {:.4}, \"writer_mops\": {:.4}}}", mops(sum), mops(written));
}

/// `count` calls with a tick before every 2,000 of them; nanoseconds a call.
fn timed<C: Cache>(cache: &C, count: u64, mut body: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    let mut i = 0;
    while i < count {
        cache.tick();
        let end = count.min(i + TICK_EVERY);
        while i < end {
            body(i);
            i += 1;
        }
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn five<C: Cache>(row: &Row) {
    pin_to(0);
    let random = row.name == "getRandomKeys";
    let entries = if random { 1_000 } else { 1 };
    let cache = C::new(if row.name == "putStress" { row.count as usize } else { entries });
    cache.tick();
    let ns = match row.name.as_str() {
        "putSingle" => timed(&cache, row.count, |_| cache.put(black_box(42), 99, 1_000)),
        "putStress" => timed(&cache, row.count, |i| cache.put(black_box(i as i32), 99, 60_000)),
        "getRandomKeys" => {
            fill(&cache, 1_000);
            let mut keys = RandomKeys::new(1, 1_000);
            let wanted: Vec<i32> = (0..row.count).map(|_| keys.next()).collect();
            let pass = || {
                timed(&cache, row.count, |i| {
                    black_box(cache.get(black_box(wanted[i as usize])));
                })
            };
            pass();
            pass()
        }
        _ => {
            cache.put(42, 99, TTL_MS);
            let key = if row.name == "getHit" { 42 } else { -1 };
            timed(&cache, row.count, |_| {
                black_box(cache.get(black_box(key)));
            })
        }
    };
    println!("{{\"ns\": {ns:.4}}}");
}

impl Work for Row {
    fn run<C: Cache>(&self) {
        if ["reads", "mixed", "fresh"].contains(&self.name.as_str()) {
            race::<C>(self);
        } else {
            five::<C>(self);
        }
    }
}

fn text(name: &str, otherwise: &str) -> String {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name);
    at.and_then(|i| words.get(i + 1)).cloned().unwrap_or_else(|| otherwise.to_string())
}

fn number(name: &str, otherwise: u64) -> u64 {
    text(name, "").parse().unwrap_or(otherwise)
}

fn main() {
    if std::env::args().any(|word| word == "--list") {
        names().iter().for_each(|name| println!("SAFE {name}"));
        return;
    }
    let writer = text("--writer", "0");
    let row = Row {
        name: text("--row", "reads"),
        threads: number("--threads", 1),
        keys: number("--keys", 1_000),
        count: number("--count", 4_000_000),
        ms: number("--ms", 200),
        writes_per_s: if writer == "max" { u64::MAX } else { writer.parse().unwrap_or(0) },
    };
    let wanted = text("--contender", "");
    if !with_rival(&wanted, &row) {
        eprintln!("bench_cache_rust: no rival '{wanted}' was built in");
        std::process::exit(2);
    }
}
