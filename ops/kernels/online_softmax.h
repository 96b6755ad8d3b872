// The online softmax: a row of scores is processed block by block with a running maximum and a running sum of
// exp(score - maximum) (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
#pragma once

#include <cmath>
#include <limits>

#include "core/host_device.h"

namespace tapeformer {

template <class T>
struct OnlineSoftmaxUpdate {
  T maximum;  // maximum of all scores so far
  T shift;    // subtracted from the scores of the block: the maximum, or 0 if all scores are -inf
  T rescale;  // multiplier of earlier sums
};

// Returns the update for a block of scores with maximum `block_maximum`, after scores with maximum `maximum`.
template <class T>
TAPEFORMER_HOST_DEVICE OnlineSoftmaxUpdate<T> update_online_softmax(T maximum, T block_maximum) {
  const T next = maximum < block_maximum ? block_maximum : maximum;
  const T shift = next == -std::numeric_limits<T>::infinity() ? T{0} : next;
  return {next, shift, std::exp(maximum - shift)};
}

}  // namespace tapeformer
