#include "core/random/rng.h"

namespace tapeformer {

// `hash` is the FNV-1a hash of `name`. Unlike the result of std::hash, the FNV-1a hash is the same with every
// standard library.
RandomStream::RandomStream(uint64_t seed, std::string_view name, uint64_t step) : step_(step) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  const PhiloxBlock mixed = philox4x32(seed, hash, 0);
  key_ = (uint64_t{mixed[0]} << 32) | mixed[1];
}

}  // namespace tapeformer
