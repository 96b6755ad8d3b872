#include "core/threads.h"

#ifdef __SANITIZE_THREAD__
// OpenBLAS is not instrumented: ThreadSanitizer intercepts its calls of memcpy, but does not see how its
// threads synchronise.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libopenblas\n";
}
#endif

namespace tapeformer {

void set_threads(int count) {
  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
}

}  // namespace tapeformer
