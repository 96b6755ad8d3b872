#include "data/images/images.h"

#include <doctest/doctest.h>

#include <array>

#include "tests/data/stand_ins.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kCifarRecord = 3073;

std::string cifar_name(int batch) {
  return batch > 5 ? "test_batch.bin" : "data_batch_" + std::to_string(batch) + ".bin";
}

// Writes files of zeros that have the names and sizes of the files of CIFAR-10. Then overwrites the third
// file with `contents`, starting at record `record`.
void write_sparse_cifar(const std::filesystem::path& folder, int64_t record, const Bytes& contents) {
  for (int batch = 1; batch <= 6; ++batch) {
    write_file(folder / cifar_name(batch), Bytes{});
    std::filesystem::resize_file(folder / cifar_name(batch), 10000 * kCifarRecord);
  }
  std::fstream file(folder / cifar_name(3), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(record * kCifarRecord);
  file.write(reinterpret_cast<const char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
}

ImageOptions in(const TempDir& dir) {
  ImageOptions options;
  options.data_dir = dir.path().string();
  return options;
}

uint8_t pixel(const ImageSet& set, int64_t i, int64_t position) {
  return set.pixels.data<uint8_t>()[i * set.pixels.size(1) + position];
}

// Returns the message of the DataError that loading a split throws, or "" if it does not throw.
std::string loading_error(const TempDir& dir, const std::string& name, const std::string& split = "train") {
  return message_of<DataError>([&] { load_images(name, split, in(dir)); });
}

}  // namespace

TEST_CASE("train, valid and test contain the expected examples, and limit selects the first of a split") {
  const TempDir dir;
  write_tiny_mnist(dir / "mnist", 25, 7);
  ImageOptions options = in(dir);
  CHECK(load_images("mnist", "train", options).pixels.shape() == Shape{25, 24});
  CHECK(load_images("mnist", "test", options).labels.shape() == Shape{7});

  options.validation_count = 5;
  const ImageSet train = load_images("mnist", "train", options);
  const ImageSet valid = load_images("mnist", "valid", options);
  CHECK(train.pixels.shape() == Shape{20, 24});
  CHECK(valid.pixels.shape() == Shape{5, 24});
  CHECK(valid.labels.data<int64_t>()[0] == 0);  // the label of example 20 of the file is 20 % 10
  CHECK(valid.labels.data<int64_t>()[4] == 4);
  CHECK(pixel(valid, 2, 23) == (22 * 24 + 23) * 7 % 251);
  CHECK(valid.height == 4);
  CHECK(valid.width == 6);
  CHECK(valid.channels == 1);
  CHECK(valid.split == "valid");

  options.limit = 3;
  const ImageSet few = load_images("mnist", "valid", options);
  CHECK(few.pixels.shape() == Shape{3, 24});
  CHECK(pixel(few, 0, 0) == 20 * 24 * 7 % 251);
  options.limit = 1000;
  CHECK(load_images("mnist", "valid", options).pixels.shape() == Shape{5, 24});
}

TEST_CASE("the summary of the splits contains the held-out examples") {
  CHECK(describe_splits("mnist", 55000, 5000, 10000) ==
        "mnist: 55,000 train, 5,000 valid (the last of train), 10,000 test");
  CHECK(describe_splits("tiny", 999, 0, 1000000) == "tiny: 999 train, 1,000,000 test");
}

TEST_CASE("invalid options for a data set are config errors") {
  const TempDir dir;
  write_tiny_mnist(dir / "mnist", 25, 7);
  const auto error = [&](const std::string& split, int64_t validation, int64_t downscale) {
    ImageOptions options = in(dir);
    options.validation_count = validation;
    options.downscale = downscale;
    return message_of<ConfigError>([&] { load_images("mnist", split, options); });
  };
  CHECK(contains(error("valid", 0, 1), "mnist: no validation split"));
  CHECK(contains(error("train", 25, 1),
                 "ImageOptions::validation_count: expected fewer than the 25 training examples, got 25"));
  CHECK(contains(error("tset", 0, 1), "did you mean \"test\"?"));
  CHECK(contains(error("train", 0, 4), "images of 4 x 6 cannot be averaged over blocks of 4 x 4"));
  CHECK(contains(error("train", 0, 0), "blocks of 0 x 0"));
  CHECK(error("train", 24, 2).empty());
}

TEST_CASE("grey images have the luma of ITU-R BT.601") {
  // The grey value of red is 0.299 * 255 = 76.2, of green 0.587 * 255 = 149.7, and of blue 0.114 * 255
  // = 29.1.
  const Tensor pixels = Tensor::from_vector<uint8_t>(
      {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 20, 30, 0, 0, 0}, {2, 9});
  const Tensor grey = convert_images_to_grey(pixels);
  CHECK(grey.shape() == Shape{2, 3});
  CHECK(grey.to_vector() == std::vector<double>{76, 150, 29, 255, 18, 0});
  CHECK_THROWS_AS(convert_images_to_grey(Tensor::zeros({2, 4}, DType::uint8)), ShapeError);
}

TEST_CASE("averages of blocks are computed per channel and round halves up") {
  // One image of 2 x 4 pixels with two channels. The sums of its two blocks of 2 x 2 pixels are 2 and 6 in
  // channel 0, and 1020 and 1 in channel 1.
  const Tensor pixels =
      Tensor::from_vector<uint8_t>({0, 255, 1, 255, 5, 0, 1, 0, 1, 255, 0, 255, 0, 1, 0, 0}, {1, 16});
  const Tensor out = downscale_images(pixels, 2, 4, 2, 2);
  CHECK(out.to_vector() == std::vector<double>{1, 255, 2, 0});
  // In blocks of 3 x 3 pixels, 4 / 9 is rounded down, and 5 / 9 is rounded up.
  CHECK(downscale_images(Tensor::from_vector<uint8_t>({4, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 9}), 3, 3, 1, 3)
            .item() == 0);
  CHECK(downscale_images(Tensor::from_vector<uint8_t>({5, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 9}), 3, 3, 1, 3)
            .item() == 1);
}

TEST_CASE("mismatched IDX files are errors with the file and the expected contents") {
  const TempDir dir;
  const auto folder = dir / "mnist";
  write_tiny_mnist(folder, 25, 7);
  const auto labels = folder / "train-labels-idx1-ubyte";

  write_file(labels, idx_bytes(0x801, {24}, 24));
  CHECK(loading_error(dir, "mnist") ==
        labels.string() + ": 24 labels, expected 25, the images of train-images-idx3-ubyte.gz");

  Bytes wrong = idx_bytes(0x801, {25}, 0);
  wrong.resize(wrong.size() + 25, 0);
  wrong[8 + 3] = 10;
  write_file(labels, wrong);
  CHECK(loading_error(dir, "mnist") == labels.string() + ": label 10 of example 3, expected 0 to 9");

  std::filesystem::remove(labels);
  CHECK(loading_error(dir, "mnist") ==
        labels.string() + ": no such file, neither plain nor as train-labels-idx1-ubyte.gz");

  write_tiny_mnist(folder, 25, 7);
  write_file(folder / "t10k-images-idx3-ubyte.gz", idx_bytes(0x803, {7, 4, 5}, 140));
  CHECK(contains(loading_error(dir, "mnist"), "t10k-images-idx3-ubyte.gz: images of 4 x 5, expected 4 x 6"));
}

TEST_CASE("truncated, corrupt and empty image files are data errors with the path") {
  const TempDir dir;
  const auto images = dir / "mnist" / "train-images-idx3-ubyte.gz";
  write_tiny_mnist(dir / "mnist", 25, 7);
  const std::string whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 20));
  CHECK(contains(loading_error(dir, "mnist"), images.string() + ": the gzip data ends early"));
  write_file(images, idx_bytes(0x803, {25, 4, 6}, 599));
  CHECK(contains(loading_error(dir, "mnist"),
                 images.string() + ": the header contains the sizes (25, 4, 6), expected 600"));
  write_file(images, idx_bytes(0x802, {25, 4, 6}, 600));
  CHECK(contains(loading_error(dir, "mnist"), images.string() + ": expected the IDX magic number"));
  write_tiny_mnist(dir / "mnist", 0, 0);
  CHECK(contains(loading_error(dir, "mnist"), "mnist has no train examples"));
}

