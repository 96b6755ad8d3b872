#include "data/batches/loader.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <set>

#include "data/batches/prefetch.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// A data set in which example i consists of the token i. The example `bad` causes a DataError.
class Counting : public Dataset {
 public:
  explicit Counting(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {
    info_.name = "counting";
    info_.split = "train";
  }
  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  Batch batch(std::span<const int64_t> indices) const override {
    ++batches;
    for (const int64_t index : indices)
      if (index == bad_) throw DataError("example " + std::to_string(index) + " is bad");
    Batch batch;
    batch.tokens = Tensor::from_vector(std::vector<int64_t>(indices.begin(), indices.end()),
                                       {int64_t(indices.size()), 1});
    return batch;
  }
  mutable std::atomic<int> batches{0};

 private:
  DatasetInfo info_;
  int64_t size_, bad_;
};

Loader counting_loader(int64_t size, const LoaderOptions& options) {
  return Loader(std::make_shared<Counting>(size), options);
}

std::vector<int64_t> epoch_of(const Loader& loader, int64_t epoch) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i)
    for (const int64_t index : loader.indices_at(epoch * loader.batches_per_epoch() + i))
      all.push_back(index);
  return all;
}

}  // namespace

TEST_CASE("LastBatch::drop leaves out a smaller last batch of an epoch, and LastBatch::keep returns it") {
  const Loader drop = counting_loader(10, {.batch_size = 4, .shuffle = false});
  CHECK(drop.batches_per_epoch() == 2);
  CHECK(drop.indices_at(1) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(drop.indices_at(2) == std::vector<int64_t>{0, 1, 2, 3});
  const Loader keep =
      counting_loader(10, {.batch_size = 4, .shuffle = false, .last_batch = LastBatchPolicy::keep});
  CHECK(keep.batches_per_epoch() == 3);
  CHECK(keep.indices_at(2) == std::vector<int64_t>{8, 9});
  CHECK(keep.indices_at(3) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(keep.batch_at(2).tokens.to_vector() == std::vector<double>{8, 9});
  // If the size is a multiple of the batch size, both values of LastBatchPolicy give the same batches.
  CHECK(counting_loader(8, {.batch_size = 4}).batches_per_epoch() == 2);
  CHECK(counting_loader(8, {.batch_size = 4, .last_batch = LastBatchPolicy::keep}).batches_per_epoch() == 2);
}

TEST_CASE("a shuffled epoch visits every example once, in another order in every epoch") {
  const Loader loader =
      counting_loader(100, {.batch_size = 7, .seed = 3, .last_batch = LastBatchPolicy::keep});
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<int64_t> order = epoch_of(loader, epoch);
    CHECK(order.size() == 100);
    CHECK(std::set<int64_t>(order.begin(), order.end()).size() == 100);
    orders.insert(order);
  }
  orders.insert(
      epoch_of(counting_loader(100, {.batch_size = 7, .seed = 4, .last_batch = LastBatchPolicy::keep}), 0));
  CHECK(orders.size() == 21);
}

TEST_CASE("every permutation is equally likely") {
  std::map<std::vector<int64_t>, int> count;
  for (int64_t epoch = 0; epoch < 24000; ++epoch) ++count[make_epoch_permutation(1, epoch, 4)];
  CHECK(count.size() == 24);
  for (const auto& [order, times] : count)
    CHECK(std::abs(times - 1000) < 160);  // 160 is about 5 standard deviations
}

TEST_CASE("a batch depends on its step only, not on earlier calls") {
  const LoaderOptions options{.batch_size = 6, .seed = 9};
  const Loader straight = counting_loader(50, options);
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 40; ++step) expected.push_back(straight.indices_at(step));
  const Loader resumed = counting_loader(50, options);
  for (const int64_t step : {39, 17, 38, 0, 16, 39})
    CHECK(resumed.indices_at(step) == expected[size_t(step)]);
}

