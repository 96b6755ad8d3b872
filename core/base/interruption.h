// Interruption of long computations, such as by Ctrl-C in Python.
#pragma once

namespace tapeformer {

// While an object exists, models on this thread call `check` before each layer and before each step of a
// recurrent form, and loops over many lines call it before each line. `check` throws an exception to end the
// computation. An inner scope replaces the outer one.
class InterruptionScope {
 public:
  using Check = void (*)();
  explicit InterruptionScope(Check check);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  Check previous_;
};

// Calls the check of the current InterruptionScope of this thread, if there is one.
void throw_if_interrupted();

}  // namespace tapeformer
