#include "data/dataset_kind.h"

#include <doctest/doctest.h>

#include <map>

#include "core/base/errors.h"
#include "tests/data/generated/generated.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

DatasetInfo get_info(const std::string& name, const OptionValues& changed) {
  const DatasetKind& kind = find_dataset_kind(name);
  return kind.get_info(complete_options(kind.options, changed), {.data_dir = "/nonexistent"});
}

}  // namespace

TEST_CASE("a data set of images has tokens and labels") {
  const TempDir dir;
  write_tiny_mnist(dir / "mnist", 25, 7);
  const auto dataset =
      make_set("mnist", integers({{"validation", 5}}), {.data_dir = dir.path().string(), .limit = 12});
  CHECK(dataset->size() == 12);
  CHECK(dataset->info() == DatasetInfo{"mnist", "train", 256, 23, 4, 6, 1});

  const Batch batch = dataset->batch(std::vector<int64_t>{11, 0, 11});
  CHECK(batch.tokens.shape() == Shape{3, 24});
  CHECK(batch.tokens.dtype() == DType::uint8);
  CHECK(!batch.mask.defined());
  CHECK(batch.labels.to_vector() == std::vector<double>{1, 0, 1});
  CHECK(batch.tokens.data<uint8_t>()[23] == (12 * 24 - 1) * 7 % 251);
  CHECK(batch.tokens.data<uint8_t>()[24 + 23] == 23 * 7 % 251);
  CHECK(dataset->batch(std::vector<int64_t>{}).tokens.shape() == Shape{0, 24});
  CHECK_THROWS_WITH_AS(dataset->batch(std::vector<int64_t>{3, 12}),
                       "Dataset::batch: index 12 is outside the 12 examples of mnist train", ShapeError);
  CHECK_THROWS_AS(dataset->batch(std::vector<int64_t>{-1}), ShapeError);
}

TEST_CASE("the limit is the number of generated examples, and 0 is the number of the set") {
  CHECK(make_set("copy")->size() == 640000);
  const OptionValues options = integers({{"max_length", 64}, {"symbols", 5}});
  const auto dataset = make_set("copy", options, {.split = "test"});
  CHECK(dataset->size() == 1000);
  CHECK(dataset->info() ==
        DatasetInfo{
            .name = "copy", .split = "test", .vocabulary = 6, .length = 64, .longest_split_length = 64});
  const auto limited = make_set("copy", options, {.split = "test", .limit = 3});
  CHECK(limited->size() == 3);
  CHECK_THROWS_AS(limited->batch(std::vector<int64_t>{3}), ShapeError);
}

TEST_CASE("an unknown data set is a config error with a suggestion") {
  CHECK(
      contains(message_of<ConfigError>([] { find_dataset_kind("cifar-10"); }), "did you mean \"cifar10\"?"));
}

TEST_CASE("the information of a data set needs no files") {
  const OptionValues halved = integers({{"downscale", 2}});
  for (const auto& [name, length, side, channels] :
       {std::tuple{"mnist", 14 * 14 - 1, 14, 1}, {"cifar10", 16 * 16 * 3 - 1, 16, 3}})
    CHECK(get_info(name, halved) == DatasetInfo{name, "train", 256, length, side, side, channels});
  OptionValues grey = halved;
  grey.set("color", std::string("gray"));
  CHECK(get_info("cifar10", grey) == DatasetInfo{"cifar10", "train", 256, 16 * 16 - 1, 16, 16, 1});
  CHECK(problems_of("cifar10", integers({{"downscale", 7}})) ==
        "downscale: 7 does not divide images of 32 x 32\n");
  CHECK(get_info("copy", {}) == make_set("copy")->info());
}

TEST_CASE("the information of a data set agrees with its files") {
  const OptionValues options = integers({{"downscale", 4}});
  try {
    CHECK(make_set("fashion-mnist", options)->info() == get_info("fashion-mnist", options));
  } catch (const DataError&) {
    MESSAGE("skipped: dataset-fashion-mnist is not installed");
  }
}
