// Actions of "tapeformer data" that are implemented in separate files.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

// Runs "data verify". `names` are the words after the action.
void verify_data(const std::vector<std::string>& names, const CommandLine& line);

// The next two functions return the options of "data prepare kaldi" and run this action, which creates a
// Kaldi corpus from recordings and transcripts.
std::vector<OptionSpec> prepare_kaldi_options();
void prepare_kaldi(const CommandLine& line);

}  // namespace tapeformer
