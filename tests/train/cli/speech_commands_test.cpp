// Tests of the commands eval and transcribe with small speech models, and of `reproduce speech-table`.
#include <doctest/doctest.h>

#include <algorithm>

#include "core/random/rng.h"
#include "data/audio/audio.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/loop/trainer.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Trains a run in dir/run on the corpus in dir/an4, and returns the path of the run.
std::string trained(const TempDir& dir, Config config) {
  Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).run();
  return (dir / "run").string();
}

Config streaming_config(const TempDir& dir) {
  Config config = make_tiny_speech_config(dir / "an4", "transformer");
  config.model.options.set("causal", true);
  config.data.options.set("cmvn", "global");
  config.train.epochs = 25;
  return config;
}

std::string feature_file(const TempDir& dir, int number) {
  return (dir /
          ("an4/feat/clstk/test" + std::to_string(number / 3) + "/test-" + std::to_string(number) + ".mfc"))
      .string();
}

}  // namespace

TEST_CASE("eval of speech prints the line of Kaldi and writes files for sclite, alignments and confusions") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  Config config = make_tiny_speech_config(dir / "an4");
  config.train.epochs = 6;
  const std::string run = trained(dir, config);
  const auto text = run_program({"eval", run, "--trn", (dir / "trn").string(), "--confusions", "3",
                                 "--alignments", (dir / "alignments").string()});
  CAPTURE(text.err);
  REQUIRE(text.code == 0);
  CHECK(text.out.starts_with("%PER "));
  const std::string ref = read_file(dir / "trn/ref.trn");
  CHECK(std::count(ref.begin(), ref.end(), '\n') == 9);
  CHECK(contains(ref, "(test-8)"));
  CHECK(fs::exists(dir / "trn/hyp.trn"));
  CHECK(contains(read_file(dir / "alignments"), "REF:"));

  const auto figures = parse_json_output(run_program({"eval", run, "--json"}));
  CHECK(figures["examples"] == 9);
  const double errors = figures["insertions"].get<double>() + figures["deletions"].get<double>() +
                        figures["substitutions"].get<double>();
  CHECK(figures["per"].get<double>() == doctest::Approx(100 * errors / figures["phones"].get<double>()));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--dtype", "float64"}, {"--batch", "1"}, {"--split", "test"}}) {
    std::vector<std::string> words{"eval", run, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const auto same = parse_json_output(run_program(words));
    CHECK(same["per"] == figures["per"]);
    CHECK(same["nats_per_utterance"].get<double>() ==
          doctest::Approx(figures["nats_per_utterance"].get<double>()).epsilon(1e-4));
  }
  CHECK(parse_json_output(run_program({"eval", run, "--json", "--beam", "4"}))["beam"] == 4);
  CHECK(parse_json_output(run_program({"eval", run, "--json", "--limit", "4"}))["examples"] == 4);

  for (const std::string list : {"an4_test.transcription", "an4.dic"}) {
    const fs::path input = dir / "an4/etc" / list;
    const std::string before = read_file(input);
    const auto refused = run_program({"eval", run, "--alignments", input.string()});
    CHECK(refused.code == 2);
    CHECK_MESSAGE(contains(refused.err, list + ": is an input of the command"), refused.err);
    CHECK(read_file(input) == before);
  }
  fs::create_directory(dir / "trn2");
  fs::create_hard_link(feature_file(dir, 0), dir / "trn2/hyp.trn");
  CHECK(run_program({"eval", run, "--trn", (dir / "trn2").string()}).code == 2);
  CHECK(run_program({"eval", run, "--trn", (dir / "trn").string()}).code == 0);

  const auto moved = run_program({"eval", run, "--set", "data.path=/nowhere"});
  CHECK(moved.code == 3);
  CHECK(contains(moved.err, "/nowhere: no such folder; data.path names"));
  const auto context = run_program({"eval", run, "--context", "carried"});
  CHECK(context.code == 2);
  CHECK(contains(context.err, "--context is for models of text"));
  for (const std::string command : {"generate", "complete"}) {
    const auto wrong = run_program({command, run});
    CHECK(wrong.code == 2);
    CHECK(contains(wrong.err, "this is a model of speech"));
  }
}

