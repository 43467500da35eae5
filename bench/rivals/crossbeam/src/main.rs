// crossbeam's ArrayQueue, measured as bench/queue/queue_bench.cc measures the others: the same
// arguments (--row mpmc|mpmc_trip --bytes 8|64 --capacity N --threads 1|2 --pinned 0|1 --ms M), the same
// waiting (a pause, after 64 failed tries a yield), the same line of JSON.
use crossbeam_queue::ArrayQueue;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

extern "C" {
    fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
}

fn pin_to(cpu: usize) {
    let mask = [1u64 << cpu, 0];
    if unsafe { sched_setaffinity(0, 16, mask.as_ptr()) } != 0 {
        eprintln!("bench_crossbeam: can't pin to CPU {cpu}");
        std::process::exit(2);
    }
}

trait Item: Copy + Send + 'static {
    fn new(value: u64) -> Self;
    fn value(&self) -> u64;
}
#[derive(Clone, Copy)]
struct Item8(u64);
#[derive(Clone, Copy)]
struct Item64([u64; 8]);
impl Item for Item8 {
    fn new(value: u64) -> Self {
        Item8(value)
    }
    fn value(&self) -> u64 {
        self.0
    }
}
impl Item for Item64 {
    fn new(value: u64) -> Self {
        Item64([value, 0, 0, 0, 0, 0, 0, 0])
    }
    fn value(&self) -> u64 {
        self.0[0]
    }
}

#[derive(Default)]
struct Retry(u32);
impl Retry {
    fn failed(&mut self) {
        self.0 += 1;
        if self.0 % 64 == 0 {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

struct Setup {
    capacity: usize,
    threads: usize,
    pinned: bool,
    duration: Duration,
}

fn throughput<T: Item>(setup: &Setup) {
    let queue = ArrayQueue::<T>::new(setup.capacity);
    let pushing = AtomicUsize::new(setup.threads);
    let barrier = Barrier::new(2 * setup.threads + 1);
    let start: OnceLock<Instant> = OnceLock::new();
    let produce = |index: usize| {
        if setup.pinned {
            pin_to(index % 2);
        }
        barrier.wait();
        // One start for all: who is scheduled late has less time, not another time.
        let end = *start.get_or_init(Instant::now) + setup.duration;
        let (mut count, mut sum) = (0u64, 0u64);
        loop {
            for _ in 0..1024 {
                let mut item = T::new(count);
                sum = sum.wrapping_add(count);
                count += 1;
                let mut retry = Retry::default();
                while let Err(back) = queue.push(item) {
                    item = back;
                    retry.failed();
                }
            }
            if Instant::now() >= end {
                break;
            }
        }
        pushing.fetch_sub(1, Ordering::Release);
        (count, sum)
    };
    let consume = |index: usize| {
        if setup.pinned {
            pin_to((index + 1) % 2);
        }
        barrier.wait();
        let (mut count, mut sum) = (0u64, 0u64);
        let mut last_look = false;
        loop {
            let mut retry = Retry::default();
            let mut got = queue.pop();
            let mut tries = 0;
            while got.is_none() && tries < 512 {
                retry.failed();
                tries += 1;
                got = queue.pop();
            }
            if let Some(item) = got {
                count += 1;
                sum = sum.wrapping_add(item.value());
                last_look = false;
                continue;
            }
            if last_look {
                return (count, sum);
            }
            last_look = pushing.load(Ordering::Acquire) == 0;
        }
    };
    let (produce, consume) = (&produce, &consume);
    let (pushed, popped) = thread::scope(|scope| {
        let pairs: Vec<_> = (0..setup.threads)
            .map(|i| (scope.spawn(move || produce(i)), scope.spawn(move || consume(i))))
            .collect();
        barrier.wait();
        start.get_or_init(Instant::now);
        let mut pushed = (0u64, 0u64);
        let mut popped = (0u64, 0u64);
        for (producer, consumer) in pairs {
            let (a, b) = (producer.join().unwrap(), consumer.join().unwrap());
            pushed = (pushed.0 + a.0, pushed.1.wrapping_add(a.1));
            popped = (popped.0 + b.0, popped.1.wrapping_add(b.1));
        }
        (pushed, popped)
    });
    assert_eq!(pushed, popped, "items were lost");
    println!("{{\"mops\": {:.2}}}", popped.0 as f64 / start.get().unwrap().elapsed().as_secs_f64() / 1e6);
}

fn round_trip<T: Item>(setup: &Setup) {
    const TRIPS: u32 = 8;
    let there = ArrayQueue::<T>::new(setup.capacity);
    let back = ArrayQueue::<T>::new(setup.capacity);
    let stop = AtomicBool::new(false);
    let mut samples: Vec<f64> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(1);
            while !stop.load(Ordering::Relaxed) {
                if let Some(item) = there.pop() {
                    while back.push(item).is_err() {}
                }
            }
        });
        pin_to(0);
        let end = Instant::now() + setup.duration;
        loop {
            let start = Instant::now();
            if start >= end {
                break;
            }
            for i in 0..TRIPS {
                while there.push(T::new(i as u64)).is_err() {}
                while back.pop().is_none() {}
            }
            samples.push(start.elapsed().as_nanos() as f64 / TRIPS as f64);
        }
        stop.store(true, Ordering::Relaxed);
    });
    samples.sort_by(f64::total_cmp);
    let at = |percent: usize| samples[samples.len() * percent / 100];
    println!("{{\"p50_ns\": {:.1}, \"p99_ns\": {:.1}}}", at(50), at(99));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let text = |name: &str, otherwise: &str| {
        let place = arguments.iter().position(|a| a == name);
        place.and_then(|i| arguments.get(i + 1)).cloned().unwrap_or(otherwise.to_string())
    };
    let number = |name: &str, otherwise: &str| -> u64 { text(name, otherwise).parse().unwrap() };
    let setup = Setup {
        capacity: number("--capacity", "1024") as usize,
        threads: number("--threads", "1") as usize,
        pinned: number("--pinned", "1") != 0,
        duration: Duration::from_millis(number("--ms", "100")),
    };
    match (text("--row", "mpmc").as_str(), number("--bytes", "8")) {
        ("mpmc", 8) => throughput::<Item8>(&setup),
        ("mpmc", _) => throughput::<Item64>(&setup),
        ("mpmc_trip", 8) => round_trip::<Item8>(&setup),
        ("mpmc_trip", _) => round_trip::<Item64>(&setup),
        (row, _) => {
            eprintln!("bench_crossbeam: no row {row}; rows: mpmc mpmc_trip");
            std::process::exit(2);
        }
    }
}
