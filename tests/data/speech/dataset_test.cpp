#include "data/speech/dataset.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/frames.h"
#include "core/threads/threads.h"
#include "data/audio/audio.h"
#include "data/batches/bucket_plan.h"
#include "tests/data/stand_ins.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Writes `count` recordings of noise at 8 kHz, and returns them as the utterances of two speakers. Recording
// i has the id "u<i>" and 2000 + 500 * i samples.
Corpus noise_corpus(const TempDir& dir, int count) {
  Corpus corpus{"noise", {}};
  for (int i = 0; i < count; ++i) {
    const Tensor samples = uniform({2000 + 500 * i}, -0.5, 0.5, i, DType::float32);
    Utterance utterance;
    utterance.id = "u" + std::to_string(i);
    utterance.speaker = i % 2 ? "odd" : "even";
    utterance.path = dir / (utterance.id + ".wav");
    utterance.phones = i % 3 ? Words{"a", "b"} : Words{"b"};
    write_wav(utterance.path, {samples.data<float>(), static_cast<size_t>(samples.numel())}, 8000);
    corpus.utterances.push_back(utterance);
  }
  return corpus;
}

SpeechDatasetOptions options_8k() {
  SpeechDatasetOptions options;
  options.feature_options.filterbank.rate = 8000;
  return options;
}

const PhoneTable kPhones({"a", "b"});

}  // namespace

TEST_CASE("a batch contains padded features and labels, and their lengths") {
  const TempDir dir;
  SpeechDatasetOptions options = options_8k();
  options.delta_order = 2;
  const SpeechDataset set(noise_corpus(dir, 6), kPhones, options);
  CHECK(set.size() == 6);
  CHECK(set.dims() == 120);
  const Batch batch = set.batch(std::vector<int64_t>{3, 1});
  const int64_t longest = set.frame_count(3), shorter = set.frame_count(1);
  CHECK(longest == 1 + (3500 - 200) / 80);
  CHECK(batch.elements.shape() == Shape({2, longest, 120}));
  CHECK(batch.lengths.to_vector() == std::vector<double>{double(longest), double(shorter)});
  CHECK(batch.labels.to_vector() == std::vector<double>{2, 0, 1, 2});
  CHECK(batch.label_lengths.to_vector() == std::vector<double>{1, 2});
  const auto values = batch.elements.to_vector();
  const auto start = values.begin() + longest * 120;
  CHECK(std::vector<double>(start, start + shorter * 120) == set.features(1).to_vector());
  CHECK(std::all_of(start + shorter * 120, values.end(), [](double x) { return x == 0; }));
  CHECK_THROWS_AS(set.batch(std::vector<int64_t>{6}), ShapeError);
}

TEST_CASE("features from a cache equal computed features, and each option and file changes the cache key") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 5);
  SpeechDatasetOptions options = options_8k();
  options.feature_options.filterbank.dither = 1;
  const SpeechDataset plain(corpus, kPhones, options);
  FeatureOptions cached = options.feature_options;
  cached.cache_folder = (dir / "cache").string();
  CHECK(!FeatureStore(corpus, cached).is_from_cache());
  CHECK(FeatureStore(corpus, cached).is_from_cache());
  options.feature_options = cached;
  const SpeechDataset read(corpus, kPhones, options);
  for (int64_t i = 0; i < 5; ++i) CHECK(max_difference(read.features(i), plain.features(i)) == 0);

  std::vector<FeatureOptions> others(8, cached);
  others[0].filterbank.bins = 41;
  others[1].filterbank.dither = 0.5;
  others[2].seed = 1;
  others[3].filterbank.low_hz = 30;
  others[4].filterbank.snip_edges = false;
  others[5].resample = true;
  others[6].filterbank.use_energy = true;
  others[7].filterbank.shift_ms = 12.5;
  std::vector<std::string> keys = {make_cache_key(corpus, cached)};
  for (const FeatureOptions& other : others) keys.push_back(make_cache_key(corpus, other));
  Corpus changed = corpus;
  changed.utterances[2].begin_seconds = 0.1;
  keys.push_back(make_cache_key(changed, cached));
  write_wav(corpus.utterances[0].path, std::vector<float>(900, 0.5f), 8000);
  keys.push_back(make_cache_key(corpus, cached));
  std::sort(keys.begin(), keys.end());
  CHECK(std::unique(keys.begin(), keys.end()) == keys.end());

  CHECK(!FeatureStore(changed, cached).is_from_cache());
  const auto path = dir / "cache" / (make_cache_key(changed, cached) + ".features");
  REQUIRE(std::filesystem::exists(path));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  CHECK(!FeatureStore(changed, cached).is_from_cache());  // a truncated cache file is not used
  CHECK(FeatureStore(changed, cached).is_from_cache());
}

