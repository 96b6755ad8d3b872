// Checks that a program with `using namespace std` can use the package. Functions such as exp() exist for
// numbers in namespace std and for tensors in namespace tapeformer, so calls must not be ambiguous.
#include <tapeformer/tapeformer.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

using namespace std;
using namespace tapeformer;

double call_number_functions(double x) {
  return exp(x) + log(x) + sqrt(x) + tanh(x) + max(x, 1.0) + div(7, 2).quot;
}

Tensor call_tensor_functions(const Tensor& x) {
  return exp(x) + log(x) + sqrt(x) + tanh(x) + max(x, 0) + div(x, x);
}

// With `using namespace std`, the names slice() and stack() are ambiguous, because std::slice and std::stack
// exist. slice_in_dim() and stack_tensors() are other names of the same functions.
Tensor call_view_functions(const Tensor& x) {
  return stack_tensors({slice_in_dim(x, 0, 0, 1)}, 0);
}
bool is_unused() {
  return get_device_allocator().stats().active_bytes == 0;
}

// Functions of this program. The package has functions with the same names in its namespace.
bool check(bool condition) {
  return condition;
}
bool call_own_functions(vector<int> values) {
  generate(values.begin(), values.end(), [] { return 1; });
  const int threads = accumulate(values.begin(), values.end(), 0);
  return check(threads > 0);
}
