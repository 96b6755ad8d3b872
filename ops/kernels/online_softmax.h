// Update rule of the online softmax (Milakov and Gimelshein 2018, "Online normalizer calculation for
// softmax"). A row of scores is processed block by block, with a running maximum and a running sum of
// exp(score - maximum).
#pragma once

#include <cmath>
#include <limits>

#include "core/base/host_device.h"

namespace tapeformer {

// The update of the running maximum and the running sum for the next block of scores:
//   sum = rescale_factor * sum + (sum of exp(score - shift) over the block)
template <class T>
struct OnlineSoftmaxUpdate {
  T maximum;         // maximum of the scores of this block and of all earlier blocks
  T shift;           // `maximum`, or 0 if all of these scores are -inf
  T rescale_factor;  // multiplier of the sums of earlier blocks
};

// Returns the update for a block of scores. `maximum` is the maximum of the earlier blocks, and block_maximum
// is the maximum of the block.
template <class T>
TAPEFORMER_HOST_DEVICE OnlineSoftmaxUpdate<T> update_online_softmax(T maximum, T block_maximum) {
  const T new_maximum = maximum < block_maximum ? block_maximum : maximum;
  const T shift = new_maximum == -std::numeric_limits<T>::infinity() ? T{0} : new_maximum;
  return {new_maximum, shift, std::exp(maximum - shift)};
}

}  // namespace tapeformer