TEST_CASE(
    "eval of speech: phones that a model cannot process count as deletions in the first of two error rates") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  const std::string run = trained(dir, streaming_config(dir));
  const auto whole = parse_json_output(run_program({"eval", run, "--json"}));
  CHECK(whole["unprocessed"] == 0);
  CHECK(whole["per_processed"] == whole["per"]);
  CHECK_FALSE(whole.contains("unprocessed_utterances"));
  const std::vector<std::string> words = {
      "eval", run, "--set", "model.max_frames=12", "--trn", (dir / "trn").string()};
  const auto text = run_program(words);
  CAPTURE(text.err);
  REQUIRE(text.code == 0);
  CHECK(contains(text.out, " phones) that the model cannot process\n"));
  std::vector<std::string> json_words = words;
  json_words.push_back("--json");
  const auto figures = parse_json_output(run_program(json_words));
  CHECK(figures["phones"] == whole["phones"]);
  CHECK(figures["examples"] == whole["examples"]);
  CHECK(figures["unprocessed"] > 0);
  CHECK(figures["examples_processed"].get<int>() + figures["unprocessed"].get<int>() == 9);
  CHECK(figures["per"].get<double>() > figures["per_processed"].get<double>());
  int missing = 0;
  for (const auto& row : figures["unprocessed_utterances"]) {
    CHECK(row["reason"] == "longer than model.max_frames");
    CHECK(row["frames"] > 12);
    missing += row["phones"].get<int>();
    CHECK(contains(read_file(dir / "trn/hyp.trn"), "\n(" + row["id"].get<std::string>() + ")\n"));
  }
  CHECK(figures["phones_processed"].get<int>() + missing == figures["phones"].get<int>());
}

TEST_CASE("options and commands for speech are refused for other models") {
  const TempDir dir;
  write_run(dir / "run", make_tiny_sequence_config());
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--beam", "3"},
                                               {"--trn", "x"},
                                               {"--confusions", "1"},
                                               {"--alignments", "x"}}) {
    std::vector<std::string> words{"eval", (dir / "run").string()};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_program(words);
    CHECK(result.code == 2);
    const std::string subjects = more.front() == "--beam" ? "speech or translations" : "speech";
    CHECK(contains(result.err, more.front() + " is for models of " + subjects + "; this is a model of"));
  }
  const auto result = run_program({"transcribe", (dir / "run").string(), "a.wav"});
  CHECK(result.code == 2);
  CHECK(contains(result.err, "\"transcribe\" is for models of speech; this is a model of"));
}

TEST_CASE("a folder is not a file for alignments") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  Config config = make_tiny_speech_config(dir / "an4", "lstm");
  config.train.epochs = 0;
  config.train.steps = 1;
  train(config, dir / "run");
  const auto result = run_program({"eval", (dir / "run").string(), "--alignments", dir.path().string()});
  CHECK(result.code == 2);
  CHECK(contains(result.err, dir.path().string() + ": is a folder"));
}

TEST_CASE("transcribe: a bad file does not stop the transcription of other files") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  const std::string run = trained(dir, streaming_config(dir));
  write_file(dir / "broken.mfc", std::string("nothing"));
  write_file(dir / "sound.wav", std::string("nothing"));
  fs::remove_all(dir / "an4/etc");  // transcribe does not need the corpus
  const std::vector<std::string> files = {feature_file(dir, 0),          (dir / "broken.mfc").string(),
                                          (dir / "absent.mfc").string(), (dir / "sound.wav").string(),
                                          feature_file(dir, 4),          (dir / "loop.mfc").string()};
  fs::create_symlink("loop.mfc", dir / "loop.mfc");
  std::vector<std::string> words = {"transcribe", run, "--json"};
  words.insert(words.end(), files.begin(), files.end());
  const auto result = run_program(words);
  CHECK(result.code == 3);
  const auto rows = parse_json_output(result)["files"];
  REQUIRE(rows.size() == 6);
  for (const int good : {0, 4}) {
    CHECK_FALSE(rows[good].contains("error"));
    CHECK(rows[good].contains("phones"));
  }
  for (const size_t bad : {1, 2, 3, 5}) CHECK(contains(rows[bad]["error"].get<std::string>(), files[bad]));
  CHECK(contains(rows[3]["error"].get<std::string>(), "give .mfc files"));
  CHECK(run_program({"transcribe", run}).code == 2);
}

