#include "ops/kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

// Number of positions per block. The angles of the first position are computed directly, and the angles of
// the other positions by repeated rotation.
constexpr int64_t kPositionBlock = 64;

// The cosines and sines of the angles of successive positions.
class Angles {
 public:
  explicit Angles(const RotaryShape& s)
      : frequencies_(static_cast<size_t>(s.rotated / 2)),
        step_cosines_(frequencies_),
        step_sines_(frequencies_),
        cosines_(frequencies_),
        sines_(frequencies_),
        amplitude_(s.amplitude) {
    const double direction = s.inverse ? -1 : 1;
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      frequencies_[i] = direction * compute_rotary_angle(s.base, s.scale, static_cast<int64_t>(i), s.rotated);
      step_cosines_[i] = std::cos(frequencies_[i]);
      step_sines_[i] = std::sin(frequencies_[i]);
    }
  }

  void start(int64_t position) {
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      cosines_[i] = std::cos(frequencies_[i] * static_cast<double>(position));
      sines_[i] = std::sin(frequencies_[i] * static_cast<double>(position));
    }
  }

  template <class C>
  void write_and_advance(C* cosines, C* sines) {
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const double c = cosines_[i], s = sines_[i];
      cosines[i] = static_cast<C>(amplitude_ * c);
      sines[i] = static_cast<C>(amplitude_ * s);
      cosines_[i] = c * step_cosines_[i] - s * step_sines_[i];
      sines_[i] = s * step_cosines_[i] + c * step_sines_[i];
    }
  }

 private:
  std::vector<double> frequencies_, step_cosines_, step_sines_, cosines_, sines_;
  double amplitude_;
};

// The rotation of one position. The layers of a decoding step rotate by the same angles, so each thread keeps
// the last rotation.
template <class C>
struct Rotation {
  std::vector<C> cosines, sines;

  static const Rotation& find(const RotaryShape& s) {
    const std::tuple key(s.rotated, s.first_position, s.base, s.scale, s.amplitude, s.inverse);
    thread_local std::remove_const_t<decltype(key)> last_key{};  // no rotation has the base 0
    thread_local Rotation last;
    if (last_key != key) {
      last.cosines.resize(static_cast<size_t>(s.rotated / 2));
      last.sines.resize(last.cosines.size());
      Angles angles(s);
      angles.start(s.first_position);
      angles.write_and_advance(last.cosines.data(), last.sines.data());
      last_key = key;
    }
    return last;
  }
};

// Rotates the pairs (x[i], x[half + i]) of a row of `dim` elements, and copies the elements from 2 half on.
// `cosines` and `sines` have `half` elements.
template <class T, class C>
void rotate_row(const T* x, int64_t half, int64_t dim, const C* cosines, const C* sines, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const C first = static_cast<C>(x[i]), second = static_cast<C>(x[half + i]);
    set_element(out[i], first * cosines[i] - second * sines[i]);
    set_element(out[half + i], second * cosines[i] + first * sines[i]);
  }
  if (out != x) std::copy(x + 2 * half, x + dim, out + 2 * half);
}

}  // namespace

template <class T>
void rotate_pairs(Backend, const RotaryShape& s, AttentionRows<const T> x, AttentionRows<T> out) {
  using C = Compute<T>;
  const int64_t half = s.rotated / 2, blocks = (s.length + kPositionBlock - 1) / kPositionBlock;
  const auto rotate_position = [&](int64_t p, const C* cosines, const C* sines) {
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        rotate_row(x.row(b, p, h), half, s.dim, cosines, sines, out.row(b, p, h));
  };
  if (s.length == 1) {
    const auto& rotation = Rotation<C>::find(s);
    return rotate_position(0, rotation.cosines.data(), rotation.sines.data());
  }
  const int64_t work = std::max<int64_t>(s.batch * kPositionBlock * s.heads * s.dim, 1);
  parallel_for(blocks, std::max<int64_t>((1 << 15) / work, 1), [&](int64_t begin, int64_t end) {
    Angles angles(s);
    std::vector<C> cosines(static_cast<size_t>(half)), sines(cosines);
    for (int64_t p = begin * kPositionBlock; p < std::min(end * kPositionBlock, s.length); ++p) {
      if (p % kPositionBlock == 0) angles.start(s.first_position + p);
      angles.write_and_advance(cosines.data(), sines.data());
      rotate_position(p, cosines.data(), sines.data());
    }
  });
}

template <class T>
struct RotaryKernels {
  inline static const FunctionInstances all{&rotate_pairs<T>};
};
template struct RotaryKernels<float>;
template struct RotaryKernels<double>;
template struct RotaryKernels<BFloat16>;

}  // namespace tapeformer::cpu