TEST_CASE("the colour planes of CIFAR-10 are interleaved by pixel, in all batch files") {
  const TempDir dir;
  Bytes record(kCifarRecord);
  record[0] = 9;
  for (size_t i = 1; i < record.size(); ++i) record[i] = static_cast<uint8_t>(i % 253);
  write_sparse_cifar(dir / "cifar10", 17, record);
  ImageOptions options = in(dir);
  options.validation_count = 29983;  // valid begins with example 20,017 of 50,000
  options.limit = 2;
  const ImageSet set = load_images("cifar10", "valid", options);
  CHECK(set.pixels.shape() == Shape{2, 3072});
  CHECK(set.channels == 3);
  CHECK(set.labels.to_vector() == std::vector<double>{9, 0});
  for (const int64_t position : {0, 1, 31, 32, 1023})
    for (int64_t channel = 0; channel < 3; ++channel)
      CHECK(pixel(set, 0, 3 * position + channel) == (1 + channel * 1024 + position) % 253);

  options = in(dir);
  options.limit = 20018;  // the first two files and 18 examples of the third file
  const ImageSet train = load_images("cifar10", "train", options);
  CHECK(train.labels.data<int64_t>()[20016] == 0);
  CHECK(train.labels.data<int64_t>()[20017] == 9);
  CHECK(pixel(train, 20017, 3071) == 3072 % 253);
}

