// The processors that a thread may use. If OMP_PROC_BIND requires bound threads, OpenMP binds the main thread
// before main() to its first place, which is a set of processors, and threads and processes that it starts
// inherit the place.
#pragma once

#include <sched.h>

namespace tapeformer {

// Binds the calling thread to a place, if OMP_PROC_BIND requires bound threads. Other threads of the process
// have other numbers.
void bind_to_place(int number);

// During the lifetime of the object, the calling thread may use the processors of all places, so that a
// process that it starts may use them too.
class UnboundScope {
 public:
  UnboundScope();
  ~UnboundScope();
  UnboundScope(const UnboundScope&) = delete;
  UnboundScope& operator=(const UnboundScope&) = delete;

 private:
  bool is_bound_ = false;
  cpu_set_t place_;
};

}  // namespace tapeformer
