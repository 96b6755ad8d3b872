// The algorithms that cuBLASLt uses for matrix products. By default, a product uses the first algorithm that
// the heuristic of cuBLASLt offers. While a TimedProducts exists, the offered
// algorithms of a product are measured once, and the fastest is used. The choice depends on the types, the
// layout and the epilogue of the product, and on its sizes, rounded up to three significant bits.
//
// Algorithms add in different orders, so results depend on the choice in the last bits. The file of the
// choices makes them repeatable: later processes that use it choose the same algorithms. This header does not
// include CUDA's headers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/device.h"

namespace tapeformer::cuda {

// Numbers of this process, for all devices.
struct ProductCounts {
  int64_t timed_plans = 0;        // products of one shape whose algorithms were measured
  int64_t reused_choices = 0;     // products of one shape that use a choice of the file, or of similar sizes
  int64_t failed_algorithms = 0;  // algorithms that could not run, so that another one was used
  // Products that were computed without a fused epilogue, because cuBLASLt has no algorithm for it. A
  // separate kernel computes these epilogues.
  int64_t unfused_products = 0;
};
ProductCounts product_counts();

// Measures the algorithms of new products on a CUDA device during the lifetime of the object. The choices are
// read from the file `path`, if it exists, and each new choice is written to it. The file is replaced
// atomically. A file of another device, driver or version of cuBLAS is replaced. A damaged file, or a file
// that cannot be written, causes a warning and no error. If `path` is empty, the choices are not saved.
// Products that are first used while a graph is recorded are not measured. They use the first algorithm, also
// in later processes that read the file. A device has at most one such object, and no other thread may use
// the device while it is created or destroyed.
class TimedProducts {
 public:
  TimedProducts(Device device, const std::string& path);
  ~TimedProducts();
  TimedProducts(const TimedProducts&) = delete;
  TimedProducts& operator=(const TimedProducts&) = delete;

 private:
  Device device_;
};

// The choices of one device. All functions are thread-safe. Internal to the CUDA backend.
class ProductAlgorithms {
 public:
  // Returns the choices of current_device.
  static ProductAlgorithms& current();

  // Begins timing with the choices in the file, or ends it.
  void start(const std::string& path);
  void stop();
  bool active() const { return active_; }
  // Returns a number that changes when timing begins or ends. Algorithms that were selected at an earlier
  // number are not used.
  int64_t generation() const { return generation_; }

  // Returns the bytes of the algorithm in a choice. The name of a choice is one line of text without " = ".
  std::optional<std::string> find(const std::string& name) const;
  void choose(const std::string& name, const std::string& algorithm);

 private:
  void load();
  void save();

  mutable std::mutex mutex_;
  std::atomic<bool> active_ = false;
  std::atomic<int64_t> generation_ = 0;
  std::string path_, header_;
  std::map<std::string, std::string> choices_;  // by name
};

// Adds to the counts of this process.
void add_product_counts(const ProductCounts& counts);

}  // namespace tapeformer::cuda
