// Tests of the training of speech models. The tests cover learning, resumed runs, the batches of an epoch,
// the split by speakers, errors about bad data, and scores that include utterances that a model cannot
// process.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/train/quiet_training.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/loop/trainer.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/registry/make_task.h"
#include "train/tasks/speech/evaluate.h"
#include "train/tasks/speech/task.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

std::string split_of(const MetricRecord& record) {
  return std::get<std::string>(
      std::find_if(record.begin(), record.end(), [](const auto& f) { return f.first == "split"; })->second);
}

void cut_back(const fs::path& run_dir, const std::string& kept) {
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints"))
    if (entry.path().filename().string() > kept && entry.path().filename().string().starts_with("step"))
      fs::remove_all(entry.path());
  for (const char* name : {"latest", "best"}) fs::remove(run_dir / "checkpoints" / name);
  fs::create_directory_symlink(kept, run_dir / "checkpoints/latest");
}

}  // namespace

TEST_CASE("speech: both encoders learn, and the best checkpoint has the lowest phone error rate") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  for (const std::string encoder : {"lstm", "transformer"}) {
    CAPTURE(encoder);
    Config config = make_tiny_speech_config(dir / "an4", encoder);
    config.train.epochs = 20;
    config.schedule.kind = "plateau";
    config.schedule.options.set("factor", 0.5);
    const fs::path run_dir = dir / encoder;
    const TrainResult result = train(config, run_dir);
    CHECK(result.best_loss < 15);
    CHECK(result.last_epoch_seconds > 0);
    std::vector<double> rates;
    int64_t epochs = 0;
    for (const MetricRecord& record : read_metrics((run_dir / "metrics.jsonl").string())) {
      if (split_of(record) == "test") rates.push_back(get_metric_number(record, "per", -1));
      if (split_of(record) != "epoch") continue;
      CHECK(get_metric_number(record, "epoch", -1) == ++epochs);
      CHECK(get_metric_number(record, "seconds_per_epoch", -1) > 0);
    }
    CHECK(epochs == 20);
    REQUIRE(rates.size() == 20);
    CHECK(rates.front() > 50);
    CHECK(*std::min_element(rates.begin(), rates.end()) == result.best_loss);

    const LoadedTask best = load_task({.path = run_dir.string(), .checkpoint_name = "best"});
    CHECK(best.as<SpeechTask>().metadata().phone_table.names() == Words{"<blank>", "A", "B", "C"});
    CHECK(best.task->open_evaluation({.split = "test"})->evaluate().selection_metric == result.best_loss);
  }
}

TEST_CASE("speech: an interrupted run continues exactly, also within an epoch") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  Config config = make_tiny_speech_config(dir / "an4", "transformer");
  config.data.options.set("deltas", 1);
  config.data.options.set("cmvn", "global");
  config.data.options.set("spec_augment", true);
  config.data.options.set("frequency_width", 3);
  config.data.options.set("time_width", 3);
  config.schedule.kind = "plateau";
  config.train.epochs = 3;
  config.train.checkpoint_every = 5;
  config.train.keep_last = 100;
  const TrainResult whole = train(config, dir / "whole");
  REQUIRE(whole.step > 15);
  train(config, dir / "cut");
  cut_back(dir / "cut", "step-00000005");
  CHECK(train(config, dir / "cut", true).step == whole.step);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK(read_file((dir / "whole/checkpoints/latest" / name).string()) ==
          read_file((dir / "cut/checkpoints/latest" / name).string()));
  const auto a = read_metrics((dir / "whole/metrics.jsonl").string()),
             b = read_metrics((dir / "cut/metrics.jsonl").string());
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (const char* field : {"step", "loss_nats", "per", "lr", "epoch"})
      CHECK(get_metric_number(a[i], field, -1) == get_metric_number(b[i], field, -1));
  fs::remove(dir / "an4/feat/clstk/train0/train-1.mfc");
  CHECK(contains(message_of<ConfigError>([&] { train(config, dir / "cut", true); }),
                 "the phones or the statistics of the training data differ"));
  config.data.options.set("deltas", 2);
  CHECK(contains(message_of<ConfigError>([&] { train(config, dir / "cut", true); }), "data.deltas = 2"));
}

