// Weights in the files of other programs.
#pragma once

#include <map>
#include <string>

#include "core/base/shape.h"
#include "core/tensor.h"

namespace tapeformer {

struct WeightEntry {
  Shape shape;       // (out, in) for matrices, as in PyTorch
  std::string type;  // name of the type in the file, such as "BF16" or "Q4_K"
};

// Named tensors that are read one by one. Thread-safe.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  virtual const std::string& path() const = 0;
  virtual const std::map<std::string, WeightEntry>& entries() const = 0;
  // Reads a tensor on the CPU. Floating-point and quantised types become float32, and integers keep their
  // type. Throws CheckpointError if there is no such tensor, or if the file cannot be read.
  virtual Tensor read(const std::string& name) const = 0;
};

}  // namespace tapeformer
