// A class that limits OpenMP to the calling thread.
#pragma once

namespace tapeformer {

// While an object of this class exists, the OpenMP regions of the thread that created the object run in this
// thread only. Additional threads would compete with the thread pool for processors.
class SerialOpenMpScope {
 public:
  SerialOpenMpScope();
  ~SerialOpenMpScope();
  SerialOpenMpScope(const SerialOpenMpScope&) = delete;
  SerialOpenMpScope& operator=(const SerialOpenMpScope&) = delete;

 private:
  int openmp_threads_, openmp_levels_;
};

}  // namespace tapeformer
