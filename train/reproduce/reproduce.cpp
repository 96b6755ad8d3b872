#include "train/reproduce/reproduce.h"

#include "core/base/errors.h"

namespace tapeformer {

const std::vector<std::string>& list_table_scale_names() {
  static const auto* const names = new std::vector<std::string>{"smoke", "small", "paper"};
  return *names;
}

const std::vector<Reproduction>& list_reproductions() {
  static const auto* const list = new std::vector<Reproduction>{
      make_mnist_table_reproduction(),        make_cifar10_table_reproduction(),
      make_mnist_samples_reproduction(),      make_cifar10_samples_reproduction(),
      make_image_speeds_reproduction(),       make_attention_scaling_reproduction(),
      make_attention_patterns_reproduction(), make_copy_convergence_reproduction(),
      make_reformer_table2_reproduction(),    make_reformer_complexity_reproduction(),
      make_reformer_speed_reproduction(),     make_speech_table_reproduction(),
      make_speech_scaling_reproduction(),     make_survey_table_reproduction(),
      make_recall_table_reproduction(),       make_translation_table_reproduction()};
  return *list;
}

const Reproduction& find_reproduction(const std::string& name) {
  std::vector<std::string> names;
  for (const Reproduction& known : list_reproductions()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw ConfigError(describe_unknown_word("table or figure", name, names));
}

OptionSpec make_size_option(const char* name, std::string help, double max) {
  return {.name = name,
          .default_value = int64_t{0},
          .help = std::move(help) + "; 0: depends on --scale",
          .min = 0,
          .max = max};
}

}  // namespace tapeformer
