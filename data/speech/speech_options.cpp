#include "data/speech/speech_options.h"

#include <algorithm>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

using SpeechOptionTable = OptionTable<SpeechDataOptions>;

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

void add_corpus_options(SpeechOptionTable& table) {
  using O = SpeechDataOptions;
  table.add("path", &O::path, "folder of the corpus; empty: the folder in the data directories")
      .use_for(OptionUse::data)
      .mark_as_path()
      .allow_change_on_resume();
  table.add("validation", &O::validation, "examples held out from the end of the training split")
      .use_for(OptionUse::data)
      .require_at_least(0);
  table.add("max_frames", &O::max_frames, "largest number of frames in a batch, padding included")
      .use_for(OptionUse::data)
      .require_range(1, 1e9);
  table
      .add("train_part", &O::train_part,
           "folder of the training part in path; empty: " + describe_defaults(&CatalogueEntry::train_part))
      .use_for(OptionUse::data);
  table
      .add("valid_part", &O::valid_part,
           "folder of the part that training evaluates on; empty: " +
               describe_defaults(&CatalogueEntry::valid_part))
      .use_for(OptionUse::data);
  table
      .add("test_part", &O::test_part,
           "folder of the test part; empty: " + describe_defaults(&CatalogueEntry::test_part))
      .use_for(OptionUse::data);
  table
      .add("lexicon", &O::lexicon,
           "file with the phones of words; empty: CMUdict in the data directories, or none for kaldi, whose "
           "text then consists of phones")
      .use_for(OptionUse::data)
      .mark_as_path()
      .allow_change_on_resume();
  table.add("unknown_words", &O::unknown_words, "treatment of utterances with words that the lexicon lacks")
      .use_for(OptionUse::data)
      .require_one_of({"refuse", "drop"});
  table.add("bad_utterances", &O::bad_utterances, "treatment of utterances that cannot be used")
      .use_for(OptionUse::data)
      .require_one_of({"drop", "refuse"});
  table.add("phone_set", &O::phone_set, "phones that the model is trained on; scores use 39 phones")
      .use_for(OptionUse::data)
      .require_one_of({"timit61", "timit48", "timit39"});
}

void add_feature_options(SpeechOptionTable& table) {
  using O = SpeechDataOptions;
  table
      .add("sample_rate", &O::sample_rate,
           "samples per second; 0: " + describe_defaults(&CatalogueEntry::sample_rate))
      .use_for(OptionUse::features)
      .require_range(0, 192000);
  table.add("resample", &O::resample, "convert recordings of another rate; by default they are refused")
      .use_for(OptionUse::features);
  table
      .add("channel", &O::channel,
           "channel of recordings with several channels, from 0; -1: such recordings are refused")
      .use_for(OptionUse::features)
      .require_range(-1, 1023);
  table
      .add("max_seconds", &O::max_seconds,
           "longest recording or segment; decoding stops at this limit; 0: no limit")
      .use_for(OptionUse::features)
      .require_range(0, 1e9);
  table.add("num_mel_bins", &O::num_mel_bins, "number of mel filters")
      .use_for(OptionUse::features)
      .require_range(1, 1024);
  table.add("dither", &O::dither, "noise on training recordings, in 16-bit samples").require_range(0, 1000);
  table.add("deltas", &O::deltas, "time derivatives of the features, up to this order")
      .use_for(OptionUse::features)
      .require_range(0, 2);
  table.add("cmvn", &O::cmvn, "frames over which the mean of the features is subtracted")
      .use_for(OptionUse::features)
      .require_one_of({"none", "utterance", "speaker", "global"});
  table.add("cmvn_variance", &O::cmvn_variance, "also divide by the standard deviation")
      .use_for(OptionUse::features)
      .use_if({"cmvn", {"utterance", "speaker", "global"}});
  table.add("feature_cache", &O::feature_cache, "folder for computed features; empty: memory only")
      .use_for(OptionUse::data)
      .mark_as_path()
      .allow_change_on_resume();
}

void add_augmentation_options(SpeechOptionTable& table) {
  using O = SpeechDataOptions;
  constexpr double kMaxWidth = 1 << 20;
  const OptionCondition augments{"spec_augment"};
  table.add("spec_augment", &O::spec_augment,
            "mask frequency bands and time spans in training, as SpecAugment");
  table.add("frequency_masks", &O::frequency_masks, "number of frequency masks")
      .use_if(augments)
      .require_range(0, 100);
  table.add("frequency_width", &O::frequency_width, "largest number of bins in a frequency mask")
      .use_if(augments)
      .require_range(0, 1024);
  table.add("time_masks", &O::time_masks, "number of time masks").use_if(augments).require_range(0, 100);
  table.add("time_width", &O::time_width, "largest number of frames in a time mask")
      .use_if(augments)
      .require_range(0, kMaxWidth);
  table.add("time_share", &O::time_share, "largest share of the utterance in a time mask")
      .use_if(augments)
      .require_range(0, 1);
}

const SpeechOptionTable& speech_table() {
  static const auto& table = *[] {
    auto* const options = new SpeechOptionTable;
    add_corpus_options(*options);
    add_feature_options(*options);
    add_augmentation_options(*options);
    return options;
  }();
  return table;
}

}  // namespace

std::vector<OptionSpec> list_speech_options(const CatalogueEntry& set) {
  std::vector<std::string> excluded;
  const auto exclude = [&](bool condition, std::initializer_list<const char*> names) {
    if (condition) excluded.insert(excluded.end(), names.begin(), names.end());
  };
  exclude(set.sample_rate == 0,
          {"sample_rate", "resample", "channel", "max_seconds", "num_mel_bins", "dither"});
  exclude(!set.has_part_folders(), {"train_part", "valid_part", "test_part"});
  exclude(set.label_kind == SpeechLabelKind::phones, {"lexicon", "unknown_words"});
  exclude(set.format != DatasetFormat::timit, {"phone_set"});
  std::vector<OptionSpec> options;
  for (OptionSpec& spec : speech_table().specs()) {
    if (std::find(excluded.begin(), excluded.end(), spec.name) != excluded.end()) continue;
    // The transcripts of such a corpus consist of words only if there is a lexicon.
    if (spec.name == "unknown_words" && set.label_kind == SpeechLabelKind::phones_or_words)
      spec.used_if = {.option = "lexicon", .values = {""}, .is_negated = true};
    options.push_back(std::move(spec));
  }
  return options;
}

SpeechDataOptions read_speech_options(const OptionValues& values) {
  return speech_table().read(values);
}

}  // namespace tapeformer