TEST_CASE("threads that share a loader get the expected batches") {
  const Loader loader = counting_loader(50, {.batch_size = 6, .seed = 9});
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 400; ++step) expected.push_back(loader.indices_at(step));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int id = 0; id < 4; ++id)
      threads.emplace_back([&, id] {
        for (int64_t i = 0; i < 400; ++i) {
          const int64_t step = (i * (2 * id + 1)) % 400;
          wrong += loader.indices_at(step) != expected[static_cast<size_t>(step)];
        }
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE("loaders accept batches of one example and data sets of one batch, and refuse other small sizes") {
  const Loader one = counting_loader(3, {.batch_size = 1, .shuffle = false});
  CHECK(one.batches_per_epoch() == 3);
  CHECK(one.batch_at(5).tokens.to_vector() == std::vector<double>{2});
  CHECK(counting_loader(1, {.batch_size = 1}).indices_at(7) == std::vector<int64_t>{0});
  CHECK(counting_loader(4, {.batch_size = 4}).batches_per_epoch() == 1);
  CHECK(counting_loader(3, {.batch_size = 4, .last_batch = LastBatchPolicy::keep}).indices_at(0).size() == 3);

  const auto error = [](int64_t size, int64_t batch, LastBatchPolicy last) {
    return message_of<ConfigError>([&] { counting_loader(size, {.batch_size = batch, .last_batch = last}); });
  };
  CHECK(error(3, 4, LastBatchPolicy::drop) ==
        "LoaderOptions::batch_size: expected at most the 3 examples of counting train, got 4");
  CHECK(error(3, 0, LastBatchPolicy::keep) == "LoaderOptions::batch_size: expected at least 1, got 0");
  CHECK(error(0, 1, LastBatchPolicy::keep) == "counting train has no examples");
}

TEST_CASE("a prefetch queue returns the items from any first step to the last step") {
  const auto loader =
      std::make_shared<Loader>(std::make_shared<Counting>(50), LoaderOptions{.batch_size = 6, .seed = 2});
  for (const size_t depth : {0, 1, 3}) {
    PrefetchQueue<Batch> queue([&](int64_t step) { return loader->batch_at(step); }, 5, depth);
    for (int64_t step = 5; step < 25; ++step)
      CHECK(queue.next().tokens.to_vector() == loader->batch_at(step).tokens.to_vector());
    CHECK(queue.next_step() == 25);
  }
}

TEST_CASE("a prefetch queue keeps at most `depth` items and stops when it is destroyed") {
  const auto dataset = std::make_shared<Counting>(50);
  const auto loader = std::make_shared<Loader>(dataset, LoaderOptions{.batch_size = 5});
  {
    PrefetchQueue<Batch> queue([&](int64_t step) { return loader->batch_at(step); }, 0, 3);
    for (int i = 0; i < 10; ++i) queue.next();
    while (dataset->batches < 13) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(dataset->batches == 13);
  }
  // A queue that prepares an unlimited number of items can be destroyed before next() is called.
  for (int i = 0; i < 200; ++i)
    PrefetchQueue<Batch> queue([loader](int64_t step) { return loader->batch_at(step); });
  CHECK(loader.use_count() == 1);
}

TEST_CASE("an exception of the thread is thrown after the complete batches") {
  const auto loader = std::make_shared<Loader>(std::make_shared<Counting>(50, 13),
                                               LoaderOptions{.batch_size = 5, .shuffle = false});
  PrefetchQueue<Batch> queue([&](int64_t step) { return loader->batch_at(step); });
  CHECK(queue.next().tokens.to_vector()[0] == 0);
  CHECK(queue.next().tokens.to_vector()[0] == 5);
  CHECK_THROWS_WITH_AS(queue.next(), "example 13 is bad", DataError);
  CHECK_THROWS_WITH_AS(queue.next(), "example 13 is bad", DataError);
}

TEST_CASE("batches of streams continue the examples of the previous batch, equally in each epoch") {
  const auto dataset = std::make_shared<Counting>(11);
  const Loader loader(dataset, {.batch_size = 3, .shuffle = true, .seed = 1, .use_streams = true});
  CHECK(loader.batches_per_epoch() == 3);
  using Indices = std::vector<int64_t>;
  CHECK(loader.indices_at(0) == Indices{0, 4, 8});
  CHECK(loader.indices_at(2) == Indices{2, 6, 10});
  CHECK(loader.indices_at(3) == loader.indices_at(0));
  // If the last batch is kept, each example is in exactly one batch.
  const Loader all(dataset, {.batch_size = 3,
                             .shuffle = false,
                             .seed = 1,
                             .last_batch = LastBatchPolicy::keep,
                             .use_streams = true});
  CHECK(all.batches_per_epoch() == 4);
  CHECK(all.indices_at(3) == Indices{3, 7});
  CHECK(compute_stream_indices(2, 5, 0) == Indices{0, 1});
}

namespace {

// A data set like Counting whose examples have different lengths.
class Lengths final : public Counting {
 public:
  explicit Lengths(std::vector<int64_t> lengths)
      : Counting(static_cast<int64_t>(lengths.size())), lengths_(std::move(lengths)) {}
  std::vector<int64_t> lengths() const override { return lengths_; }

 private:
  std::vector<int64_t> lengths_;
};

std::shared_ptr<const Dataset> make_lengths(int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(2 + i * 31 % 23);
  return std::make_shared<Lengths>(lengths);
}

}  // namespace

TEST_CASE("batches of tokens have a limited size, and every epoch has each example once") {
  const auto set = make_lengths(97);
  const std::vector<int64_t> lengths = set->lengths();
  for (const int64_t batch_size : {0, 3}) {
    const Loader loader(set, {.batch_size = batch_size, .seed = 2, .batch_tokens = 100});
    int64_t step = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const auto end = static_cast<int64_t>(loader.count_batches(static_cast<double>(epoch + 1)));
      std::multiset<int64_t> seen;
      for (; step < end; ++step) {
        CHECK(loader.count_complete_epochs(step) == epoch);
        const std::vector<int64_t> indices = loader.indices_at(step);
        int64_t longest = 0;
        for (const int64_t i : indices) longest = std::max(longest, lengths[static_cast<size_t>(i)]);
        CHECK(longest * static_cast<int64_t>(indices.size()) <= 100);
        if (batch_size > 0) CHECK(static_cast<int64_t>(indices.size()) <= batch_size);
        seen.insert(indices.begin(), indices.end());
      }
      CHECK(seen.size() == 97);
      CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == 97);
    }
  }
}