TEST_CASE("transcribe --stream prints the phones of the parallel form, one by one") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  const std::string run = trained(dir, streaming_config(dir));
  std::vector<std::string> words = {"transcribe", run, "--json"};
  for (int i = 0; i < 9; ++i) words.push_back(feature_file(dir, i));
  const auto parallel = parse_json_output(run_program(words))["files"];
  words.push_back("--stream");
  const auto streamed = parse_json_output(run_program(words));
  CHECK(streamed["state_bytes"] > 0);
  size_t heard = 0;
  for (size_t i = 0; i < 9; ++i) {
    const auto& row = streamed["files"][i];
    CHECK(row["phones"] == parallel[i]["phones"]);
    CHECK(row["partials"].size() == row["phones"].size());
    heard += row["phones"].size();
  }
  CHECK(heard > 9);
  const auto text = run_program({"transcribe", run, feature_file(dir, 0), "--stream"});
  CHECK(contains(text.out, " s  "));

  CHECK(run_program({"transcribe", run, feature_file(dir, 0), "--stream", "--beam", "4"}).code == 2);
  write_file(dir / "long.mfc", make_mfc_file("ABCABCABCABCABCABCABC", 1));
  const auto long_file = run_program({"transcribe", run, (dir / "long.mfc").string()});
  CHECK(long_file.code == 3);
  CHECK(contains(long_file.err, "long.mfc: 126 frames are more than model.max_frames = 100"));
  const auto long_stream =
      run_program({"transcribe", run, (dir / "long.mfc").string(), "--stream", "--json"});
  CHECK(parse_json_output(long_stream)["files"][0]["frames"] == 126);
}

TEST_CASE("transcribe --stream needs a causal model with a recurrent form") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  const std::string run = trained(dir, make_tiny_speech_config(dir / "an4"));
  const auto refused = run_program({"transcribe", run, feature_file(dir, 0), "--stream"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "needs a Transformer, found a bidirectional LSTM"));
  const auto wrong = run_program({"eval", run, "--set", "data.deltas=2"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "features of 39 dims, but the model was trained on 13"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", run}, {"transcribe", run, feature_file(dir, 0)}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--set", "data.cmvn=global"});
    const auto global = run_program(words);
    CHECK(global.code == 2);
    CHECK(contains(global.err, "needs the statistics of the training set"));
  }
}

TEST_CASE("train on speech prints a report, and refuses contradicting settings") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  const std::string text = "[data]\ndataset = \"an4\"\npath = \"" + (dir / "an4").string() +
                           "\"\nmax_frames = 60\n[model]\ntype = \"speech\"\nencoder = \"lstm\"\nlayers = 1\n"
                           "hidden = 8\n[train]\nepochs = 1\n";
  write_file(dir / "c.toml", text);
  const std::string config = (dir / "c.toml").string();
  write_file(dir / "an4/feat/clstk/train0/train-1.mfc", std::string("no features"));
  const auto result = run_program({"train", config, "--run-dir", (dir / "run").string(), "--json"});
  CAPTURE(result.err);
  const auto trained_figures = parse_json_output(result),
             evaluated = parse_json_output(run_program({"eval", (dir / "run").string(), "--json"}));
  CHECK(trained_figures["phones"] > 0);
  for (const char* figure : {"per", "phones", "substitutions", "deletions", "insertions"})
    CHECK(trained_figures[figure] == evaluated[figure]);
  CHECK(parse_json_output(result)["seconds_per_epoch"] > 0);
  CHECK(contains(result.err, "11 utterances"));
  CHECK(contains(result.err, "of a batch is padding"));
  CHECK(contains(result.err, "1 utterances are left out: 1 unusable"));
  CHECK(contains(result.err, "train-1.mfc"));
  CHECK(parse_json_output(run_program({"train", config, "--dry-run", "--json"}))["training_examples"] == 11);

  const auto fails = [&](const std::string& set, const std::string& expected) {
    const auto wrong = run_program({"train", config, "--dry-run", "--set", set});
    CAPTURE(wrong.err);
    CHECK(wrong.code == 2);
    CHECK(contains(wrong.err, expected));
  };
  fails("model.type=image", "data set \"an4\" needs type \"speech\"");
  const auto no_path = run_program({"train", config, "--set", "data.dataset=kaldi", "--set", "data.path="});
  CHECK(no_path.code == 2);
  CHECK(contains(no_path.err, "data.path: data set \"kaldi\" needs the folder of the corpus"));
  fails("model.causal=true", "belongs to configs where model.encoder = \"transformer\"");
  fails("model.encoder=lstn", "lstm");
  fails("data.cmvn=utterence", "utterance");
  fails("data.max_frame=3", "max_frames");
  fails("model.subsampling=3", "model.subsampling");
}

