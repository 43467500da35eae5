// A three-stage pipeline over one ring: read numbers as text, compute, write. Each stage has
// threads of its own; an item stays in its slot from push to the end of the last stage, and order
// is kept although the middle stage has two threads. Idle, nothing of this uses the processor.
//
//   main --push--> parse (1 thread) --> is it prime? (2 threads) --> collect (1 thread)
#include <lumen/queue/thread_pipeline.h>

#include <cstdio>
#include <cstdlib>
#include <string>

struct Job {
  std::string text;
  uint64_t number = 0;
  bool prime = false;
};

struct Parse {
  void operator()(Job& job) const noexcept {
    job.number = std::strtoull(job.text.c_str(), nullptr, 10);
  }
};

struct IsPrime {
  void operator()(Job& job) const noexcept {
    job.prime = job.number >= 2;
    for (uint64_t i = 2; i * i <= job.number && job.prime; ++i) job.prime = job.number % i != 0;
  }
};

struct Collect {
  std::string* primes;
  // A stage may take its whole batch at once.
  void operator()(std::span<Job> jobs) const noexcept {
    for (const Job& job : jobs) {
      if (job.prime) *primes += job.text + " ";
    }
  }
};

int main() {
  std::string primes;
  {
    using namespace lumen;
    ThreadPipeline<Job, Producers::kOne, Stage<Parse>, Stage<IsPrime, 2, 8>, Stage<Collect>>
        pipeline({.capacity = 64}, {}, {}, {{&primes}});
    auto producer = pipeline.producer();
    for (int i = 1; i <= 50; ++i) {
      if (producer.push(Job{std::to_string(i)}) != QueueOutcome::kOk) return 1;
    }
    pipeline.drain();  // all that was pushed has passed through all stages
  }
  std::printf("primes up to 50: %s\n", primes.c_str());
  return primes == "2 3 5 7 11 13 17 19 23 29 31 37 41 43 47 " ? 0 : 1;
}
