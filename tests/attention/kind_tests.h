// Tests of an attention kind. They check that the results, the gradients and the recurrent states agree with
// the declared capabilities. The tests use only the interface of the kind, so they also test kinds outside
// the source tree. The command "test-attention" prints their results.
#pragma once

#include <string>
#include <vector>

#include "models/attention/attention.h"

namespace tapeformer {

// Sizes of the tensors in the tests. If `device` is a CUDA device, the tests also compare the results on this
// device with the results on the CPU.
struct AttentionTestSetup {
  int64_t length = 9;  // number of tokens; at least 4
  int64_t heads = 2;   // at least 1
  int64_t dim = 4;     // at least 1; width of a query, of a key and of a value
  Device device = kCpu;
};

struct AttentionTestResult {
  std::string name;         // for example "causal mask"
  std::string failure;      // description of the failure; empty if the test passed or did not run
  std::string skip_reason;  // reason why the test did not run; empty if it ran
};

// Runs the tests that the capabilities of the kind allow, and returns one result for each test, including the
// tests that did not run. The inputs are the queries, keys and values of two sequences, drawn from a normal
// distribution. Each test makes a new attention layer with initial parameters. The dtype is float64, except
// in the tests of other dtypes. Throws OptionError if the options contradict each other or are invalid for
// sequences of `setup.length` tokens, and ShapeError for a setup that is out of range.
std::vector<AttentionTestResult> run_attention_tests(const AttentionKind& kind, const OptionValues& options,
                                                     const AttentionTestSetup& setup = {});

}  // namespace tapeformer