TEST_CASE("reproduce speech-table trains five models, and a second call continues") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 36, 9);
  const std::vector<std::string> words = {"reproduce",
                                          "speech-table",
                                          "--configs",
                                          std::string(SOURCE_DIR) + "/configs",
                                          "--out",
                                          (dir / "out").string(),
                                          "--threads",
                                          "1",
                                          "--json",
                                          "--set",
                                          "data.path=" + (dir / "an4").string(),
                                          "--set",
                                          "data.validation=4",
                                          "--set",
                                          "train.epochs=1",
                                          "--set",
                                          "model.layers=1"};
  const auto first = run_program(words);
  CAPTURE(first.err);
  REQUIRE(first.code == 0);
  const auto table = parse_json_output(first);
  CHECK(contains(table["title"].get<std::string>(), "an4"));
  REQUIRE(table["rows"].size() == 5);
  CHECK(table["rows"][0]["name"] == "bilstm");
  CHECK(table["rows"][2]["cells"]["valid_per"]["paper"] == 9.33);
  for (const auto& row : table["rows"]) {
    const std::string run = row["trainings"][0]["run"];
    const auto evaluated = parse_json_output(
        run_program({"eval", (dir / "out" / run).string(), "--checkpoint", "best", "--json"}));
    CHECK(evaluated["phones"] > 0);
    CHECK(row["cells"]["test_per"]["mean"] == evaluated["per"]);
    CHECK(row["cells"]["test_per_processed"]["mean"] == evaluated["per_processed"]);
    CHECK(row["cells"]["unprocessed"]["mean"] == evaluated["unprocessed"]);
    CHECK(row["cells"]["seconds_per_epoch"]["mean"] > 0);
    CHECK(row["cells"]["cpu_seconds_per_epoch"]["mean"] > 0);
  }
  CHECK(contains(read_file(dir / "out/table.csv"), "softmax,test_per,1,"));
  CHECK(contains(read_file(dir / "out/epochs.svg"), "validation PER"));
  CHECK(contains(read_file(dir / "out/time.svg"), "processor seconds"));
  CHECK(parse_json_output(run_program(words))["rows"] == table["rows"]);
}

TEST_CASE("reproduce speech-table refuses keys that it sets itself, and every corpus has configs") {
  const TempDir dir;
  int calls = 0;
  const auto reproduce = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> words = {
        "reproduce", "speech-table", "--configs", std::string(SOURCE_DIR) + "/configs",
        "--rows",    "bilstm",       "--out",     (dir / std::to_string(++calls)).string()};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return run_program(words);
  };
  for (const std::string set : {"model.attention=linear", "model.encoder=lstm"}) {
    const auto refused = reproduce({set});
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "the reproduction sets model."));
  }
  for (const std::string corpus : {"an4", "fsdd", "synthetic-speech", "timit", "librispeech", "kaldi"})
    for (const std::string quote : {"", "\"", "'"}) {
      const std::string none = (dir / "none").string();
      const auto missing = reproduce({"data.dataset=" + quote + corpus + quote, "data.path=" + none});
      CAPTURE(missing.err);
      CHECK(missing.code == 3);
      CHECK(contains(missing.err, none + ": no such folder"));
    }
  const auto other = reproduce({"data.dataset=wsj"});
  CHECK(other.code == 2);
  CHECK(contains(other.err, "wsj-bilstm.toml"));
}

TEST_CASE("reproduce speech-scaling measures a step of each model at each length") {
  const TempDir dir;
  const auto ran =
      run_program({"reproduce", "speech-scaling", "--configs", std::string(SOURCE_DIR) + "/configs", "--out",
                   (dir / "out").string(), "--threads", "1", "--json", "--set", "model.layers=1", "--set",
                   "model.heads=1", "--set", "model.head_dim=8", "--set", "model.feedforward=8", "--set",
                   "model.hidden=8"});
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const auto table = parse_json_output(ran);
  REQUIRE(table["rows"].size() == 4);
  for (const auto& row : table["rows"])
    for (const char* column : {"milliseconds_100", "milliseconds_400", "mebibytes_200"})
      CHECK(row["cells"][column]["mean"] > 0);
  CHECK(contains(read_file(dir / "out/time.svg"), "lsh-4"));
  CHECK(contains(read_file(dir / "out/memory.svg"), "MiB"));
}