TEST_CASE("speech: all utterances of a speaker are in the same split") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);  // 12 training speakers
  Config config = make_tiny_speech_config(dir / "an4");
  config.data.options.set("validation", 4);
  const auto train_part = SpeechCorpus(config).read_part("train"),
             valid = SpeechCorpus(config).read_part("valid");
  CHECK(valid.utterances.size() == 6);
  CHECK(train_part.utterances.size() == 30);
  for (const Utterance& a : valid.utterances)
    for (const Utterance& b : train_part.utterances) CHECK(a.speaker != b.speaker);
  CHECK(SpeechCorpus(config).choose_evaluation_split() == "valid");
  config.data.options.set("validation", 36);
  CHECK(contains(message_of<ConfigError>([&] { SpeechCorpus(config).read_part("train"); }),
                 "data.validation = 36"));
  config.data.options.set("validation", 0);
  CHECK(SpeechCorpus(config).choose_evaluation_split() == "test");
  CHECK(
      contains(message_of<ConfigError>([&] { SpeechCorpus(config).read_part("valid"); }), "data.validation"));
}

TEST_CASE("speech: a batch depends only on its number, in any order of the calls") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  Config config = make_tiny_speech_config(dir / "an4");
  config.data.options.set("spec_augment", true);
  config.data.options.set("time_width", 4);
  const auto features = [](const Task& task, int64_t number) {
    return task.batches().next(number).examples.elements.to_vector();
  };
  const auto task = make_task(config, {});
  for (const int64_t number : {0, 1, 5, 2, 3}) {
    CAPTURE(number);
    CHECK(features(*task, number) == features(*make_task(config, {}), number));
  }
}

TEST_CASE("speech: errors about bad data name the file and a remedy") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  const Config config = make_tiny_speech_config(dir / "an4");
  const fs::path bad = dir / "an4/feat/clstk/train0/train-1.mfc";
  write_file(bad, std::string("no features"));
  const auto part = read_speech_part(config, "train", "", nullptr);
  CHECK(part->usable_indices.size() == 11);
  REQUIRE(part->utterances->report().faults.size() == 1);
  CHECK(contains(part->utterances->report().faults.front(), bad.string()));
  Config strict = config;
  strict.data.options.set("bad_utterances", "refuse");
  CHECK(
      contains(message_of<DataError>([&] { read_speech_part(strict, "train", "", nullptr); }), bad.string()));

  Config nowhere = config;
  nowhere.data.options.set("path", (dir / "nowhere").string());
  CHECK(contains(message_of<DataError>([&] { SpeechCorpus(nowhere).read_part("train"); }),
                 (dir / "nowhere").string() + ": no such folder; data.path names the folder of the corpus"));
  nowhere.data.options.set("path", "");
  const std::string looked =
      message_of<DataError>([&] { SpeechCorpus(nowhere, (dir / "data").string()).read_part("train"); });
  CHECK(contains(looked, (dir / "data/an4").string()));
  CHECK(contains(looked, "unpack the features of CMU AN4"));

  Config brief = config;
  brief.model.options.set("encoder", "transformer");
  brief.model.options.set("max_frames", 12);  // the number of frames of two phones
  const auto shorter = read_speech_part(brief, "train", "", nullptr);
  CHECK(!shorter->too_long_indices.empty());
  CHECK(shorter->usable_indices.size() + shorter->too_long_indices.size() == 11);
  brief.model.options.set("max_frames", 3);
  CHECK(contains(message_of<DataError>([&] { read_speech_part(brief, "train", "", nullptr); }),
                 "longer than model.max_frames = 3"));

  SpeechMetadata other = make_speech_metadata(*part);
  const std::vector<int64_t> frames = part->lengths();
  CHECK(other.max_frame_count == *std::max_element(frames.begin(), frames.end()));
  const auto round_trip = [&] { return parse_speech_metadata(to_json(other), "state.json").max_frame_count; };
  CHECK(round_trip() == other.max_frame_count);
  other.feature_dim = 39;
  CHECK(contains(message_of<ConfigError>([&] { read_speech_part(config, "test", "", &other); }),
                 "features of 13 dims, but the model was trained on 39"));
}

namespace {

// Adds an utterance with the single word `word` to the test set of the corpus, and returns the id of the
// utterance.
std::string add_test_utterance(const fs::path& an4, const std::string& word, const Bytes& features) {
  const std::string id = "extra-" + word, name = "clstk/extra/" + id;
  write_file(an4 / "feat" / (name + ".mfc"), features);
  for (const auto& [file, line] :
       {std::pair<std::string, std::string>{"fileids", name}, {"transcription", word + " (" + id + ")"}}) {
    const fs::path path = an4 / "etc" / ("an4_test." + file);
    write_file(path, read_file(path) + line + "\n");
  }
  return id;
}

}  // namespace

