#include "core/threads.h"

#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "core/errors.h"

using namespace tapeformer;

TEST_CASE("parallel_for covers every index once") {
  for (const int64_t n : {0, 1, 2, 3, 1000, 1001}) {
    std::vector<int> seen(static_cast<size_t>(n));
    parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    CHECK(seen == std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST_CASE("an exception leaves parallel_for when every range has ended") {
  std::atomic<int> ranges{0};
  CHECK_THROWS_AS(parallel_for(1000, 1,
                               [&](int64_t, int64_t) {
                                 ++ranges;
                                 throw OutOfMemory("no memory for this range");
                               }),
                  OutOfMemory);
  CHECK(ranges == (threads() > 1 ? threads() * kRangesOfThread : 1));
}
