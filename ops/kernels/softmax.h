// Kernels of the softmax and the cross entropy over the rows of a (rows, classes) array.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

struct CrossEntropyOptions {
  // Weight of the uniform distribution in the target distribution (Szegedy et al. 2016), in [0, 1).
  double label_smoothing = 0;
  double z_loss = 0;  // coefficient of the squared log-sum-exp (Chowdhery et al. 2022, "PaLM")
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes lse (rows,), the log-sum-exp of each row.
    template <class T> void row_logsumexp(Backend, const T* x, T* lse, int64_t rows, int64_t classes);
    // Computes y = exp(x - max) / sum. Rows in which all elements are -inf become 0.
    template <class T> void row_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes);
    // Computes gx = y (g - sum(g y)).
    template <class T>
    void row_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes);
    // Computes y = x - logsumexp(x) for each row x.
    template <class T> void row_log_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes);
    // Computes gx = g - exp(y) sum(g) for each row, where y is the log-softmax and g is the gradient of y.
    template <class T>
    void row_log_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes);
    // Computes losses (rows,), the cross entropy of each row with its target (rows,), and lse (rows,), the
    // log-sum-exp of each row. If a target is out of range, which can occur only on CUDA, the loss and its
    // gradient are NaN.
    template <class T>
    void cross_entropy_forward(Backend, const CrossEntropyOptions& options, const T* x,
                               const int64_t* targets, T* lse, T* losses, int64_t rows, int64_t classes);
    // Computes gx, the gradient of the sum of losses[row] * scale[row]. If scale[row] is 0, the row of gx is
    // 0.
    template <class T>
    void cross_entropy_backward(Backend, const CrossEntropyOptions& options, const T* x, const T* lse,
                                const int64_t* targets, const T* scale, T* gx, int64_t rows, int64_t classes);

)

}  // namespace tapeformer
