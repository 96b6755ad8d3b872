// A class that keeps OpenBLAS from waiting forever for memory.
#pragma once

namespace tapeformer {

// OpenBLAS uses a buffer of 128 MiB for each product that it computes at the same time as other products, and
// keeps the buffers. If the address space has no room for a buffer, OpenBLAS repeats the allocation forever.
//
// An object of this class must exist during each call of OpenBLAS. If the address space is limited, the
// constructor first checks that a buffer fits. If no more buffers fit, it waits for a buffer of another
// thread. Throws std::runtime_error if not even one buffer fits.
class BlasBuffer {
 public:
  BlasBuffer();
  ~BlasBuffer();
  BlasBuffer(const BlasBuffer&) = delete;
  BlasBuffer& operator=(const BlasBuffer&) = delete;

 private:
  bool is_new_ = false;  // whether OpenBLAS allocates the buffer during the lifetime of the object
};

}  // namespace tapeformer
