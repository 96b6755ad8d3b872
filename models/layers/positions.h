// Fixed position features.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Size of one image as a sequence of bytes: row by row, channels of a pixel next to each other.
struct ImageLayout {
  int64_t height = 0, width = 0, channels = 0;
  int64_t length() const { return height * width * channels; }
};

// (length, dim) float64: sin(p / 10000^(2i/dim)) at 2i and its cosine at 2i + 1 (Vaswani et al. 2017,
// section 3.5).
Tensor sinusoidal_positions(int64_t length, int64_t dim);
// One row of it, for a position of any table: writes `dim` numbers.
void write_sinusoids(int64_t position, int64_t dim, double* row);

// (length, dim) float64 for the first `length` bytes of an image: sinusoids of the row, of the column and,
// for colour, of the channel of the byte that is predicted next, each in its share of the features.
// Wavelengths run from 2π to 2π · 100 pixels.
Tensor grid_positions(const ImageLayout& layout, int64_t length, int64_t dim);

}  // namespace tapeformer