TEST_CASE("an untrusted checkpoint cannot run shell commands: eval ignores allow_commands in its config") {
  const TempDir dir;
  const std::string touched = (dir / "touched").string();
  const auto write_part = [&](const std::string& part, const std::string& recording) {
    write_file(dir / "corpus" / part / "wav.scp", "a " + recording + "\n");
    write_file(dir / "corpus" / part / "text", std::string("a AH B\n"));
    write_file(dir / "corpus" / part / "utt2spk", std::string("a s\n"));
  };
  std::vector<float> samples(8000);
  const RandomStream noise(1, "recording");
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(noise.uniform(i)) - 0.5F;
  fs::create_directories(dir / "corpus/train");
  write_wav(dir / "corpus/train/a.wav", samples, 16000);
  const std::string recording = (dir / "corpus/train/a.wav").string();
  write_part("train", recording);
  write_part("test", recording);
  Config config = make_tiny_speech_config(dir / "corpus");
  config.data.dataset = "kaldi";
  config.data.options.set("max_frames", 400);
  config.train.epochs = 1;
  const std::string run = trained(dir, config);

  write_part("test", "touch " + touched + "; cat " + recording + " |");
  CheckpointContents contents = read_checkpoint_contents(run);
  contents.config_toml.insert(contents.config_toml.find("dataset = "), "allow_commands = true\n");
  save_checkpoint(run, contents);
  const fs::path foreign = fs::canonical(dir / "run/checkpoints/latest") / "config.toml";
  const auto refused = run_program({"eval", run});
  CAPTURE(refused.err);
  CHECK(refused.code == 3);
  CHECK(contains(refused.err,
                 "wav.scp:1: a command instead of a file; commands are run only with --allow-commands"));
  CHECK_FALSE(fs::exists(touched));
  const auto trained_again =
      run_program({"train", foreign.string(), "--run-dir", (dir / "again").string(), "--dry-run"});
  CHECK(trained_again.code == 3);
  CHECK(contains(trained_again.err, "commands are run only with --allow-commands"));
  CHECK_FALSE(fs::exists(touched));
  CHECK(run_program({"eval", run, "--set", "data.allow_commands=true"}).code == 2);
  // The option --allow-commands applies to one call only.
  CHECK(run_program({"eval", run, "--allow-commands"}).code == 0);
  CHECK(fs::exists(touched));
  CHECK(run_program({"eval", run}).code == 3);
}

TEST_CASE("a run with a relative data.path can be used from any working directory") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  write_file(dir / "c.toml",
             std::string("[data]\ndataset = \"an4\"\npath = \"an4\"\nmax_frames = 60\n[model]\ntype = "
                         "\"speech\"\nencoder = \"lstm\"\nlayers = 1\nhidden = 8\n[train]\nepochs = 1\n"));
  fs::create_directories(dir / "elsewhere");
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const auto first = run_program({"train", "c.toml", "--run-dir", "run", "--quiet"});
  fs::current_path(dir / "elsewhere");
  const auto evaluated = run_program({"eval", "../run"});
  const auto again = run_program({"train", "../run/config.toml", "--run-dir", "again", "--dry-run"});
  fs::current_path(before);
  CAPTURE(first.err + evaluated.err + again.err);
  CHECK(first.code == 0);
  CHECK(evaluated.code == 0);
  CHECK(again.code == 0);
}

TEST_CASE(
    "an untrusted checkpoint cannot choose an output folder of eval: eval ignores its data.feature_cache") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 3);
  const fs::path chosen = dir / "chosen", named = dir / "named";
  Config config = make_tiny_speech_config(dir / "an4");
  config.data.options.set("feature_cache", chosen.string());
  config.train.epochs = 1;
  const std::string run = trained(dir, config);
  CHECK(fs::exists(chosen));  // training writes to this folder, because the config of the user names it
  fs::remove_all(chosen);
  write_file(chosen / ".0.features.tmp-0123456789abcdef", std::string("not ours"));
  CHECK(run_program({"eval", run}).code == 0);
  CHECK(run_program({"transcribe", run, feature_file(dir, 0)}).code == 0);
  CHECK(std::distance(fs::directory_iterator(chosen), fs::directory_iterator()) == 1);
  CHECK(fs::exists(chosen / ".0.features.tmp-0123456789abcdef"));
  CHECK(run_program({"eval", run, "--set", "data.feature_cache=" + named.string()}).code == 0);
  CHECK_FALSE(fs::is_empty(named));
  // The data.feature_cache of the checkpoint is the folder `chosen`. If --set also names this folder, eval
  // uses the folder and removes the temporary file in it.
  CHECK(run_program({"eval", run, "--set", "data.feature_cache=" + chosen.string()}).code == 0);
  CHECK_FALSE(fs::exists(chosen / ".0.features.tmp-0123456789abcdef"));
}