TEST_CASE("a batch of tokens depends on its step only, also in several threads") {
  const LoaderOptions options{.batch_size = 0, .seed = 5, .batch_tokens = 60};
  const Loader straight(make_lengths(80), options), resumed(make_lengths(80), options);
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 120; ++step) expected.push_back(straight.indices_at(step));
  CHECK(straight.count_complete_epochs(119) >= 3);
  CHECK(resumed.indices_at(117) == expected[117]);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int id = 0; id < 4; ++id)
      threads.emplace_back([&, id] {
        for (int64_t i = 0; i < 120; ++i) {
          const int64_t step = i * (2 * id + 1) % 120;
          wrong += resumed.indices_at(step) != expected[static_cast<size_t>(step)];
        }
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE("batches of tokens without shuffling are sorted by length, and a longer example stands alone") {
  const auto set = std::make_shared<Lengths>(std::vector<int64_t>{4, 30, 2, 3});
  const Loader loader(set, {.batch_size = 0, .shuffle = false, .batch_tokens = 12});
  CHECK(loader.count_batches(1) == 2);
  CHECK(loader.indices_at(0) == std::vector<int64_t>{2, 3, 0});
  CHECK(loader.indices_at(1) == std::vector<int64_t>{1});
  CHECK(loader.indices_at(2) == loader.indices_at(0));
  CHECK(loader.count_batches(1.5) == 3);
  CHECK_THROWS_AS(loader.batches_per_epoch(), ShapeError);
  // Without lengths, all examples are equally long.
  const Loader equal = counting_loader(10, {.batch_size = 0, .shuffle = false, .batch_tokens = 4});
  CHECK(equal.indices_at(1) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(message_of<ConfigError>([&] { Loader(set, {.batch_size = -1, .batch_tokens = 4}); }) ==
        "LoaderOptions::batch_size: expected at least 0, got -1");
}
