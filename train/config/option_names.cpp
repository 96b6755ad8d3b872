#include "train/config/option_names.h"

#include <algorithm>

#include "core/options/option_names.h"

namespace tapeformer {

void use_keys_in_messages() {
  set_option_names({{"AudioOptions::channel", "data.channel"},
                    {"AudioOptions::max_seconds", "data.max_seconds"},
                    {"AudioOptions::resample", "data.resample"},
                    {"CorpusOptions::allow_commands", "--allow-commands"},
                    {"FilterbankOptions::bins", "data.num_mel_bins"},
                    {"FilterbankOptions::rate", "data.sample_rate"},
                    {"ImageFolderOptions::image_size", "data.image_size"},
                    {"ImageOptions::data_dir", "--data-dir"},
                    {"ImageOptions::validation_count", "data.validation"},
                    {"ListOpsOptions::max_args", "data.max_args"},
                    {"ListOpsOptions::max_depth", "data.max_depth"},
                    {"ListOpsOptions::max_length", "data.max_length"},
                    {"ListOpsOptions::min_length", "data.min_length"},
                    {"LoaderOptions::batch_size", "data.batch_size"},
                    {"SpeechCheckOptions::max_frames", "model.max_frames"},
                    {"SpeechModelOptions::max_frames", "model.max_frames"},
                    {"PromptOptions::chat_template", "data.chat_template"},
                    {"TextOptions::eval_context", "data.eval_context"},
                    {"TextOptions::path", "data.path"},
                    {"TextOptions::sequence_length", "data.sequence_length"},
                    {"TextOptions::test_path", "data.test_path"},
                    {"TextOptions::test_share", "data.test_share"},
                    {"TextOptions::tokenizer_file", "data.tokenizer_file"},
                    {"TextOptions::tokenizer_name", "data.tokenizer"},
                    {"TextOptions::valid_path", "data.valid_path"},
                    {"TextOptions::valid_share", "data.valid_share"},
                    {"TextOptions::vocabulary", "data.vocabulary"},
                    {"TranslationOptions::max_length", "data.max_length"},
                    {"TranslationOptions::max_ratio", "data.max_ratio"},
                    {"TranslationOptions::test", "data.test_source"},
                    {"TranslationOptions::train", "data.source"},
                    {"TranslationOptions::valid_pairs", "data.valid_pairs"}});
}

KeyProblem make_key_problem(const OptionProblem& problem) {
  const auto& [option, message] = problem;
  const std::string attention = "attention_options.";
  if (option.starts_with(attention)) return {"attention." + option.substr(attention.size()), message};
  if (option == "window") return {"--window", message};
  const bool is_key = option == "attention" ||
                      std::any_of(list_model_kinds().begin(), list_model_kinds().end(),
                                  [&](const ModelKind& kind) { return has_option(kind.options, option); });
  return {(is_key ? "model." : "") + option, message};
}

}  // namespace tapeformer
