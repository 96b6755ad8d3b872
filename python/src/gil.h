// Scopes without and with the GIL, for threads that may still run when the interpreter ends. Python then ends
// a thread that takes the GIL by unwinding its stack, and the functions of nanobind are noexcept, so the
// program would abort. The scopes of this file stop such a thread instead.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace tapeformer::python {

namespace detail {
template <class F>
auto take_gil(F f) {
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}
}  // namespace detail

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    detail::take_gil([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

class GilAcquire {
 public:
  GilAcquire() : state_(detail::take_gil([] { return PyGILState_Ensure(); })) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace tapeformer::python
