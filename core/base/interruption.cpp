#include "core/base/interruption.h"

#include <utility>

namespace tapeformer {
namespace {

thread_local InterruptionScope::Check interruption_check = nullptr;

}  // namespace

InterruptionScope::InterruptionScope(Check check) : previous_(std::exchange(interruption_check, check)) {}

InterruptionScope::~InterruptionScope() {
  interruption_check = previous_;
}

void throw_if_interrupted() {
  if (interruption_check) interruption_check();
}

}  // namespace tapeformer
