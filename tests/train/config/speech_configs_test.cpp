// Tests of the configs in configs/speech for TIMIT, LibriSpeech and Kaldi data directories. The tests
// generate small corpora in these layouts.
#include <doctest/doctest.h>

#include "core/random/rng.h"
#include "data/audio/audio.h"
#include "data/files/file.h"
#include "tests/support/temp_dir.h"
#include "train/build.h"
#include "train/loop/trainer.h"
#include "train/tasks/speech/data.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

void write_noise(const fs::path& path, uint64_t seed) {
  fs::create_directories(path.parent_path());
  std::vector<float> samples(16000);
  const RandomStream noise(seed, "recording");
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(noise.uniform(i)) - 0.5F;
  write_wav(path, samples, 16000);  // readers detect the format by the contents, not by the name
}

void write_timit(const fs::path& folder) {
  uint64_t seed = 0;
  for (const std::string speaker : {"TRAIN/DR1/FCJF0", "TRAIN/DR1/MDAC0", "TEST/DR1/FELC0"})
    for (const std::string sentence : {"SA1", "SI1", "SX2", "SX3"}) {
      write_noise(folder / speaker / (sentence + ".WAV"), ++seed);
      write_file(folder / speaker / (sentence + ".PHN"),
                 std::string("0 100 h#\n100 200 ix\n200 300 q\n300 400 zh\n"));
    }
}

void write_librispeech(const fs::path& folder) {
  uint64_t seed = 0;
  for (const std::string part : {"train-clean-100", "dev-clean", "test-clean"}) {
    write_file(folder / part / "84/121/84-121.trans.txt",
               std::string("84-121-0 GO ON\n84-121-1 MAYBE GO\n84-121-2 ON\n"));
    for (const std::string number : {"0", "1", "2"})
      write_noise(folder / part / "84/121" / ("84-121-" + number + ".flac"), ++seed);
  }
  write_file(folder / "lexicon", std::string("GO G OW1\nON AA1 N\n"));
}

void write_kaldi(const fs::path& folder) {
  uint64_t seed = 0;
  for (const std::string part : {"train", "valid", "test"}) {
    for (const std::string id : {"a", "b"}) write_noise(folder / part / (id + ".wav"), ++seed);
    write_file(folder / part / "wav.scp", std::string("a a.wav\nb b.wav\n"));
    write_file(folder / part / "text", std::string("a AH B\nb B IY\n"));
    write_file(folder / part / "utt2spk", std::string("a s1\nb s2\n"));
  }
}

Config load(const std::string& name, const fs::path& corpus, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"data.path=\"" + corpus.string() + "\"", "data.max_frames=400", "model.layers=1",
                           "run.device=cpu", "run.threads=1"});
  return load_config((fs::path(SOURCE_DIR) / "configs/speech" / (name + ".toml")).string(), sets);
}

}  // namespace

TEST_CASE("speech configs: TIMIT, LibriSpeech and Kaldi directories are read, and every model takes a step") {
  struct Row {
    const char* corpus;
    void (*write)(const fs::path& folder);
    std::vector<std::string> sets;
    int64_t train, evaluation, classes;
    const char* split;
  };
  const TempDir dir;
  for (const Row& row : {Row{"timit", write_timit, {"data.validation=2"}, 4, 2, 49, "valid"},
                         Row{"librispeech",
                             write_librispeech,
                             {"data.lexicon=\"" + (dir / "librispeech/lexicon").string() + "\""},
                             2,
                             2,
                             5,
                             "valid"},
                         Row{"kaldi", write_kaldi, {}, 2, 2, 4, "valid"}}) {
    const fs::path folder = dir / row.corpus;
    row.write(folder);
    for (const char* model : {"bilstm", "softmax", "linear", "lsh-4"}) {
      INFO(row.corpus << " " << model);
      const Config config = load(std::string(row.corpus) + "-" + model, folder, row.sets);
      CHECK(config.data.dataset == row.corpus);
      CHECK(SpeechCorpus(config).choose_evaluation_split() == row.split);
      const DryRunResult step =
          Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).dry_run();
      CHECK(step.training_example_count == row.train);
      CHECK(step.evaluation_example_count == row.evaluation);
      CHECK(step.loss > 0);
      CHECK_FALSE(fs::exists(dir / "run"));
      const SpeechMetadata metadata = make_speech_metadata(*read_speech_part(config, "train", "", nullptr));
      CHECK(metadata.phone_table.class_count() == row.classes);
      CHECK(metadata.feature_dim == 40);
      CHECK_FALSE(SpeechCorpus(config).read_part("test").utterances.empty());
    }
  }
}