TEST_CASE("a feature cache stores faults of recordings, but no faults of commands and no damaged values") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 3);
  FeatureOptions cached = options_8k().feature_options;
  cached.cache_folder = (dir / "cache").string();
  write_file(corpus.utterances[1].path, std::string(500, 'x'));
  CHECK(!FeatureStore(corpus, cached).is_from_cache());
  const FeatureStore kept(corpus, cached);
  CHECK(kept.is_from_cache());
  CHECK(contains(kept.error(1), "not a readable audio file"));

  const auto path = dir / "cache" / (make_cache_key(corpus, cached) + ".features");
  std::string bytes = read_file(path);
  const float damage = NAN;
  std::memcpy(bytes.data() + 400, &damage, sizeof damage);
  write_file(path, bytes);
  CHECK(!FeatureStore(corpus, cached).is_from_cache());
  CHECK(FeatureStore(corpus, cached).is_from_cache());

  // The command fails because late.wav does not exist yet. The cache does not store this failure. After
  // late.wav is created, a new FeatureStore must therefore run the command again.
  corpus.utterances[1].path.clear();
  corpus.utterances[1].command = "cat " + (dir / "late.wav").string() + " 2>/dev/null";
  const FeatureStore failed(corpus, cached);
  CHECK(contains(failed.error(1), "failed with exit code 1"));
  CHECK(max_difference(failed.features(0), FeatureStore(corpus, options_8k().feature_options).features(0)) ==
        0);
  std::filesystem::copy_file(corpus.utterances[2].path, dir / "late.wav");
  const FeatureStore later(corpus, cached);
  CHECK(!later.is_from_cache());
  CHECK(later.error(1).empty());
  CHECK(FeatureStore(corpus, cached).is_from_cache());
}

TEST_CASE("a feature cache with a flipped bit at any offset is computed again") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 2);
  FeatureOptions cached = options_8k().feature_options;
  cached.cache_folder = (dir / "cache").string();
  const Tensor expected = FeatureStore(corpus, cached).features(0);
  const auto path = dir / "cache" / (make_cache_key(corpus, cached) + ".features");
  const std::string whole = read_file(path);
  const size_t stride = whole.size() / 60 + 1;
  for (size_t at = 0; at < whole.size(); at += at + stride < whole.size() ? stride : 7) {
    CAPTURE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write_file(path, damaged);
    const FeatureStore again(corpus, cached);
    CHECK(!again.is_from_cache());
    CHECK(max_difference(again.features(0), expected) == 0);
    REQUIRE(read_file(path) == whole);
  }
}

TEST_CASE("the index of a feature cache with overflowing sizes is not used") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 1);
  FeatureOptions cached = options_8k().feature_options;
  cached.cache_folder = (dir / "cache").string();
  const auto path = dir / "cache" / (make_cache_key(corpus, cached) + ".features");
  const auto bytes_of = [](const std::vector<int64_t>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  };
  // The checksum of the index is valid, but the size of its utterance, 2 frames of `dims` floats, overflows.
  for (const int64_t dims : {int64_t{1} << 61, int64_t{1} << 62, INT64_MAX}) {
    const std::string index = bytes_of({1, 2, dims, 0, 0, 0});
    write_file(path, index + bytes_of({int64_t{compute_checksum(index).crc32}}) + "tapeformer features 5\n");
    CHECK(!FeatureStore(corpus, cached).is_from_cache());
  }
  CHECK(FeatureStore(corpus, cached).is_from_cache());
}

TEST_CASE("unfinished files of a feature cache are removed unless a process has them open") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 1);
  FeatureOptions cached = options_8k().feature_options;
  cached.cache_folder = (dir / "cache").string();
  const auto key = dir / "cache" / "0123.features";
  const std::string written = make_temporary_path(key.string()), left = make_temporary_path(key.string()),
                    foreign = (dir / "cache" / "notes.tmp").string();
  for (const std::string& name : {written, left, foreign}) write_file(name, std::string("half"));
  {
    const File writer(written, O_RDONLY);
    REQUIRE(::flock(writer.descriptor(), LOCK_EX) == 0);
    const FeatureStore store(corpus, cached);
    CHECK(std::filesystem::exists(written));
    CHECK_FALSE(std::filesystem::exists(left));
    CHECK(std::filesystem::exists(foreign));
  }
  const FeatureStore store(corpus, cached);
  CHECK_FALSE(std::filesystem::exists(written));
}

