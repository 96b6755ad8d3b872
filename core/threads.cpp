#include "core/threads.h"

#ifdef __SANITIZE_THREAD__
// OpenBLAS is not instrumented. ThreadSanitizer intercepts the calls of memcpy and memset in OpenBLAS, but
// does not see the synchronisation of its threads.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libopenblas\n";
}
#endif

namespace tapeformer {

void set_threads(int count) {
  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
}

}  // namespace tapeformer
