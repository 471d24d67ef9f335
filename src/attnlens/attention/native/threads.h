// A parallel loop on the threads of XLA's pool.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace {

// Runs work(0) … work(count − 1), distributed dynamically over the pool's threads and the caller.
// The caller works too, so it never waits for a thread that has not started. A helper that starts
// after the last task finds nothing to do; its copy of the shared pointer keeps the counters alive.
template <typename Work>
void parallel_for(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  struct Counters {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable all_done;
    int64_t done = 0;
  };
  auto counters = std::make_shared<Counters>();
  // A reference to `work` is valid during every task, because the caller waits for all tasks.
  auto take = [counters, count, &work] {
    for (int64_t i; (i = counters->next.fetch_add(1)) < count;) {
      work(i);
      std::lock_guard<std::mutex> lock(counters->mutex);
      if (++counters->done == count) counters->all_done.notify_all();
    }
  };
  const int64_t helpers = std::min<int64_t>(count, pool.num_threads()) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(decltype(take)(take));
  take();
  std::unique_lock<std::mutex> lock(counters->mutex);
  counters->all_done.wait(lock, [&] { return counters->done == count; });
}

}  // namespace
