// Position features that are not trained.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// The size of an image that is stored as a sequence of bytes, ordered by row, column and channel.
struct ImageLayout {
  int64_t height = 0, width = 0, channels = 0;
  int64_t length() const { return height * width * channels; }
};

// Returns the sinusoidal position embeddings of positions 0 … length - 1, (length, dim) float64 (Vaswani et
// al. 2017, section 3.5). In the row of position p, element 2i is sin(p / 10000^(2i/dim)), and element 2i + 1
// is the cosine of the same angle.
Tensor make_sinusoidal_position_features(int64_t length, int64_t dim);
// Writes the sinusoidal embedding of `position` to `row`, an array of `dim` elements.
void write_sinusoids(int64_t position, int64_t dim, double* row);

// Returns position features for an autoregressive model of images, (length, dim) float64. The bytes of an
// image are numbered from 0. The model predicts byte p + 1 at position p, so row p of the result describes
// byte p + 1. Row p contains sinusoids of the image row, of the image column and, for colour images, of the
// channel of byte p + 1. Each coordinate has about the same number of features. The wavelengths range from 2π
// to about 2π · 100.
Tensor make_grid_position_features(const ImageLayout& layout, int64_t length, int64_t dim);

}  // namespace tapeformer
