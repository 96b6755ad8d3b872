// Image sets as bytes: "mnist", "fashion-mnist", "cifar10". Splits: "test" is the set's own; "valid" is the
// last `validation` training examples, which "train" then leaves out. Every loading says the split sizes in
// the log. Returned tensors belong to the caller. Decoding uses the pool of threads, so call from the main
// thread.
//
// Errors: DataError for files that are missing or corrupt (it names the file and what was expected);
// ConfigError for an unknown set or split and for options that do not fit the set.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace tapeformer {

struct ImageOptions {
  std::string data_dir;    // see data/directory.h
  int64_t validation = 0;  // training examples held out, from the end
  int64_t limit = 0;       // the first so many of the split; 0: all
  int64_t downscale = 1;   // averages blocks of k x k pixels, rounding half up
};

struct ImageSet {
  Tensor pixels;  // (count, height * width * channels) uint8: row by row, r g b of a pixel together
  Tensor labels;  // (count,) int64, 0 to 9
  int64_t height = 0, width = 0, channels = 0;
  std::string name, split;
};

ImageSet load_images(const std::string& name, const std::string& split, const ImageOptions& options = {});

// "mnist: 55,000 train, 5,000 valid (the last of train), 10,000 test".
std::string split_summary(const std::string& name, int64_t train, int64_t valid, int64_t test);

// Throws ConfigError unless blocks of k x k tile an image of the set.
void check_downscale(const std::string& name, int64_t height, int64_t width, int64_t k);

// The average of k x k blocks of each channel, halves rounded up. `pixels` (count, height * width * channels)
// uint8; height and width are multiples of k.
Tensor downscale_images(const Tensor& pixels, int64_t height, int64_t width, int64_t channels, int64_t k);

}  // namespace tapeformer