TEST_CASE("CIFAR-10 files with a wrong size or invalid labels are data errors") {
  const TempDir dir;
  write_sparse_cifar(dir / "cifar10", 4, Bytes{10});
  CHECK(loading_error(dir, "cifar10") ==
        (dir / "cifar10/data_batch_3.bin").string() + ": label 10 of example 4, expected 0 to 9");
  // The file ends after a complete record, so only its number of records is wrong.
  std::filesystem::resize_file(dir / "cifar10/test_batch.bin", 9999 * kCifarRecord);
  CHECK(loading_error(dir, "cifar10", "test") ==
        (dir / "cifar10/test_batch.bin").string() +
            ": expected 30730000 bytes (10000 records of 3073), found 30726927");
  std::filesystem::resize_file(dir / "cifar10/test_batch.bin", 10001 * kCifarRecord);
  CHECK(contains(loading_error(dir, "cifar10", "test"), "test_batch.bin: expected at most 30730000"));
}

TEST_CASE("Fashion-MNIST of the Debian package is loaded") {
  if (!have_fashion_mnist()) return;
  const TempDir empty;
  ImageOptions options = in(empty);
  options.downscale = 2;
  const ImageSet test = load_images("fashion-mnist", "test", options);
  CHECK(test.pixels.shape() == Shape{10000, 196});
  CHECK(test.height == 14);
  std::array<int64_t, 10> count{};
  for (int64_t i = 0; i < 10000; ++i) ++count[static_cast<size_t>(test.labels.data<int64_t>()[i])];
  for (const int64_t of_class : count) CHECK(of_class == 1000);
}

namespace {

void check_mnist(const ImageOptions& given) {
  ImageOptions options = given;
  options.validation_count = 5000;
  const ImageSet train = load_images("mnist", "train", options);
  CHECK(train.pixels.shape() == Shape{55000, 784});
  CHECK(train.labels.data<int64_t>()[0] == 5);
  CHECK(load_images("mnist", "valid", options).pixels.shape() == Shape{5000, 784});
  CHECK(load_images("mnist", "test", options).labels.data<int64_t>()[0] == 7);
}

void check_cifar10(const ImageOptions& options) {
  const ImageSet train = load_images("cifar10", "train", options);
  CHECK(train.pixels.shape() == Shape{50000, 3072});
  std::array<int64_t, 10> count{};
  for (int64_t i = 0; i < 50000; ++i) ++count[static_cast<size_t>(train.labels.data<int64_t>()[i])];
  for (const int64_t of_class : count) CHECK(of_class == 5000);
  // The first pixel of the first image is (59, 62, 63).
  CHECK(train.labels.data<int64_t>()[0] == 6);
  CHECK(pixel(train, 0, 0) == 59);
  CHECK(pixel(train, 0, 1) == 62);
  CHECK(pixel(train, 0, 2) == 63);
}

}  // namespace

TEST_CASE("generated MNIST and CIFAR-10 of full size are loaded") {
  const TempDir dir;
  write_stand_in_mnist(dir / "mnist");
  write_stand_in_cifar10(dir / "cifar10");
  check_mnist(in(dir));
  check_cifar10(in(dir));
}

TEST_CASE("the real MNIST is loaded") {
  if (!have_real("mnist")) {
    MESSAGE("skipped: no mnist in $TAPEFORMER_DATA");
    return;
  }
  check_mnist({});
}

TEST_CASE("the real CIFAR-10 is loaded") {
  if (!have_real("cifar10")) {
    MESSAGE("skipped: no cifar10 in $TAPEFORMER_DATA");
    return;
  }
  check_cifar10({});
}
