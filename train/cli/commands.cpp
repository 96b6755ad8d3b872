#include "train/cli/commands.h"

#include "core/base/errors.h"

namespace tapeformer {

const std::vector<Command>& list_commands() {
  static const auto* const list = new std::vector<Command>{
      {"train", "CONFIG", "trains a model from a config file, or continues a run", run_train, true},
      {"eval", "RUN", "prints bits/dim, bits/byte, accuracy or phone error rate of a run or checkpoint",
       run_eval, true},
      {"generate", "RUN", "continues a text or samples images, and reports the speed", run_generate, true},
      {"merge", "RUN NEW", "writes a run whose weights contain the adapters of a run", run_merge},
      {"score", "RUN FILE [TARGET]", "prints the bits of each line of a text", run_score},
      {"bleu", "HYPOTHESIS REFERENCE...", "prints BLEU and chrF2 of translations", run_bleu},
      {"complete", "RUN", "completes test images from their first part", run_complete},
      {"transcribe", "RUN FILE...", "prints the phones of audio files", run_transcribe},
      {"translate", "RUN [FILE]", "translates the lines of a text", run_translate},
      {"linearize", "RUN", "turns a softmax model into one with a state of constant size, and compares both",
       run_linearize, true},
      {"bench", "NAME", "runs a benchmark; \"bench list\" prints their names", run_bench, true},
      {"reproduce", "NAME",
       "reproduces a table or a figure of a paper; \"reproduce list\" prints their names", run_reproduce,
       true},
      {"test-attention", "[KIND...]", "tests results, gradients, masks and decoding of attention kinds",
       run_test_attention},
      {"import", "PATH RUN", "makes a run of a language model of Hugging Face or a GGUF file", run_import},
      {"export", "RUN OUTPUT", "writes a language model for other programs: Hugging Face or GGUF",
       run_export},
      {"report", "RUN...", "writes an HTML page with the curves and figures of runs", run_report},
      {"data", "list|fetch|verify|prepare [NAME]", "lists, downloads, checks or prepares data sets",
       run_data_command},
      {"info", "", "prints version, compiler, BLAS and threads, devices, memory", run_info, true},
      {"completion", "bash|zsh", "prints the completion of the command line for a shell", run_completion},
  };
  return *list;
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : list_commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  throw ConfigError(describe_unknown_word("command", name, names));
}

}  // namespace tapeformer
