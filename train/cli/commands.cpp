#include "train/cli/commands.h"

#include "core/base/errors.h"

namespace tapeformer {

const std::vector<Command>& list_commands() {
  static const auto* const list = new std::vector<Command>{
      {"train", "trains a model from a config file, or continues a run", make_train_spec, run_train, true},
      {"eval", "prints bits/dim, bits/byte, accuracy or phone error rate of a run or checkpoint",
       make_eval_spec, run_eval, true},
      {"generate", "continues a text or samples images, and reports the speed", make_generate_spec,
       run_generate, true},
      {"merge", "writes a run whose weights contain the adapters of a run", make_merge_spec, run_merge},
      {"score", "prints the bits of each line of a text", make_score_spec, run_score},
      {"bleu", "prints BLEU and chrF2 of translations", make_bleu_spec, run_bleu},
      {"complete", "completes test images from their first part", make_complete_spec, run_complete},
      {"transcribe", "prints the phones of audio files", make_transcribe_spec, run_transcribe},
      {"translate", "translates the lines of a text", make_translate_spec, run_translate},
      {"linearize", "turns a softmax model into one with a state of constant size, and compares both",
       make_linearize_spec, run_linearize, true},
      {"bench", "runs a benchmark; \"bench list\" prints their names", make_bench_spec, run_bench, true},
      {"reproduce", "reproduces a table or a figure of a paper; \"reproduce list\" prints their names",
       make_reproduce_spec, run_reproduce, true},
      {"test-attention", "tests results, gradients, masks and decoding of attention kinds",
       make_test_attention_spec, run_test_attention},
      {"import", "makes a run of a language model of Hugging Face or a GGUF file", make_import_spec,
       run_import},
      {"export", "writes a language model for other programs: Hugging Face or GGUF", make_export_spec,
       run_export},
      {"report", "writes an HTML page with the curves and figures of runs", make_report_spec, run_report},
      {"data", "lists, downloads, checks or prepares data sets", make_data_spec, run_data},
      {"info", "prints version, compiler, BLAS and threads, devices, memory", make_info_spec, run_info, true},
      {"completion", "prints the completion of the command line for a shell", make_completion_spec,
       run_completion},
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

CommandSpec make_command_spec(const Command& command, const Arguments& words) {
  CommandSpec spec = command.make_spec(words);
  spec.name = command.name;
  return spec;
}

}  // namespace tapeformer