TEST_CASE("an utterance with a fault is left out and reported") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 3);
  corpus.utterances[1].fault = "list:2: an empty transcript";
  SpeechDatasetOptions options = options_8k();
  const SpeechDataset set(corpus, kPhones, options);
  CHECK(set.size() == 2);
  CHECK(set.report().faults == std::vector<std::string>{"u1: list:2: an empty transcript"});
  options.reject_faulty_utterances = true;
  CHECK(contains(message_of<DataError>([&] { SpeechDataset(corpus, kPhones, options); }),
                 "list:2: an empty transcript"));
}

TEST_CASE("dither depends on the epoch and the utterance, and repeated calls give the same noise") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 3);
  std::filesystem::copy_file(corpus.utterances[0].path, corpus.utterances[1].path,
                             std::filesystem::copy_options::overwrite_existing);
  SpeechDatasetOptions options = options_8k();
  const SpeechDataset clean(corpus, kPhones, options);
  options.feature_options.filterbank.dither = 1;
  options.feature_options.cache_folder = (dir / "cache").string();
  const SpeechDataset noisy(corpus, kPhones, options), again(corpus, kPhones, options);
  CHECK(max_difference(clean.features(0, 1), clean.features(0, 2)) == 0);
  CHECK(max_difference(clean.features(0), clean.features(1)) == 0);
  CHECK(max_difference(noisy.features(0), noisy.features(1)) > 1e-4);
  CHECK(max_difference(noisy.features(0), noisy.features(0, 0)) == 0);
  CHECK(max_difference(noisy.features(0, 0), noisy.features(0, 1)) > 1e-4);
  CHECK(max_difference(noisy.features(0, 1), noisy.features(0, 2)) > 1e-4);
  CHECK(max_difference(noisy.features(0, 2), again.features(0, 2)) == 0);
  const std::vector<int64_t> one = {2};
  CHECK(max_difference(noisy.batch(one, nullptr, {}, 1).elements, noisy.batch(one).elements) > 1e-4);
}

TEST_CASE("the length of an utterance is its number of complete steps of the model") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 1);
  SpeechDatasetOptions options = options_8k();
  const int64_t frames = SpeechDataset(corpus, kPhones, options).frame_count(0);
  options.subsampling = 4;
  const auto usable = [&](int64_t labels) {
    corpus.utterances[0].phones.clear();
    for (int64_t i = 0; i < labels; ++i) corpus.utterances[0].phones.push_back(i % 2 ? "b" : "a");
    return message_of<DataError>([&] { SpeechDataset(corpus, kPhones, options); }).empty();
  };
  REQUIRE(frames % 4 != 0);
  CHECK(usable(frames / 4));
  CHECK(!usable(frames / 4 + 1));
}

TEST_CASE("unusable files are left out and reported, or are errors with reject_faulty_utterances") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 8);
  write_file(corpus.utterances[0].path, std::string("no sound"));
  write_wav(corpus.utterances[1].path, std::vector<float>(4000, 0.0f), 8000);
  write_wav(corpus.utterances[2].path, std::vector<float>{0, 1, 0}, 8000);
  write_wav(corpus.utterances[3].path, std::vector<float>{0, 1, 0}, 16000);
  corpus.utterances[4].phones = {"a", "x"};
  corpus.utterances[5].phones = {};
  corpus.utterances[6].phones = Words(40, "a");  // 40 equal phones need 39 blanks between them
  const SpeechDataset set(corpus, kPhones, options_8k());
  CHECK(set.size() == 1);
  REQUIRE(set.report().faults.size() == 6);
  const std::vector<std::string> parts = {
      "u0.wav: not a readable audio file",       "u1.wav: is silent",
      "u2.wav: 3 samples are less than a frame", "expected 8000 samples per second, found 16000",
      "u4: \"x\" is not one of the 2 phones",    "u5: has no labels"};
  for (size_t i = 0; i < parts.size(); ++i) CHECK(contains(set.report().faults[i], parts[i]));
  CHECK(set.report().too_short_ids == std::vector<std::string>{"u6"});
  CHECK(count_min_ctc_steps(std::vector<int64_t>{1, 1, 2, 1, 1}) == 7);
  SpeechDatasetOptions strict = options_8k();
  strict.reject_faulty_utterances = true;
  CHECK(contains(message_of<DataError>([&] { SpeechDataset(corpus, kPhones, strict); }), "noise: u0: "));
}

