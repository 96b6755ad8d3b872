// Selection of the algorithms that cuBLASLt uses for matrix products. By default, a product uses the first
// algorithm that the heuristic of cuBLASLt returns. While a ProductTuningScope object exists, the run time of
// the returned algorithms is measured when a product is first used, and the fastest algorithm is chosen. Two
// products use the same choice if they have the same types, layout and epilogue, and if their sizes are equal
// after rounding up to three significant bits.
//
// Algorithms add in different orders, so the last bits of a result depend on the choice. The choices are
// saved in a file. Processes that use the same file choose the same algorithms, so their results are
// repeatable. This header does not include CUDA's headers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/device.h"

namespace tapeformer::cuda {

// Counters of this process for all devices. A plan exists for each combination of shape, types, layout and
// epilogue of a matrix product.
struct ProductTuningCounts {
  int64_t timed_plans = 0;        // number of plans whose algorithms were measured
  int64_t reused_choices = 0;     // number of plans that use an existing choice, for example from a file
  int64_t failed_algorithms = 0;  // number of algorithms that could not run and were replaced
  // Number of product launches whose epilogue ran in a separate kernel, because cuBLASLt has no algorithm
  // with this epilogue.
  int64_t unfused_products = 0;
};
ProductTuningCounts get_product_tuning_counts();

// During the lifetime of the object, the algorithms of new matrix products on a CUDA device are measured. If
// the file `path` exists, the constructor reads choices from it. Each new choice is saved by atomically
// replacing the file. If the file was written for another device, driver or version of cuBLAS, the
// constructor ignores the choices in the file, and the next save overwrites the file. If the file is damaged
// or cannot be written, a warning is logged. If `path` is empty, choices are not saved.
//
// If a product is first used while a graph is being recorded, its algorithms are not measured, and the first
// algorithm is chosen and saved. A device may have at most one such object. No other thread may use the
// device while the object is created or destroyed.
class ProductTuningScope {
 public:
  ProductTuningScope(Device device, const std::string& path);
  ~ProductTuningScope();
  ProductTuningScope(const ProductTuningScope&) = delete;
  ProductTuningScope& operator=(const ProductTuningScope&) = delete;

 private:
  Device device_;
};

// The chosen algorithms of one device. All functions are thread-safe. Only the CUDA backend uses this class.
class ProductAlgorithmChoices {
 public:
  // Returns the object of current_device.
  static ProductAlgorithmChoices& current();

  // start_tuning() replaces the choices by the choices in the file `path`, and enables measurements of the
  // algorithms of new products. stop_tuning() discards the choices and disables the measurements.
  void start_tuning(const std::string& path);
  void stop_tuning();
  bool is_tuning() const { return is_tuning_; }
  // Returns a number that increases when tuning starts or stops. A caller that caches an algorithm also
  // stores this number. If the number has changed, the caller must discard the algorithm.
  int64_t generation() const { return generation_; }

  // find_choice() returns the bytes of the algorithm that was chosen for `name`, or nullopt. save_choice()
  // sets the choice for `name` and writes the file. A name is one line of text without " = ".
  std::optional<std::string> find_choice(const std::string& name) const;
  void save_choice(const std::string& name, const std::string& algorithm);

 private:
  void load_file();
  void save_file();

  mutable std::mutex mutex_;
  std::atomic<bool> is_tuning_ = false;
  std::atomic<int64_t> generation_ = 0;
  std::string path_, header_;
  std::map<std::string, std::string> choices_;  // the bytes of the chosen algorithms, by name
};

// Adds `counts` to the counters of this process.
void add_product_tuning_counts(const ProductTuningCounts& counts);

}  // namespace tapeformer::cuda
