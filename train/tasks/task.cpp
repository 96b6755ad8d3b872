#include "train/tasks/task.h"

#include "core/base/errors.h"

namespace tapeformer {

std::pair<int64_t, int64_t> compute_slice_range(int64_t count, int rank, int size) {
  return {count * rank / size, count * (rank + 1) / size};
}

void Task::set_teacher(std::shared_ptr<const Task>) {
  throw ConfigError("distill.teacher: models of this type learn from data only");
}

BatchSource& Task::batches() const {
  check(batches_ != nullptr, "task", "the task of a checkpoint has no training data");
  return *batches_;
}

void require_subject(const Task& task, const std::vector<std::string>& subjects, const std::string& what) {
  std::string names;
  for (const std::string& subject : subjects) {
    if (subject == task.subject()) return;
    names += (names.empty() ? "" : " or ") + subject;
  }
  throw ConfigError(what + " is for models of " + names + "; this is a model of " + task.subject());
}

}  // namespace tapeformer
