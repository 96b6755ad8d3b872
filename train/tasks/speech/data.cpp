#include "train/tasks/speech/data.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/frames.h"
#include "data/files/checksum.h"
#include "data/files/text_lines.h"
#include "train/build.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {
namespace {

// Returns the phones of data.phone_set for TIMIT, and those of the training part for other corpora.
PhoneTable make_training_phones(const SpeechCorpus& corpus, const Corpus& part) {
  if (corpus.has_phone_set()) return PhoneTable(list_timit_phones(corpus.options().phone_set));
  std::vector<Words> sequences;
  for (const Utterance& u : part.utterances) sequences.push_back(u.phones);
  return make_phone_table(sequences);
}

// Throws an error if a model with the phones `trained` cannot learn the phones `own` of the training part.
void check_phones(const Config& config, const SpeechCorpus& corpus, const Corpus& part, const PhoneTable& own,
                  const PhoneTable& trained) {
  constexpr const char* kNewPhones =
      "model.init_tokens = \"new\" makes new phones from the data, whose outputs start anew";
  if (corpus.has_phone_set() && own.names() != trained.names())
    throw ConfigError(concat_text("data.phone_set = \"", config.data.get<std::string>("phone_set"),
                                  "\": the phones of model.init are others; ", kNewPhones));
  Words unknown;
  for (const std::string& phone : own.names())
    if (phone != PhoneTable::kBlankName && !trained.contains(phone)) unknown.push_back(phone);
  if (!unknown.empty())
    throw DataError(concat_text(part.name, ": the phones of model.init lack ", abbreviate_list(unknown), "; ",
                                kNewPhones));
}

void check_dims(const SpeechDataset& utterances, const std::string& name, const SpeechMetadata& trained) {
  if (utterances.dims() == trained.feature_dim) return;
  const std::string text = concat_text(name, ": features of ", utterances.dims(),
                                       " dims, but the model was trained on ", trained.feature_dim);
  // In an archive, the number of features per frame is a property of the data, so a mismatch is a
  // DataError. For other sources, the config determines this number, so a mismatch is a ConfigError.
  if (utterances.utterance(0).source == SpeechSource::ark) throw DataError(text);
  throw ConfigError(text);
}

}  // namespace

SpeechPart::SpeechPart(std::shared_ptr<const SpeechDataset> all, const std::string& split,
                       const SpeechModelOptions& model, const SpeechCorpus& corpus)
    : utterances(std::move(all)), seed_(corpus.seed()) {
  int64_t longest = 1;
  for (int64_t i = 0; i < utterances->size(); ++i) {
    const int64_t frames = utterances->frame_count(i);
    const bool is_limited = model.encoder_kind == SpeechEncoderKind::transformer;
    const bool too_short = count_subsampled_steps(frames, model.subsampling) == 0;
    (is_limited && frames > model.max_frames ? too_long_indices
     : too_short                             ? too_short_indices
                                             : usable_indices)
        .push_back(i);
    longest = std::max(longest, frames);
  }
  info_ = {.name = std::string(corpus.set().name),
           .split = split,
           .vocabulary = utterances->phone_table().class_count(),
           .length = longest - 1,
           .feature_count = utterances->dims()};
  const SpeechDataOptions& options = corpus.options();
  if (options.spec_augment)
    augment_ = SpecAugmentOptions{.frequency_masks = options.frequency_masks,
                                  .frequency_width = options.frequency_width,
                                  .time_masks = options.time_masks,
                                  .time_width = options.time_width,
                                  .time_share = options.time_share};
}

std::vector<int64_t> SpeechPart::lengths() const {
  std::vector<int64_t> result;
  for (const int64_t i : usable_indices) result.push_back(utterances->frame_count(i));
  return result;
}

Batch SpeechPart::training_batch(std::span<const int64_t> indices, const BatchPlace& place) const {
  const RandomStream stream(seed_, "spec_augment", static_cast<uint64_t>(place.number));
  return utterances->batch(find(indices), augment_ ? &*augment_ : nullptr, stream, place.epoch);
}

std::string SpeechPart::describe_example(int64_t index) const {
  return utterances->utterance(usable_indices[static_cast<size_t>(index)]).id;
}

std::string SpeechPart::compute_digest() const {
  Checksum checksum;
  const auto append = [&](const std::string& text) { checksum.append(text.data(), text.size()); };
  for (int64_t i = 0; i < utterances->size(); ++i) {
    append(utterances->utterance(i).id + " " + std::to_string(utterances->frame_count(i)));
    for (const int64_t label : utterances->labels(i)) append(" " + std::to_string(label));
    append("\n");
  }
  return concat_text(utterances->size(), " utterances of ", info_.split, ", CRC-32 ",
                     format_crc32(checksum.crc32));
}

std::vector<int64_t> SpeechPart::find(std::span<const int64_t> indices) const {
  std::vector<int64_t> found;
  for (const int64_t index : indices) found.push_back(usable_indices.at(static_cast<size_t>(index)));
  return found;
}

std::shared_ptr<const SpeechPart> read_speech_part(const Config& config, const std::string& split,
                                                   const DataAccessOptions& access,
                                                   const SpeechMetadata* trained_metadata,
                                                   const PhoneTable* phone_table) {
  const SpeechCorpus corpus(config, access);
  const Corpus read = corpus.read_part(split);
  const auto model = read_options<SpeechModelOptions>(config);
  SpeechDatasetOptions options = make_speech_dataset_options(corpus, !trained_metadata);
  options.subsampling = model.subsampling;
  options.limit = corpus.limit_of(split);
  PhoneTable phones;
  if (trained_metadata) {
    phones = trained_metadata->phone_table;
    options.global_statistics = trained_metadata->global_statistics;
    if (options.normalization == Normalization::global) get_global_statistics(*trained_metadata);
  } else {
    phones = make_training_phones(corpus, read);
    if (phone_table) check_phones(config, corpus, read, phones, *phone_table);
    if (phone_table) phones = *phone_table;
  }
  auto utterances = std::make_shared<const SpeechDataset>(read, std::move(phones), options);
  if (trained_metadata) check_dims(*utterances, read.name, *trained_metadata);
  auto part = std::make_shared<SpeechPart>(std::move(utterances), split, model, corpus);
  part->unusable_count = static_cast<int64_t>(part->utterances->report().faults.size()) + read.dropped_count;
  if (part->usable_indices.empty() && !trained_metadata)
    throw DataError(
        concat_text(read.name, ": all utterances are longer than model.max_frames = ", model.max_frames));
  return part;
}

SpeechMetadata make_speech_metadata(const SpeechPart& part) {
  const std::vector<int64_t> frames = part.lengths();
  SpeechMetadata metadata{.feature_dim = part.utterances->dims(),
                          .phone_table = part.utterances->phone_table(),
                          .global_statistics = std::nullopt,
                          .max_frame_count = *std::max_element(frames.begin(), frames.end())};
  if (part.utterances->options().normalization == Normalization::global)
    metadata.global_statistics = part.utterances->global_statistics();
  return metadata;
}

SpeechModelOptions make_speech_model_options(const Config& config, const SpeechMetadata& metadata) {
  auto options = read_options<SpeechModelOptions>(config);
  options.features = metadata.feature_dim;
  options.classes = metadata.phone_table.class_count();
  return options;
}

std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechMetadata& metadata,
                                               Device device) {
  return build_model<SpeechModel>(config, device, make_speech_model_options(config, metadata));
}

}  // namespace tapeformer
