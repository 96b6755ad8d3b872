// The keys of the table [data].
#include <algorithm>

#include "core/errors.h"
#include "data/sets/catalogue.h"
#include "train/config/table_schema.h"

namespace tapeformer {
namespace {

// Returns a text with the most common default of a key, followed by the data sets that have other defaults,
// such as "16000 (fsdd: 8000)". `member` points to the default of the key in a CatalogueEntry. Data sets
// without a default are skipped.
template <class T>
std::string describe_defaults(T CatalogueEntry::*member) {
  std::vector<T> values;
  for (const CatalogueEntry& set : list_catalogue_entries())
    if (set.*member != T{}) values.push_back(set.*member);
  const T usual = *std::max_element(values.begin(), values.end(), [&](const T& a, const T& b) {
    return std::count(values.begin(), values.end(), a) < std::count(values.begin(), values.end(), b);
  });
  std::string others;
  for (const CatalogueEntry& set : list_catalogue_entries())
    if (set.*member != T{} && set.*member != usual)
      others += concat_text(others.empty() ? "" : ", ", set.name, ": ", set.*member);
  return concat_text(usual, others.empty() ? "" : concat_text(" (", others, ")"));
}

}  // namespace

void add_data_keys(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_unrestricted_scope(), OptionUse::model);
  table.add("dataset", &DataConfig::dataset, "data set")
      .require_one_of(
          list_dataset_names([](const CatalogueEntry& set) { return set.type != DatasetType::lexicon; }));
  table.set_scope(make_unrestricted_scope(), OptionUse::data);
  table.add("batch_size", &DataConfig::batch_size, "sequences per batch, summed over all processes")
      .require_range(1, kMaxSize);
  table.set_scope(make_non_streaming_scope(), OptionUse::training);
  table.add("shuffle", &DataConfig::shuffle, "use a new random order in each epoch");
  table.set_scope(make_unrestricted_scope(), OptionUse::data);
  table.add("limit", &DataConfig::limit, "training examples to use; 0: all").require_at_least(0);
  table.set_scope(make_unrestricted_scope(), OptionUse::training);
  table.add("eval_limit", &DataConfig::eval_limit, "evaluation examples to use; 0: all")
      .require_at_least(0)
      .allow_change_on_resume();
  table.set_scope(make_image_folder_scope(), OptionUse::model);
  table
      .add("image_size", &DataConfig::image_size,
           "side of the square images; pictures are cropped at the centre and averaged")
      .require_range(2, 512);
  table.set_scope(make_color_image_scope(), OptionUse::model);
  table.add("color", &DataConfig::color, "rgb or gray").require_one_of({"rgb", "gray"});
  table.set_scope(make_image_folder_scope(), OptionUse::data);
  table.add("bad_images", &DataConfig::bad_images, "treatment of files that cannot be used")
      .require_one_of({"drop", "refuse"});
  table.add("image_cache", &DataConfig::image_cache, "folder for decoded pictures; empty: none")
      .allow_change_on_resume();
  table.set_scope(make_known_image_size_scope(), OptionUse::model);
  table.add("downscale", &DataConfig::downscale, "average blocks of k x k pixels")
      .require_one_of_integers({1, 2, 4, 7});
  table.set_scope(make_speech_or_known_image_size_scope(), OptionUse::data);
  table.add("validation", &DataConfig::validation, "examples held out from the end of the training split")
      .require_at_least(0);
  table.set_scope(make_generated_sequence_scope(), OptionUse::model);
  table
      .add("max_length", &DataConfig::max_length,
           "sequence length; listops and sets: largest number of tokens or elements")
      .require_range(8, kMaxSize);
  table.set_scope(make_variable_length_scope(), OptionUse::data);
  table
      .add("min_length", &DataConfig::min_length,
           "smallest number of tokens or elements; 0: a quarter of max_length")
      .require_range(0, kMaxSize);
  table.set_scope(make_gaussian_mixture_scope(), OptionUse::model);
  table.add("components", &DataConfig::components, "components of a mixture of Gaussians")
      .require_range(1, 1000);
  table.set_scope(make_listops_scope(), OptionUse::data);
  table.add("max_depth", &DataConfig::max_depth, "levels of nested operations").require_range(2, 1000);
  table.add("max_args", &DataConfig::max_args, "largest number of operands of an operation")
      .require_range(2, 1000);
  table.set_scope(make_symbol_sequence_scope(), OptionUse::model);
  table.add("symbols", &DataConfig::symbols, "symbols besides the separator").require_range(1, 65535);
}