TEST_CASE("the error for a corpus without usable utterances contains the reasons of all utterances") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 3);
  write_file(corpus.utterances[0].path, std::string("no sound"));
  write_wav(corpus.utterances[1].path, std::vector<float>(4000, 0.0f), 8000);
  corpus.utterances[2].phones = Words(40, "a");
  corpus.dropped_count = 4;
  const std::string error = message_of<DataError>([&] { SpeechDataset(corpus, kPhones, options_8k()); });
  CAPTURE(error);
  CHECK(contains(error,
                 "none of the 7 utterances can be used; 4 have words that the lexicon lacks; 1 are "
                 "shorter than their labels; 2 cannot be used:\nu0: "));
  CHECK(contains(error, "u0.wav: not a readable audio file"));
  CHECK(contains(error, "u1.wav: is silent"));
}

TEST_CASE("scoring keeps utterances that are shorter than their labels or have unseen phones") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 4);
  corpus.utterances[0].phones = Words(40, "a");
  corpus.utterances[1].phones = {"a", "x"};
  corpus.utterances[2].phones = {};
  SpeechDatasetOptions options = options_8k();
  CHECK(SpeechDataset(corpus, kPhones, options).size() == 1);
  options.purpose = SpeechPurpose::scoring;
  const SpeechDataset set(corpus, kPhones, options);
  REQUIRE(set.size() == 3);
  CHECK(set.report().too_short_ids == std::vector<std::string>{"u0"});
  CHECK(set.report().unseen_phones == std::set<std::string>{"x"});
  CHECK(set.report().faults == std::vector<std::string>{"u2: has no labels"});
  CHECK(set.report().label_count == 43);
  CHECK(set.reference_phones(1) == Words{"a", "x"});
  CHECK(set.labels(1).empty());
  CHECK_FALSE(set.is_alignable(0));
  CHECK_FALSE(set.is_alignable(1));
  CHECK(set.is_alignable(2));
  const std::vector<int64_t> one = {1};
  CHECK(set.batch(one).labels.shape() == Shape({1, 1}));
}

TEST_CASE("values that are not finite are faults of their utterance for all kinds of files") {
  const TempDir dir;
  Corpus corpus = noise_corpus(dir, 4);
  // Changes a WAV file so that its samples are 32-bit floats. libsndfile returns such samples unchanged.
  const std::vector<float> samples = {0.1f, NAN, 0.3f, -0.2f};
  std::string wav = read_file(corpus.utterances[0].path);
  wav[20] = 3;   // format code of floating-point samples
  wav[32] = 4;   // number of bytes per frame
  wav[34] = 32;  // number of bits per sample
  for (size_t i = 0; 44 + 4 * i + 4 <= wav.size(); ++i) std::memcpy(&wav[44 + 4 * i], &samples[i % 4], 4);
  write_file(corpus.utterances[0].path, wav);
  std::string mfc("\0\0\0\x1a", 4);
  for (int i = 0; i < 26; ++i) mfc += i == 20 ? std::string("\x7f\x80\0\0", 4) : std::string(4, '\0');
  corpus.utterances[1].path = dir / "u1.mfc";
  corpus.utterances[1].source = SpeechSource::mfc;
  write_file(corpus.utterances[1].path, mfc);
  const SpeechDataset set(corpus, kPhones, options_8k());
  REQUIRE(set.report().faults.size() == 2);
  CHECK(contains(set.report().faults[0], "u0.wav: frame 0 has a value that is not finite"));
  CHECK(contains(set.report().faults[1], "u1.mfc: frame 1 has a value that is not finite"));
}

TEST_CASE("features are normalised by utterance, speaker or data set") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 4);
  const auto mean_of = [](const SpeechDataset& set, const std::vector<int64_t>& which) {
    FeatureStatistics sum;
    for (const int64_t i : which) sum.add(set.features(i));
    return std::abs(sum.sums[7]) / sum.frame_count;
  };
  SpeechDatasetOptions options = options_8k();
  const SpeechDataset utterance(corpus, kPhones, options);
  options.normalization = Normalization::speaker;
  const SpeechDataset speaker(corpus, kPhones, options);
  options.normalization = Normalization::global;
  const SpeechDataset global(corpus, kPhones, options);
  CHECK(mean_of(utterance, {2}) < 1e-5);
  CHECK(mean_of(speaker, {0, 2}) < 1e-5);
  CHECK(mean_of(speaker, {0}) > 1e-4);
  CHECK(mean_of(global, {0, 1, 2, 3}) < 1e-5);
  CHECK(mean_of(global, {0, 2}) > 1e-4);
  options.global_statistics = global.global_statistics();
  CHECK(max_difference(SpeechDataset({"one", {corpus.utterances[3]}}, kPhones, options).features(0),
                       global.features(3)) == 0);
}

