#include "core/threads/threads.h"

#include <doctest/doctest.h>

#include <omp.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/base/errors.h"
#include "core/threads/openmp_loops.h"
#include "core/threads/wait_policy.h"

using namespace tapeformer;

namespace {

// Sets the number of threads to `count` during the lifetime of the object.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count) : previous_(get_thread_count()) { set_thread_count(count); }
  ~ThreadCountScope() { set_thread_count(previous_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int previous_;
};

}  // namespace

TEST_CASE("parallel_for() covers every index once") {
  for (const int64_t n : {0, 1, 2, 3, 1000, 1001}) {
    std::vector<int> seen(static_cast<size_t>(n));
    parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    CHECK(seen == std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST_CASE("parallel_for() rethrows an exception after every range has ended") {
  std::atomic<int> ranges{0};
  CHECK_THROWS_AS(parallel_for(1000, 1,
                               [&](int64_t, int64_t) {
                                 ++ranges;
                                 throw OutOfMemoryError("no memory for this range");
                               }),
                  OutOfMemoryError);
  CHECK(ranges == (get_thread_count() > 1 ? get_thread_count() * kMaxRangesPerThread : 1));
}

TEST_CASE("threads of a loop have different numbers below the number of threads") {
  for (const int team : {2, 3, 5}) {
    const ThreadCountScope scope(team);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::vector<std::atomic<int>> inside(static_cast<size_t>(team));
      std::atomic<int> clashes{0};
      parallel_for(40, 1, [&](int64_t, int64_t) {
        REQUIRE(get_thread_index() >= 0);
        REQUIRE(get_thread_index() < team);
        auto& count = inside[static_cast<size_t>(get_thread_index())];
        if (++count != 1) ++clashes;
        --count;
      });
      CHECK(clashes == 0);
      CHECK(get_thread_index() == 0);
    }
  }
}

TEST_CASE("workers take ranges of a loop whose caller is busy") {
  const ThreadCountScope scope(2);
  std::atomic<int> done{0};
  std::set<std::thread::id> callers;
  std::mutex mutex;
  parallel_for(2, 1, [&](int64_t, int64_t) {
    {
      const std::lock_guard lock(mutex);
      callers.insert(std::this_thread::get_id());
    }
    ++done;
    // Each range waits at most 20 seconds until the other range has started.
    for (int i = 0; i < 2000 && done < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  CHECK(callers.size() == 2);
}

TEST_CASE("loops of two callers at once and nested loops cover every index") {
  const ThreadCountScope scope(3);
  const auto sum = [] {
    std::atomic<int64_t> total{0};
    for (int repeat = 0; repeat < 100; ++repeat)
      parallel_for(10, 1, [&](int64_t begin, int64_t end) {
        parallel_for(end - begin, 1, [&](int64_t first, int64_t last) { total += last - first; });
      });
    return total.load();
  };
  int64_t second_sum = 0;
  std::thread thread([&] { second_sum = sum(); });
  const int64_t first_sum = sum();
  thread.join();
  CHECK(first_sum == 1000);
  CHECK(second_sum == 1000);
}

TEST_CASE("loops can run on the threads of OpenMP") {
  const ThreadCountScope scope(2);
  CHECK(!set_loops_use_openmp(true));
  std::atomic<int64_t> covered{0};
  std::atomic<int> others{0};
  parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
    if (omp_get_num_threads() != 2 || omp_get_thread_num() != get_thread_index()) ++others;
    parallel_for(end - begin, 1, [&](int64_t first, int64_t last) { covered += last - first; });
  });
  CHECK(covered == 1000);
  CHECK(others == 0);
  CHECK(get_thread_index() == 0);
  CHECK_THROWS_AS(parallel_for(8, 1, [](int64_t, int64_t) { throw OutOfMemoryError("no memory"); }),
                  OutOfMemoryError);
  CHECK(set_loops_use_openmp(false));
}

TEST_CASE("regions of OpenMP have one thread inside a loop") {
  const ThreadCountScope scope(2);
  const auto team_of_region = [] {
    std::atomic<int> count{0};
#pragma omp parallel num_threads(2)
    ++count;
    return count.load();
  };
  std::atomic<int> larger{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    if (team_of_region() > 1 || omp_get_max_threads() > 1) ++larger;
  });
  CHECK(larger == 0);
  CHECK(omp_get_max_threads() == 2);
#ifdef _OPENMP  // with clang, only libraries open regions
  CHECK(team_of_region() == 2);
#endif
}

TEST_CASE("case and white space of OMP_WAIT_POLICY are ignored") {
  for (const char* policy : {"passive", "PASSIVE", "Passive", " passive\t"})
    CHECK(is_passive_wait_policy(policy));
  for (const char* policy : {"", " ", "active", "Active", "passive,active", "pas sive"})
    CHECK_FALSE(is_passive_wait_policy(policy));
}
