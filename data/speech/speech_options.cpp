#include "data/speech/speech_options.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/options/option_table.h"
#include "data/dataset_kind.h"

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

void add_corpus_options(SpeechOptionTable& table, const CatalogueEntry& set) {
  using O = SpeechDataOptions;
  table.add("path", &O::path, "folder of the corpus; empty: the folder in the data directories")
      .mark_as_path()
      .allow_change_on_resume();
  table.add("validation", &O::validation, "examples held out from the end of the training split")
      .require_at_least(0);
  table.add("max_frames", &O::max_frames, "largest number of frames in a batch, padding included")
      .require_range(1, 1e9);
  if (set.has_part_folders()) {
    table.add(
        "train_part", &O::train_part,
        "folder of the training part in path; empty: " + describe_defaults(&CatalogueEntry::train_part));
    table.add("valid_part", &O::valid_part,
              "folder of the part that training evaluates on; empty: " +
                  describe_defaults(&CatalogueEntry::valid_part));
    table.add("test_part", &O::test_part,
              "folder of the test part; empty: " + describe_defaults(&CatalogueEntry::test_part));
  }
  if (set.label_kind != SpeechLabelKind::phones) {
    table
        .add(
            "lexicon", &O::lexicon,
            "file with the phones of words; empty: CMUdict in the data directories, or none for kaldi, whose "
            "text then consists of phones")
        .mark_as_path()
        .allow_change_on_resume();
    OptionSpec& unknown =
        table.add_choice("unknown_words", &O::unknown_words,
                         {{"refuse", UnknownWordPolicy::refuse}, {"drop", UnknownWordPolicy::drop}},
                         "treatment of utterances with words that the lexicon lacks");
    // The transcripts of such a corpus consist of words only if there is a lexicon.
    if (set.label_kind == SpeechLabelKind::phones_or_words)
      unknown.used_if = {.option = "lexicon", .values = {""}, .is_negated = true};
  }
  table.add_choice("bad_utterances", &O::reject_faulty_utterances, {{"drop", false}, {"refuse", true}},
                   "treatment of utterances that cannot be used");
  if (set.format == CorpusFormat::timit)
    table.add_choice(
        "phone_set", &O::phone_set,
        {{"timit61", PhoneSet::timit61}, {"timit48", PhoneSet::timit48}, {"timit39", PhoneSet::timit39}},
        "phones that the model is trained on; scores use 39 phones");
}

void add_recording_options(SpeechOptionTable& table) {
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
  table.add("dither", &O::dither, "noise on training recordings, in 16-bit samples")
      .use_for(OptionUse::training)
      .require_range(0, 1000);
}

void add_feature_options(SpeechOptionTable& table) {
  using O = SpeechDataOptions;
  table.add("deltas", &O::deltas, "time derivatives of the features, up to this order")
      .use_for(OptionUse::features)
      .require_range(0, 2);
  table
      .add_choice("cmvn", &O::normalization,
                  {{"none", Normalization::none},
                   {"utterance", Normalization::utterance},
                   {"speaker", Normalization::speaker},
                   {"global", Normalization::global}},
                  "frames over which the mean of the features is subtracted")
      .use_for(OptionUse::features);
  table.add("cmvn_variance", &O::normalize_variance, "also divide by the standard deviation")
      .use_for(OptionUse::features)
      .use_if({"cmvn", {"utterance", "speaker", "global"}});
  table.add("feature_cache", &O::feature_cache, "folder for computed features; empty: memory only")
      .mark_as_path()
      .allow_change_on_resume();
}

void add_augmentation_options(SpeechOptionTable& table) {
  using O = SpeechDataOptions;
  constexpr double kMaxWidth = 1 << 20;
  table
      .add("spec_augment", &O::spec_augment,
           "mask frequency bands and time spans in training, as SpecAugment")
      .use_for(OptionUse::training);
  const auto add = [&](const char* name, auto member, const char* help, double max) {
    table.add(name, member, help).use_for(OptionUse::training).use_if({"spec_augment"}).require_range(0, max);
  };
  add("frequency_masks", &O::frequency_masks, "number of frequency masks", 100);
  add("frequency_width", &O::frequency_width, "largest number of bins in a frequency mask", 1024);
  add("time_masks", &O::time_masks, "number of time masks", 100);
  add("time_width", &O::time_width, "largest number of frames in a time mask", kMaxWidth);
  add("time_share", &O::time_share, "largest share of the utterance in a time mask", 1);
}

// Returns the options of a corpus, which depend on its labels, its folders and whether it has recordings.
SpeechOptionTable make_table(const CatalogueEntry& set) {
  SpeechOptionTable table(OptionUse::data);
  add_corpus_options(table, set);
  if (set.sample_rate > 0) add_recording_options(table);
  add_feature_options(table);
  add_augmentation_options(table);
  return table;
}

}  // namespace

std::vector<DatasetKind> make_speech_kinds() {
  std::vector<DatasetKind> kinds;
  for (const CatalogueEntry& set : list_catalogue_entries()) {
    if (set.type != DatasetType::speech) continue;
    kinds.push_back({.name = std::string(set.name),
                     .help = std::string(set.title),
                     .options = make_table(set).specs(),
                     .type = set.type,
                     .model_types = {"speech"}});
    kinds.back().find_problems = [&set](const OptionValues& values) {
      OptionProblems problems;
      problems.require(!set.needs_path || !values.get<std::string>("path").empty(), "path",
                       concat_text("data set \"", set.name, "\" needs the folder of the corpus"));
      return problems;
    };
  }
  return kinds;
}

SpeechDataOptions read_speech_options(const CatalogueEntry& set, const OptionValues& values) {
  return make_table(set).read(values);
}

}  // namespace tapeformer
