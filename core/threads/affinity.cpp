#include "core/threads/affinity.h"

#include <omp.h>

#include <vector>

namespace tapeformer {
namespace {

// Returns the number of places, or 0 if threads are not bound.
int count_places() {
  // libgomp binds a thread to the first place when it first asks for the place of the thread. Without this
  // call, a parallel region in a library would ask later, which would undo sched_setaffinity().
  omp_get_place_num();
  return omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
}

void add_processors(int place, cpu_set_t& set) {
  std::vector<int> processors(static_cast<size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, processors.data());
  for (const int processor : processors) CPU_SET(processor, &set);
}

}  // namespace

void bind_to_place(int number) {
  const int places = count_places();
  if (places == 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  add_processors(number % places, set);
  sched_setaffinity(0, sizeof set, &set);
}

UnboundScope::UnboundScope() {
  const int places = count_places();
  if (places == 0 || sched_getaffinity(0, sizeof place_, &place_) != 0) return;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < places; ++place) add_processors(place, all);
  is_bound_ = sched_setaffinity(0, sizeof all, &all) == 0;
}

UnboundScope::~UnboundScope() {
  if (is_bound_) sched_setaffinity(0, sizeof place_, &place_);
}

}  // namespace tapeformer
