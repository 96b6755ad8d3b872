// Actions of "tapeformer data" that are implemented in separate files.
#pragma once

#include <string>
#include <vector>

#include "train/cli/common.h"

namespace tapeformer {

// Runs "data verify". `names` are the words after the action.
void verify_data(const std::vector<std::string>& names, const CommandLine& line);

// The action "data prepare kaldi" creates a Kaldi corpus from recordings and transcripts.
// make_prepare_kaldi_options() returns the options of the action, and prepare_kaldi() runs the action.
std::vector<OptionSpec> make_prepare_kaldi_options();
void prepare_kaldi(const CommandLine& line);

}  // namespace tapeformer
