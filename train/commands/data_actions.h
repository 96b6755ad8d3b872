// The actions of "tapeformer data" that have files of their own.
#pragma once

#include <string>
#include <vector>

#include "train/commands/common.h"

namespace tapeformer {

// `names` are the words after the action.
void verify_data(const std::vector<std::string>& names, const CommandLine& line);

// "prepare kaldi": of recordings and transcripts as people have them.
std::vector<OptionSpec> prepare_kaldi_options();
void prepare_kaldi(const CommandLine& line);

bool is_speech_set(const std::string& name);

}  // namespace tapeformer
