//! The rivals behind one trait: put and get with a deadline, i32 to i32, none evicting anything in a
//! measurement: each has room for more than is put.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

pub trait Cache: Sync {
    fn new(entries: usize) -> Self;
    fn put(&self, key: i32, value: i32, ttl_ms: u32);
    fn get(&self, key: i32) -> Option<i32>;
    fn tick(&self) {}
}

/// What is done with the rival that was asked for.
pub trait Work {
    fn run<C: Cache>(&self);
}

/// Milliseconds since the start, as the cached tick of the C++ contenders.
struct Tick {
    start: Instant,
    now: AtomicU32,
}

#[allow(dead_code)]
impl Tick {
    fn new() -> Self {
        Self { start: Instant::now(), now: AtomicU32::new(0) }
    }
    #[inline(always)]
    fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
    fn advance(&self) {
        self.now.store(self.start.elapsed().as_millis() as u32, Ordering::Relaxed);
    }
}

#[cfg(feature = "quick_cache")]
mod quick {
    use super::{Cache, Tick};

    pub struct Quick(quick_cache::sync::Cache<i32, (i32, u32)>, Tick);

    impl Cache for Quick {
        fn new(entries: usize) -> Self {
            Self(quick_cache::sync::Cache::new(entries * 2 + 1_000), Tick::new())
        }
        #[inline(always)]
        fn put(&self, key: i32, value: i32, ttl_ms: u32) {
            self.0.insert(key, (value, self.1.now() + ttl_ms));
        }
        #[inline(always)]
        fn get(&self, key: i32) -> Option<i32> {
            let now = self.1.now();
            self.0.get(&key).filter(|entry| entry.1 > now).map(|entry| entry.0)
        }
        fn tick(&self) {
            self.1.advance();
        }
    }
}

#[cfg(feature = "moka")]
mod moka_sync {
    use super::Cache;
    use moka::Expiry;
    use std::time::{Duration, Instant};

    pub struct ByEntry;

    impl Expiry<i32, (i32, u32)> for ByEntry {
        fn expire_after_create(&self, _: &i32, value: &(i32, u32), _: Instant) -> Option<Duration> {
            Some(Duration::from_millis(u64::from(value.1)))
        }
        fn expire_after_update(
            &self,
            _: &i32,
            value: &(i32, u32),
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(Duration::from_millis(u64::from(value.1)))
        }
    }

    pub struct Moka(moka::sync::Cache<i32, (i32, u32)>);

    impl Cache for Moka {
        fn new(entries: usize) -> Self {
            let most = entries as u64 * 2 + 1_000;
            Self(moka::sync::Cache::builder().max_capacity(most).expire_after(ByEntry).build())
        }
        fn put(&self, key: i32, value: i32, ttl_ms: u32) {
            self.0.insert(key, (value, ttl_ms));
        }
        fn get(&self, key: i32) -> Option<i32> {
            self.0.get(&key).map(|entry| entry.0)
        }
    }
}

#[cfg(feature = "papaya")]
mod papaya_map {
    use super::{Cache, Tick};

    pub struct Papaya(papaya::HashMap<i32, (i32, u32)>, Tick);

    impl Cache for Papaya {
        fn new(_: usize) -> Self {
            Self(papaya::HashMap::new(), Tick::new())
        }
        #[inline(always)]
        fn put(&self, key: i32, value: i32, ttl_ms: u32) {
            self.0.pin().insert(key, (value, self.1.now() + ttl_ms));
        }
        #[inline(always)]
        fn get(&self, key: i32) -> Option<i32> {
            let now = self.1.now();
            self.0.pin().get(&key).filter(|entry| entry.1 > now).map(|entry| entry.0)
        }
        fn tick(&self) {
            self.1.advance();
        }
    }
}

#[cfg(feature = "segcache")]
mod segments {
    use super::Cache;
    use segcache::{Policy, Segcache, Value};
    use std::time::Duration;

    /// Its heap and its hash table are made at once, for what will come: nothing grows.
    pub struct Segments(Segcache);

    impl Cache for Segments {
        fn new(entries: usize) -> Self {
            const MIB: usize = 1 << 20;
            let buckets = (entries * 4).max(1 << 16).next_power_of_two().trailing_zeros() as u8;
            let heap = (entries * 48).next_multiple_of(MIB) + 64 * MIB;
            let builder = Segcache::builder().heap_size(heap).segment_size(MIB as i32);
            let made = builder.hash_power(buckets).eviction(Policy::None).build();
            Self(made.expect("segcache"))
        }
        fn put(&self, key: i32, value: i32, ttl_ms: u32) {
            let ttl = Duration::from_millis(u64::from(ttl_ms));
            if let Err(error) = self.0.insert(&key.to_ne_bytes(), value as u64, None, ttl) {
                eprintln!("bench_cache_rust: segcache: {error:?}");
                std::process::exit(2);
            }
        }
        fn get(&self, key: i32) -> Option<i32> {
            match self.0.get(&key.to_ne_bytes())?.value() {
                Value::U64(value) => Some(value as i32),
                Value::Bytes(_) => None,
            }
        }
        fn tick(&self) {
            self.0.expire();
        }
    }
}

#[cfg(feature = "foyer")]
mod foyer {
    use super::{Cache, Tick};
    use foyer_memory::{CacheBuilder, S3FifoConfig};

    pub struct Foyer(foyer_memory::Cache<i32, (i32, u32)>, Tick);

    impl Cache for Foyer {
        fn new(entries: usize) -> Self {
            let builder = CacheBuilder::new(entries * 2 + 1_000);
            let built = builder.with_eviction_config(S3FifoConfig::default()).build();
            Self(built, Tick::new())
        }
        fn put(&self, key: i32, value: i32, ttl_ms: u32) {
            self.0.insert(key, (value, self.1.now() + ttl_ms));
        }
        fn get(&self, key: i32) -> Option<i32> {
            let now = self.1.now();
            let entry = self.0.get(&key)?;
            let (value, deadline) = *entry.value();
            (deadline > now).then_some(value)
        }
        fn tick(&self) {
            self.1.advance();
        }
    }
}

macro_rules! rivals {
    ($($feature:literal, $name:literal, $cache:path;)*) => {
        pub fn names() -> Vec<&'static str> {
            vec![$(#[cfg(feature = $feature)] $name),*]
        }
        /// False: there is none of that name.
        pub fn with_rival(name: &str, work: &impl Work) -> bool {
            match name {
                $(#[cfg(feature = $feature)] $name => work.run::<$cache>(),)*
                _ => return false,
            }
            #[allow(unreachable_code)]
            true
        }
    };
}

rivals! {
    "quick_cache", "quick_cache", quick::Quick;
    "moka", "moka", moka_sync::Moka;
    "papaya", "papaya", papaya_map::Papaya;
    "segcache", "segcache", segments::Segments;
    "foyer", "foyer", foyer::Foyer;
}