TEST_CASE("speech configs: own.toml needs only the corpus, and divides a short corpus into many updates") {
  const TempDir dir;
  write_kaldi(dir / "corpus");
  const std::string file = (fs::path(SOURCE_DIR) / "configs/speech/own.toml").string();
  CHECK(contains(message_of<ConfigError>([&] { load_config(file, {}); }), "data.path"));
  const Config config = load_config(file, {"data.path=\"" + (dir / "corpus").string() + "\""});
  const DryRunResult step =
      Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).dry_run();
  CHECK(step.training_example_count == 2);
  CHECK(step.loss > 0);
  // Sixteen minutes of training speech have 96,000 frames. If an epoch has a few updates only, the model
  // gives blanks.
  CHECK(96000 / config.data.get<int64_t>("max_frames") >= 30);
  // The plateau schedule counts evaluations, so the end of the training would depend on the size of the
  // corpus.
  CHECK(config.schedule.kind == "cosine");
  CHECK(config.train.steps > 0);
}

TEST_CASE("speech configs: a part is read only from the folder in its setting") {
  const TempDir dir;
  const fs::path folder = dir / "librispeech";
  write_librispeech(folder);
  fs::create_directories(folder / "more");
  fs::rename(folder / "test-clean", folder / "more/test-clean");
  const auto count = [&](const std::string& set, const std::string& split) {
    const Config config =
        load("librispeech-linear", folder, {"data.lexicon=\"" + (folder / "lexicon").string() + "\"", set});
    return SpeechCorpus(config).read_part(split).utterances.size();
  };
  CHECK(count("data.train_part=train-clean-100", "train") == 2);
  CHECK(count("data.train_part=train-clean-100/", "train") == 2);
  CHECK(count("data.train_part=./train-clean-100//", "train") == 2);
  CHECK(count("data.test_part=more/test-clean", "test") == 2);
  CHECK(count("data.test_part=" + (folder / "more/test-clean").string(), "test") == 2);
  for (const std::string part : {".", "./", "dev-clean/..", "..", "/"})
    CHECK(contains(message_of<ConfigError>([&] { count("data.train_part=" + part, "train"); }),
                   "expected the folder of a part"));
  CHECK_THROWS_AS(count("data.test_part=test-clean", "test"), DataError);
  CHECK(count("data.test_part=test-clean", "train") == 2);
  CHECK(contains(
      message_of<DataError>([&] {
        SpeechCorpus(load("librispeech-linear", folder, {"data.test_part=test-clean"})).check_part_folders();
      }),
      "test-clean: no such folder; data.test_part"));
  // If the folder in data.valid_part is missing, training does not use the test set instead.
  const Config config = load("librispeech-linear", folder, {"data.valid_part=dev-other"});
  CHECK(contains(message_of<DataError>([&] { SpeechCorpus(config).choose_evaluation_split(); }),
                 (folder / "dev-other").string() + ": no such folder; data.valid_part"));
}

TEST_CASE("speech configs: commands in wav.scp need permission from the command line") {
  const TempDir dir;
  write_kaldi(dir / "kaldi");
  write_file(dir / "kaldi/train/wav.scp", "a cat " + (dir / "kaldi/train/a.wav").string() + " |\nb b.wav\n");
  const Config config = load("kaldi-linear", dir / "kaldi", {});
  const auto read = [&](const DataAccessOptions& data) {
    return read_speech_part(config, "train", data, nullptr)->size();
  };
  CHECK(contains(
      message_of<DataError>([&] { read(""); }),
      "wav.scp:1: a command instead of a file; commands are run only with CorpusOptions::allow_commands"));
  CHECK(read({"", true}) == 2);
}
