// Functions that read image data sets as uint8 tensors. The split "valid" contains the last
// ImageOptions::validation_count examples of the training files. The split "train" contains the remaining
// examples of the training files.
//
// The functions throw DataError with the path of the file if a file is missing or corrupt. The functions
// throw ConfigError for an unknown data set or split and for invalid options.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/tensor.h"
#include "data/batches/dataset.h"

namespace tapeformer {

struct ImageOptions {
  // Directory that contains the folder of the data set. If `data_dir` is empty, the default directories are
  // searched (data/sets/directory.h).
  std::string data_dir;
  int64_t validation_count = 0;  // the split "valid" contains the last validation_count training examples
  int64_t limit = 0;             // maximum number of examples, from the start of the split; 0: all
  bool use_grey = false;         // converts RGB images to grey images, before `downscale`
  int64_t downscale = 1;         // averages blocks of downscale x downscale pixels
};

struct ImageSet {
  Tensor pixels;  // (count, height * width * channels) uint8, row by row, channels innermost
  Tensor labels;  // (count,) int64, 0 to 9
  int64_t height = 0, width = 0, channels = 0;
  std::string name, split;
};

// Reads a split of a data set.
ImageSet load_images(const std::string& name, const std::string& split, const ImageOptions& options = {});

// Returns the images as a data set. A batch has the uint8 tensor `tokens` (batch, height * width * channels)
// and the int64 tensor `labels` (batch,).
std::shared_ptr<const Dataset> make_image_dataset(ImageSet images);

// Returns the information of a data set of images. Its vocabulary are the values of a byte.
DatasetInfo make_image_info(const std::string& name, const std::string& split, int64_t height, int64_t width,
                            int64_t channels);

// Returns a summary such as "mnist: 55,000 train, 5,000 valid (the last of train), 10,000 test".
std::string describe_splits(const std::string& name, int64_t train, int64_t valid, int64_t test);

// Throws ConfigError unless `k` divides the height and the width of the images. `name` is the name of the
// data set.
void check_downscale(const std::string& name, int64_t height, int64_t width, int64_t k);

// Converts RGB images to grey images. `pixels` is a uint8 tensor with shape (count, height * width * 3).
// Returns a uint8 tensor with shape (count, height * width).
Tensor convert_images_to_grey(const Tensor& pixels);

// Replaces each block of k x k pixels by one pixel with the mean value of the block. Halves are rounded up.
// `pixels` is a uint8 tensor with shape (count, height * width * channels). Returns a uint8 tensor with shape
// (count, height / k * width / k * channels). Throws ShapeError unless `height` and `width` are multiples of
// k.
Tensor downscale_images(const Tensor& pixels, int64_t height, int64_t width, int64_t channels, int64_t k);

}  // namespace tapeformer