void add_data_path_keys(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_data_path_scope(), OptionUse::data);
  table
      .add("path", &DataConfig::path,
           "text: file, folder or pattern such as \"books/*.txt\", plain or gzip; pictures and speech: "
           "folder; "
           "empty: the folder in the data directories")
      .allow_change_on_resume();
  table.set_scope(make_split_share_scope(), OptionUse::data);
  table
      .add("valid_share", &DataConfig::valid_share,
           "share of the data for validation; text: before the test share")
      .require_fraction_below_one();
  table.add("test_share", &DataConfig::test_share, "share of the data for tests; text: at its end")
      .require_fraction_below_one();
  table
      .add("valid_path", &DataConfig::valid_path,
           "data for validation, as in path; empty: a share of data.path")
      .allow_change_on_resume();
  table.add("test_path", &DataConfig::test_path, "data for tests, as in path; empty: a share of data.path")
      .allow_change_on_resume();
}

void add_text_keys(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_text_scope(), OptionUse::model);
  table
      .add("tokenizer", &DataConfig::tokenizer,
           "bytes: any data; characters: the characters of a UTF-8 text; sentencepiece: pieces of words")
      .require_one_of({"bytes", "characters", "sentencepiece"});
  table.set_scope(make_sentencepiece_scope(), OptionUse::data);
  table.add("sentencepiece_model", &DataConfig::sentencepiece_model,
            "file of a SentencePiece model; empty: train a model from the text");
  table.set_scope(make_sentencepiece_training_scope(), OptionUse::data);
  table.add("vocabulary", &DataConfig::vocabulary, "tokens of a trained SentencePiece model")
      .require_range(2, 65536);
  table.set_scope(make_sentencepiece_file_scope(), OptionUse::model);
  table
      .add("unknown_characters", &DataConfig::unknown_characters,
           "characters that the SentencePiece model lacks; token: use its unknown token, whose bits are "
           "counted, but not its bytes")
      .require_one_of({"refuse", "token"})
      .allow_change_on_resume();
  table.set_scope(make_text_scope(), OptionUse::model);
  table.add("sequence_length", &DataConfig::sequence_length, "tokens that a window predicts")
      .require_range(1, kMaxSize);
  table.set_scope(make_text_scope(), OptionUse::data);
  table
      .add("eval_context", &DataConfig::eval_context,
           "tokens that each window of an evaluation repeats from the previous window and does not score; "
           "0: windows do not overlap")
      .require_range(0, kMaxSize);
  table.add("streams", &DataConfig::streams,
            "divide the text into batch_size parts and read a segment of each part per batch, in order");
}