TEST_CASE("speech: scores of all models include all utterances, also those that a model cannot process") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 9);
  write_file(dir / "an4/etc/an4.dic",
             read_file(dir / "an4/etc/an4.dic") + "LONG A B C A B C A B C\nUNSEEN A X\nSHORT A B C A B C\n");
  add_test_utterance(dir / "an4", "LONG",
                     make_mfc_file("ABCABCABC", 1));  // nine phones of 6 frames, or 54 frames
  add_test_utterance(dir / "an4", "UNSEEN", make_mfc_file("AB", 2));
  Bytes three_frames = make_mfc_file("A", 3);
  three_frames.resize(4 + 3 * 13 * 4);
  three_frames[2] = 0, three_frames[3] = 3 * 13;
  const std::string brief = add_test_utterance(dir / "an4", "SHORT", three_frames);
  const Config trained_with = make_tiny_speech_config(dir / "an4", "transformer");
  const SpeechMetadata metadata = make_speech_metadata(*read_speech_part(trained_with, "train", "", nullptr));
  int64_t phones = -1;
  for (const auto& [encoder_bound, max_frames_bound, subsampling, unprocessed] :
       {std::tuple<std::string, int64_t, int64_t, std::vector<std::string>>{"lstm", 40, 1, {}},
        {"transformer", 40, 1, {"extra-LONG"}},
        {"transformer", 100, 4, {brief}},
        {"transformer", 1, 1, {"all"}}}) {
    const auto& max_frames = max_frames_bound;  // clang 14 cannot capture structured bindings
    const auto& encoder = encoder_bound;        // clang 14 cannot capture structured bindings
    CAPTURE(encoder);
    CAPTURE(max_frames);
    Config config = make_tiny_speech_config(dir / "an4", encoder);
    config.model.options.set("max_frames", max_frames);
    config.model.options.set("subsampling", subsampling);
    const auto model = make_speech_model(config, metadata);
    const auto part = read_speech_part(config, "test", "", &metadata);
    const SpeechEvaluation e = evaluate(*model, *part, make_speech_evaluation_options(config));
    CHECK(e.score.utterance_count == 12);
    if (phones < 0) phones = e.score.reference_count;
    CHECK(e.score.reference_count == phones);
    CHECK(part->unusable_count == 0);
    const bool all = unprocessed == std::vector<std::string>{"all"};
    if (all) {
      CHECK(e.unprocessed.size() == 12);
      CHECK(e.score.error_rate_percent() == 100);
      CHECK_FALSE(e.mean_ctc_loss.has_value());
      continue;
    }
    std::vector<std::string> ids;
    int64_t deleted = 0;
    for (const UnprocessedUtterance& utterance : e.unprocessed) {
      ids.push_back(utterance.id);
      deleted += utterance.phone_count;
    }
    CHECK(ids == unprocessed);
    CHECK(e.processed_score.reference_count + deleted == e.score.reference_count);
    CHECK(e.processed_score.error_count() + deleted == e.score.error_count());
    CHECK(e.processed_score.utterance_count + static_cast<int64_t>(ids.size()) == e.score.utterance_count);
    CHECK(contains(describe_processed_score(e), ids.empty() ? "" : "without 1 of 12 utterances"));
    CHECK(e.utterance_without_loss_count >= 1);  // the utterance UNSEEN has no loss
    CHECK(std::isfinite(e.mean_ctc_loss.value()));
    for (const ScoredUtterance& utterance : e.utterances)
      if (utterance.id == "extra-UNSEEN") CHECK(utterance.reference == Words{"A", "X"});
  }
}

TEST_CASE("speech: invalid entries in state.json are refused by name") {
  for (const std::string text :
       {"", "{}", "3", "nonsense", "{\"dims\": 0, \"phones\": [\"a\"]}",
        "{\"dims\": 100000000, \"phones\": [\"a\"]}", "{\"dims\": 2, \"phones\": [\"a\", 1]}",
        "{\"dims\": 2, \"phones\": [\"a\", \"a\"]}"}) {
    CAPTURE(text);
    CHECK(contains(message_of<CheckpointError>([&] { parse_speech_metadata(text, "state.json"); }),
                   "state.json: "));
  }
}
