#include "data/generated/generated_set.h"

#include "core/base/errors.h"

namespace tapeformer {

GeneratedSet::GeneratedSet(const DatasetRequest& request, Sizes sizes, const std::string& stream_name,
                           DatasetInfo info)
    : info_(std::move(info)), size_(request.limit), stream_(request.seed, stream_name + request.split) {
  require_split(request.split);
  info_.split = request.split;
  if (size_ == 0) size_ = request.split == "train" ? sizes.train : sizes.evaluation;
}

void require_no_problems(const std::string& name, const OptionProblems& problems) {
  if (!problems.empty())
    throw ConfigError(name + ": " + problems.front().first + ": " + problems.front().second);
}

}  // namespace tapeformer
