// Restriction of libraries that use OpenMP to the calling thread.
#pragma once

namespace tapeformer {

// While an object of this class exists, OpenMP and libraries that use it run in the calling thread.
// Additional threads would compete with the thread pool for processors.
class SerialLibraries {
 public:
  SerialLibraries();
  ~SerialLibraries();
  SerialLibraries(const SerialLibraries&) = delete;
  SerialLibraries& operator=(const SerialLibraries&) = delete;

 private:
  int openmp_threads_, openmp_levels_;
};

}  // namespace tapeformer
