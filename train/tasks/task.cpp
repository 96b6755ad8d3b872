#include "train/tasks/task.h"

#include <algorithm>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

std::string describe(ModelSubject subject) {
  switch (subject) {
    case ModelSubject::images:
      return "images";
    case ModelSubject::text:
      return "text";
    case ModelSubject::symbols:
      return "symbols";
    case ModelSubject::classes:
      return "classes";
    case ModelSubject::sets:
      return "sets";
    case ModelSubject::speech:
      return "speech";
    case ModelSubject::translations:
      return "translations";
  }
  return "";
}

}  // namespace

std::pair<int64_t, int64_t> compute_slice_range(int64_t count, int rank, int size) {
  return {count * rank / size, count * (rank + 1) / size};
}

void Task::set_teacher(std::shared_ptr<const Task>) {
  throw ConfigError("distill.teacher: models of this type learn from data only");
}

std::unique_ptr<Evaluator> Task::open_evaluation(const EvaluationOptions& options) const {
  if (!options.context.empty()) require_subject(*this, {ModelSubject::text}, "a context of evaluations");
  if (options.beam_size > 0)
    require_subject(*this, {ModelSubject::speech, ModelSubject::translations}, "a beam search");
  if (options.confusion_count > 0) require_subject(*this, {ModelSubject::speech}, "a list of confusions");
  return make_evaluator(options);
}

BatchSource& Task::batches() const {
  check(batches_ != nullptr, "task", "the task of a checkpoint has no training data");
  return *batches_;
}

void require_subject(const Task& task, std::initializer_list<ModelSubject> subjects,
                     const std::string& what) {
  if (std::find(subjects.begin(), subjects.end(), task.subject()) != subjects.end()) return;
  std::string names;
  for (const ModelSubject subject : subjects) names += (names.empty() ? "" : " or ") + describe(subject);
  throw ConfigError(what + " is for models of " + names + "; this is a model of " + describe(task.subject()));
}

}  // namespace tapeformer