TEST_CASE("with a limit, statistics of a speaker use all utterances of the speaker") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 7);
  SpeechDatasetOptions options = options_8k();
  for (const Normalization kind : {Normalization::speaker, Normalization::utterance}) {
    options.normalization = kind;
    options.limit = 0;
    const SpeechDataset whole(corpus, kPhones, options);
    options.limit = 2;
    const SpeechDataset part(corpus, kPhones, options);
    REQUIRE(part.size() == 2);
    CHECK(part.report().utterance_count == 2);
    for (const auto& [mine, theirs] : {std::pair<int64_t, int64_t>{0, 0}, {1, 3}}) {
      CHECK(part.utterance(mine).id == whole.utterance(theirs).id);
      CHECK(max_difference(part.features(mine), whole.features(theirs)) == 0);
    }
  }
}

TEST_CASE("batches do not depend on threads, and masks depend on the stream and the utterance") {
  const TempDir dir;
  const Corpus corpus = noise_corpus(dir, 7);
  const int before = get_thread_count();
  const SpecAugmentOptions masks{.frequency_width = 10, .time_width = 10};
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6};
  std::vector<Tensor> results;
  for (const int count : {1, 2, 5}) {
    set_thread_count(count);
    const SpeechDataset set(corpus, kPhones, options_8k());
    results.push_back(set.batch(all, &masks, RandomStream(1, "spec_augment", 9)).elements);
    CHECK(max_difference(results[0], set.batch(all, &masks, RandomStream(1, "spec_augment", 10)).elements) >
          0);
  }
  set_thread_count(before);
  CHECK(max_difference(results[0], results[1]) == 0);
  CHECK(max_difference(results[0], results[2]) == 0);
}

namespace {

// Checks that AN4 and the training split of the spoken digits have no utterances with faults. Utterances that
// are too short for their labels are allowed. Also checks that CMUdict contains all words of the digits, and
// that batches have little padding.
void check_corpora(const std::filesystem::path& data) {
  const Lexicon cmudict = Lexicon::read(data / "cmudict" / "cmudict.dict");
  Corpus digits = read_spoken_digits(data / "fsdd", "train");
  CHECK(assign_phones(digits, cmudict, UnknownWordPolicy::refuse).dropped_count == 0);
  const auto an4 = std::filesystem::exists(data / "an4" / "etc") ? data / "an4" : data / "an4" / "an4";
  for (const Corpus& corpus : {read_an4(an4, "train"), read_an4(an4, "test"), digits}) {
    std::vector<Words> sequences;
    for (const Utterance& utterance : corpus.utterances) sequences.push_back(utterance.phones);
    const SpeechDataset set(corpus, make_phone_table(sequences), options_8k());
    CHECK(set.report().faults.empty());
    CHECK(set.size() + static_cast<int64_t>(set.report().too_short_ids.size()) ==
          static_cast<int64_t>(corpus.utterances.size()));
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < set.size(); ++i) lengths.push_back(set.frame_count(i));
    const auto batches = plan_batches(lengths, {.max_batch_length = 8000}, 0);
    MESSAGE(corpus.name << ": " << set.size() << " utterances, " << set.report().frame_count << " frames, "
                        << set.report().label_count << " labels of " << set.phone_table().class_count() - 1
                        << " phones, " << set.report().too_short_ids.size() << " too short; "
                        << batches.size() << " batches, " << 100 * compute_padding_share(lengths, batches)
                        << " % padding");
    CHECK(compute_padding_share(lengths, batches) < 0.15);
    CHECK(set.batch(batches[0]).elements.size(2) == set.dims());
  }
}

}  // namespace

TEST_CASE("every utterance of generated AN4 and spoken digits is usable") {
  const TempDir dir;
  write_stand_in_an4(dir / "an4", 4);
  write_stand_in_fsdd(dir / "fsdd", 12);
  write_stand_in_cmudict(dir / "cmudict");
  check_corpora(dir.path());
}

TEST_CASE("every utterance of AN4 and of the spoken digits is usable") {
  if (!have_real("an4") || !have_real("fsdd") || !have_real("cmudict")) {
    MESSAGE("skipped: no an4, fsdd and cmudict in $TAPEFORMER_DATA");
    return;
  }
  check_corpora(std::getenv("TAPEFORMER_DATA"));
}
