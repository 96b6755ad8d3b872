#include "train/checkpoint/earlier_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/system/printable.h"
#include "train/checkpoint/checkpoint.h"

namespace tapeformer {

namespace fs = std::filesystem;

std::string describe_earlier_checkpoint(const std::string& folder, CheckpointUse use) {
  const fs::path parent = fs::path(folder).parent_path();
  if (parent.filename() != kCheckpointFolderName || Checkpoint(folder).is_intact()) return "";
  std::vector<int64_t> steps = list_checkpoint_steps(parent.parent_path().string());
  std::reverse(steps.begin(), steps.end());
  std::string newer;
  bool is_before = false;
  for (const int64_t step : steps) {
    const fs::path candidate = parent / format_step_name(step);
    if (is_before && Checkpoint(candidate.string()).is_intact())
      return "; the newest intact checkpoint before it is " + candidate.string() +
             (use == CheckpointUse::resume
                  ? "; to continue from there, remove the newer ones and repeat the command: rm -r" + newer
                  : "");
    is_before = is_before || candidate == folder;
    newer += " " + quote_shell_word(candidate.string());
  }
  return "";
}

}  // namespace tapeformer