void add_speech_keys(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_speech_data_scope(), OptionUse::data);
  table.add("max_frames", &DataConfig::max_frames, "largest number of frames in a batch, padding included")
      .require_range(1, 1e9);
  table.set_scope(make_corpus_part_scope(), OptionUse::data);
  table.add(
      "train_part", &DataConfig::train_part,
      "folder of the training part in data.path; empty: " + describe_defaults(&CatalogueEntry::train_part));
  table.add("valid_part", &DataConfig::valid_part,
            "folder of the part that training evaluates on; empty: " +
                describe_defaults(&CatalogueEntry::valid_part));
  table.add("test_part", &DataConfig::test_part,
            "folder of the test part; empty: " + describe_defaults(&CatalogueEntry::test_part));
  table.set_scope(make_lexicon_scope(), OptionUse::data);
  table
      .add("lexicon", &DataConfig::lexicon,
           "file with the phones of words; empty: CMUdict in the data directories, or none for kaldi, whose "
           "text then consists of phones")
      .allow_change_on_resume();
  table.set_scope(make_unknown_word_scope(), OptionUse::data);
  table
      .add("unknown_words", &DataConfig::unknown_words,
           "treatment of utterances with words that the lexicon lacks")
      .require_one_of({"refuse", "drop"});
  table.set_scope(make_speech_data_scope(), OptionUse::data);
  table.add("bad_utterances", &DataConfig::bad_utterances, "treatment of utterances that cannot be used")
      .require_one_of({"drop", "refuse"});
  table.set_scope(make_timit_scope(), OptionUse::data);
  table.add("phone_set", &DataConfig::phone_set, "phones that the model is trained on; scores use 39 phones")
      .require_one_of({"timit61", "timit48", "timit39"});
}

void add_speech_feature_keys(std::vector<SchemaKey>& keys) {
  TableSchemaBuilder table(keys, "data", &Config::data);
  table.set_scope(make_audio_scope(), OptionUse::features);
  table
      .add("sample_rate", &DataConfig::sample_rate,
           "samples per second; 0: " + describe_defaults(&CatalogueEntry::sample_rate))
      .require_range(0, 192000);
  table.add("resample", &DataConfig::resample,
            "convert recordings of another rate; by default they are refused");
  table
      .add("channel", &DataConfig::channel,
           "channel of recordings with several channels, from 0; -1: such recordings are refused")
      .require_range(-1, 1023);
  table
      .add("max_seconds", &DataConfig::max_seconds,
           "longest recording or segment; decoding stops at this limit; 0: no limit")
      .require_range(0, 1e9);
  table.add("num_mel_bins", &DataConfig::num_mel_bins, "number of mel filters").require_range(1, 1024);
  table.set_scope(make_audio_scope(), OptionUse::training);
  table.add("dither", &DataConfig::dither, "noise on training recordings, in 16-bit samples")
      .require_range(0, 1000);
  table.set_scope(make_speech_data_scope(), OptionUse::features);
  table.add("deltas", &DataConfig::deltas, "time derivatives of the features, up to this order")
      .require_range(0, 2);
  table.add("cmvn", &DataConfig::cmvn, "frames over which the mean of the features is subtracted")
      .require_one_of({"none", "utterance", "speaker", "global"});
  table.set_scope(make_normalised_feature_scope(), OptionUse::features);
  table.add("cmvn_variance", &DataConfig::cmvn_variance, "also divide by the standard deviation");
  table.set_scope(make_speech_data_scope(), OptionUse::training);
  table.add("spec_augment", &DataConfig::spec_augment,
            "mask frequency bands and time spans in training, as SpecAugment");
  table.set_scope(make_spec_augment_scope(), OptionUse::training);
  table.add("frequency_masks", &DataConfig::frequency_masks, "number of frequency masks")
      .require_range(0, 100);
  table.add("frequency_width", &DataConfig::frequency_width, "largest number of bins in a frequency mask")
      .require_range(0, 1024);
  table.add("time_masks", &DataConfig::time_masks, "number of time masks").require_range(0, 100);
  table.add("time_width", &DataConfig::time_width, "largest number of frames in a time mask")
      .require_range(0, kMaxSize);
  table.add("time_share", &DataConfig::time_share, "largest share of the utterance in a time mask")
      .require_range(0, 1);
  table.set_scope(make_speech_data_scope(), OptionUse::data);
  table.add("feature_cache", &DataConfig::feature_cache, "folder for computed features; empty: memory only")
      .allow_change_on_resume();
}

}  // namespace tapeformer
