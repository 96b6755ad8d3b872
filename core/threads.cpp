#include "core/threads.h"

#ifdef __SANITIZE_THREAD__
// OpenBLAS is not instrumented either: ThreadSanitizer sees its calls of memcpy, but not the order of its
// threads.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libopenblas\n";
}
#endif

namespace tapeformer {

void set_threads(int count) {
  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
}

}  // namespace tapeformer
