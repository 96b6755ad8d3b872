#include "data/make_dataset.h"

#include <doctest/doctest.h>

#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("make_dataset() returns a data set of images") {
  const TempDir dir;
  write_tiny_mnist(dir / "mnist", 25, 7);
  DatasetOptions options;
  options.name = "mnist";
  options.data_dir = dir.path().string();
  options.validation = 5;
  options.limit = 12;
  const auto dataset = make_dataset(options);
  CHECK(dataset->size() == 12);
  const DatasetInfo& info = dataset->info();
  CHECK(info.name == "mnist");
  CHECK(info.split == "train");
  CHECK(info.vocabulary == 256);
  CHECK(info.length == 23);
  CHECK(info.height == 4);
  CHECK(info.width == 6);
  CHECK(info.channels == 1);

  const Batch batch = dataset->batch(std::vector<int64_t>{11, 0, 11});
  CHECK(batch.tokens.shape() == Shape{3, 24});
  CHECK(batch.tokens.dtype() == DType::uint8);
  CHECK(!batch.mask.defined());
  CHECK(batch.labels.to_vector() == std::vector<double>{1, 0, 1});
  CHECK(batch.tokens.data<uint8_t>()[23] == (12 * 24 - 1) * 7 % 251);
  CHECK(batch.tokens.data<uint8_t>()[24 + 23] == 23 * 7 % 251);
  CHECK(dataset->batch(std::vector<int64_t>{}).tokens.shape() == Shape{0, 24});
  CHECK_THROWS_WITH_AS(dataset->batch(std::vector<int64_t>{3, 12}),
                       "Dataset::batch: index 12 is outside the 12 examples of mnist train", ArgumentError);
  CHECK_THROWS_AS(dataset->batch(std::vector<int64_t>{-1}), ArgumentError);
}

TEST_CASE("make_dataset() returns the copy task") {
  DatasetOptions options;
  options.name = "copy";
  CHECK(make_dataset(options)->size() == 640000);
  options.split = "test";
  options.max_length = 64;
  options.symbols = 5;
  const auto dataset = make_dataset(options);
  CHECK(dataset->size() == 1000);
  CHECK(dataset->info().split == "test");
  CHECK(dataset->info().vocabulary == 6);
  CHECK(dataset->info().length == 64);
  CHECK(dataset->info().height == 0);
  options.limit = 3;
  CHECK(make_dataset(options)->size() == 3);
  CHECK_THROWS_AS(make_dataset(options)->batch(std::vector<int64_t>{3}), ArgumentError);
}

TEST_CASE("make_dataset() of an unknown data set is a config error with a suggestion") {
  DatasetOptions options;
  options.name = "cifar-10";
  CHECK_THROWS_WITH_AS(make_dataset(options), "\"cifar-10\" is not a data set; did you mean \"cifar10\"?",
                       ConfigError);
}

TEST_CASE("describe_dataset() reads no files") {
  DatasetOptions options;
  options.data_dir = "/nonexistent";
  options.downscale = 2;
  for (const auto& [name, length, side, channels] :
       {std::tuple{"mnist", 14 * 14 - 1, 14, 1}, {"cifar10", 16 * 16 * 3 - 1, 16, 3}}) {
    options.name = name;
    const DatasetInfo info = describe_dataset(options);
    CHECK(info == DatasetInfo{name, "train", 256, length, side, side, channels});
  }
  options.use_grey = true;
  CHECK(describe_dataset(options) == DatasetInfo{"cifar10", "train", 256, 16 * 16 - 1, 16, 16, 1});
  options.downscale = 5;
  CHECK_THROWS_AS(describe_dataset(options), ConfigError);

  options.name = "copy";
  options.max_length = 20;
  CHECK(describe_dataset(options) == make_dataset(options)->info());
  options.name = "cop";
  CHECK(contains(message_of<ConfigError>([&] { describe_dataset(options); }), "did you mean \"copy\""));
}

TEST_CASE("describe_dataset() agrees with the data set that make_dataset() reads from files") {
  DatasetOptions options;
  options.name = "fashion-mnist";
  options.split = "test";
  options.downscale = 4;
  try {
    CHECK(make_dataset(options)->info() == describe_dataset(options));
  } catch (const DataError&) {
    MESSAGE("skipped: dataset-fashion-mnist is not installed");
  }
}
