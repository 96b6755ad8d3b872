#include "train/reproduce/reproduce.h"

#include "core/errors.h"

namespace tapeformer {

const std::vector<std::string>& scale_names() {
  static const auto* const names = new std::vector<std::string>{"smoke", "small", "paper"};
  return *names;
}

const std::vector<Reproduction>& reproductions() {
  static const auto* const list = new std::vector<Reproduction>{
      mnist_table_reproduction(),      cifar10_table_reproduction(),     mnist_samples_reproduction(),
      cifar10_samples_reproduction(),  attention_scaling_reproduction(), attention_patterns_reproduction(),
      copy_convergence_reproduction(), reformer_table2_reproduction(),   reformer_complexity_reproduction(),
      reformer_speed_reproduction(),   speech_table_reproduction(),      speech_scaling_reproduction(),
      survey_table_reproduction()};
  return *list;
}

const Reproduction& reproduction(const std::string& name) {
  std::vector<std::string> names;
  for (const Reproduction& known : reproductions()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  throw ConfigError(unknown_text("table or figure", name, names));
}

OptionSpec size_option(const char* name, std::string help) {
  return {.name = name,
          .default_value = int64_t{0},
          .help = std::move(help) + "; 0: depends on --scale",
          .min = 0,
          .max = 1 << 24};
}

}  // namespace tapeformer
