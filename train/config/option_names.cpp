#include "train/config/option_names.h"

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
                    {"TextOptions::eval_context", "data.eval_context"},
                    {"TextOptions::sequence_length", "data.sequence_length"},
                    {"TextOptions::test_share", "data.test_share"},
                    {"TextOptions::valid_share", "data.valid_share"},
                    {"TextOptions::vocabulary", "data.vocabulary"}});
}

}  // namespace tapeformer
