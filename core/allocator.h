// Declares the function that returns the memory allocator of a device.
#pragma once

#include "core/caching_allocator.h"
#include "core/device.h"

namespace tapeformer {

// Returns the allocator of a device. The allocator is created on first use and never destroyed.
CachingAllocator& get_device_allocator(Device device = kCpu);

}  // namespace tapeformer
