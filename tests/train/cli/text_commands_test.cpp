// Tests of the commands generate and eval with language models: prompts, sampling, contexts and invalid
// input.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/train/cli/text_run.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/text/scoring.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

TEST_CASE("generate and score need only the checkpoint") {
  TextRun run;
  fs::remove(run.text_path());
  const Words options{"--prompt", "the ", "--length", "20", "--seed", "7"};
  const std::string text = generated(run, options);
  CHECK(text.starts_with("the "));
  CHECK(text.size() == 4 + 20 + 1);
  CHECK(generated(run, options) == text);
  CHECK(generated(run, {"--prompt", "the ", "--length", "20", "--seed", "8"}) != text);
  // The default mode and the mode "recompute" generate the same tokens.
  CHECK(generated(run, {"--prompt", "the ", "--length", "20", "--seed", "7", "--mode", "recompute"}) == text);
  write_file(run.dir / "lines", std::string("the cat\n\na dog"));
  const auto scores = parse_json_output(run.call({"score", (run.dir / "lines").string(), "--json"}));
  CHECK(scores["lines"] == 3);
  CHECK(scores["bytes"] == 8 + 1 + 6);
}

TEST_CASE("a converted run has no tokenizer and no optimizer state, and is evaluated, sampled and resumed") {
  TextRun run;
  CheckpointContents contents = read_checkpoint_contents(run.dir / "run");
  contents.optimizer_tensors.clear();
  contents.state = {.step = 0, .is_converted = true};
  const std::string converted = (run.dir / "converted").string();
  run.config.optimizer.ema = 0.5;
  run.config.optimizer.lr = 0;
  contents.config_toml = to_toml(run.config);
  save_checkpoint(converted, contents);
  const Words eval{"eval", run.path(), "--json"}, eval_converted{"eval", converted, "--json"};
  const double bits = parse_json_output(run_program(eval))["bits_per_dim"];
  CHECK(parse_json_output(run_program(eval_converted))["bits_per_dim"] == bits);
  const auto refused = run_program({"eval", converted, "--set", "model.activation=gelu"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "model.activation: the weights are those of a training with \"relu\""));
  CHECK(run_program({"generate", converted, "--prompt", "the ", "--length", "20"}).out ==
        generated(run, {"--prompt", "the ", "--length", "20"}));
  write_file(run.dir / "lines", std::string("the cat\n"));
  CHECK(run_program({"score", converted, (run.dir / "lines").string()}).code == 0);
  // With a learning rate of 0, the resumed run keeps the weights and their average.
  write_file(run.dir / "config.toml", contents.config_toml);
  const Words resume{"train", (run.dir / "config.toml").string(), "--run-dir", converted, "--resume"};
  const ProgramResult resumed = run_program(resume);
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "step-00000000 at step 0 of 3"));
  CHECK(parse_json_output(run_program(eval_converted))["bits_per_dim"].get<double>() ==
        doctest::Approx(bits));
  CHECK(!contains(read_file(fs::path(converted) / "checkpoints/latest/state.json"), "converted"));
  // Without the text, there is no tokenizer.
  fs::remove_all(fs::path(converted) / "checkpoints");
  save_checkpoint(converted, contents);
  fs::remove(run.text_path());
  const ProgramResult missing = run_program(eval_converted);
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "data.path: " + run.text_path().string()));
}

TEST_CASE("sampling options restrict the draws") {
  const TextRun run("softmax", "bytes");
  const Words prompt{"--prompt", "the ", "--length", "30"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), prompt.begin(), prompt.end());
    return generated(run, more);
  };
  const std::string greedy = with({"--greedy"});
  CHECK(with({"--temperature", "0"}) == greedy);
  CHECK(with({"--top-k", "1"}) == greedy);
  CHECK(with({"--top-p", "1e-6"}) == greedy);
  CHECK(with({"--top-k", "256"}) == with({}));
  CHECK(with({"--temperature", "0.5"}) != with({}));
  CHECK(with({"--count", "3"}).find("\n---\n") != std::string::npos);
}

TEST_CASE("generate --json reports the texts and the speed") {
  const TextRun run;
  const auto report =
      parse_json_output(run.call({"generate", "--json", "--prompt", "a ", "--length", "10", "--count", "2"}));
  CHECK(report["count"] == 2);
  CHECK(report["prompt"] == "a ");
  CHECK(report["length"] == 10);
  CHECK(report["tokens_per_second"] > 0);
  CHECK(report["state_bytes"] == 2 * 2 * (8 * 8 + 8) * 4);
  CHECK(report["texts"].size() == 2);
  CHECK(report["texts"][0].get<std::string>().size() == 10);
  CHECK(report["texts"][0] != report["texts"][1]);
}

TEST_CASE("texts of a batch are those that are drawn one at a time") {
  for (const char* kind : {"linear", "softmax"}) {
    const TextRun run(kind);
    const auto draw = [&](const char* batch) {
      return run.call({"generate", "--prompt", "a dog ", "--length", "20", "--count", "5", "--batch", batch})
          .out;
    };
    CHECK(draw("3") == draw("1"));
  }
}

TEST_CASE("generate and eval take weights in 8-bit integers") {
  const TextRun run;
  const auto bits = [&](const char* weights) {
    return parse_json_output(run.call({"eval", "--json", "--weights", weights}))["bits_per_byte"]
        .get<double>();
  };
  CHECK(std::abs(bits("int8") - bits("full")) < 0.05);
  CHECK(bits("int8") != bits("full"));
  const auto greedy = [&](const char* mode) {
    return generated(run, {"--prompt", "a dog ", "--greedy", "--weights", "int8", "--mode", mode});
  };
  CHECK(greedy("recurrent") == greedy("recompute"));
  CHECK(contains(run.call({"eval", "--weights", "int4"}).err, "--weights"));
}

TEST_CASE("prompts come from the command line, a file or standard input") {
  const TextRun run;
  write_file(run.dir / "prompt", std::string("a dog "));
  const std::string file = (run.dir / "prompt").string(), expected = generated(run, {"--prompt", "a dog "});
  CHECK(generated(run, {"--prompt-file", file}) == expected);
  CHECK(run.call({"generate", "--prompt-file", "-"}, {}, file).out == expected);
  CHECK(run.call({"generate", "-"}, {}, file).out == expected);
  CHECK(generated(run, {}).starts_with("\n"));
  REQUIRE(run_words({"gzip", file}).code == 0);
  CHECK(generated(run, {"--prompt-file", file + ".gz"}) == expected);
}

TEST_CASE("a prompt has at most 16 MiB") {
  const TextRun run;
  write_file(run.dir / "prompt", std::string((1 << 24) + 1, 'a'));
  const std::string file = (run.dir / "prompt").string();
  for (const ProgramResult& result :
       {run.call({"generate", "-"}, {}, file), run.call({"generate", "--prompt-file", file})}) {
    CHECK(result.code == 3);
    CHECK_MESSAGE(contains(result.err, "16777216"), result.err);
  }
}

TEST_CASE("prompts that the model cannot continue are usage errors") {
  const TextRun run;
  const auto error = [&](const Words& options, int code = 2) {
    const ProgramResult result = run.call({"generate"}, options);
    CHECK(result.code == code);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(contains(
      error({"--prompt", "the Cat"}),
      "the prompt, byte 5: the character \"C\" (U+0043) is not in the vocabulary of the training text"));
  CHECK(contains(error({"--prompt", "the \xFF"}), "the prompt, byte 5: is not valid UTF-8"));
  CHECK(contains(error({"--prompt", ""}), "--prompt: the value is empty"));
  CHECK(contains(error({"--prompt", std::string(41, 'a')}),
                 "the prompt has 41 tokens, expected at most 40: the model has sinusoidal positions"));
  CHECK(contains(error({"--prompt", "the ", "--length", "38"}),
                 "expected at most 37: the model has sinusoidal"));
  CHECK(
      contains(error({"--prompt", "the ", "--length", "38", "--mode", "recompute"}), "expected at most 37"));
  CHECK(contains(error({"--window", "41"}),
                 "--window 41: expected at most data.sequence_length = 40 with sinusoidal positions"));
  CHECK(contains(error({"--window", "-1"}), "--window"));
  CHECK(contains(error({"--prompt", "a", "--prompt-file", "b"}), "expected one of"));
  CHECK(contains(error({"--prompt-file", "/nonexistent"}, 3), "/nonexistent"));
  CHECK(contains(error({"--greedy", "--temperature", "2"}), "cannot be combined"));
  CHECK(contains(error({"--out", "a.png"}), "--out is for models of images"));
}

TEST_CASE("eval states the context of its windows, and a carried state gives the losses of one window") {
  const TextRun run;
  const auto eval = [&](const Words& options) {
    return parse_json_output(run.call({"eval", "--json"}, options));
  };
  const auto windows = eval({});
  CHECK(windows["context"] == "windows of 40 predictions, stride 40; all predictions are scored");
  CHECK(windows["tokens"] == windows["bytes"]);
  CHECK(std::abs(windows["bits_per_byte"].get<double>() - windows["bits_per_dim"].get<double>()) < 1e-9);
  CHECK(std::abs(windows["perplexity"].get<double>() - std::exp(windows["nats_per_dim"].get<double>())) <
        1e-9);
  const auto strided = eval({"--context", "30"});
  CHECK(strided["context"] ==
        "windows of 40 predictions, stride 10; the first 30 predictions of each window but the first are not "
        "scored");
  CHECK(strided["tokens"] == windows["tokens"]);
  const auto one = eval({"--limit", "1"}), carried = eval({"--limit", "40", "--context", "carried"});
  CHECK(carried["context"] == "state carried through 1 parts of the split");
  CHECK(carried["tokens"] == 40);
  CHECK(std::abs(one["nats_per_dim"].get<double>() - carried["nats_per_dim"].get<double>()) < 1e-5);
  CHECK(one["accuracy"] == carried["accuracy"]);
}

TEST_CASE("without position features, texts may be longer than the windows of training") {
  for (const std::string positions : {"rotary", "none"})
    for (const std::string attention : {"linear", "softmax"}) {
      CAPTURE(positions);
      CAPTURE(attention);
      const TextRun run(attention, "bytes", positions);
      const Words options{"--json", "--prompt", std::string(50, 'a'), "--length", "200"};
      const auto report = parse_json_output(run.call({"generate"}, options));
      CHECK(report["texts"][0].get<std::string>().size() >= 200);
      CHECK(report["window"] == 40);
      const auto state = [](const nlohmann::json& generated) {
        return generated["state_bytes"].get<int64_t>();
      };
      CHECK(state(report) == (attention == "linear" ? 2 * (8 * 8 + 8) * 4 : 2 * 40 * 16 * 4));
      Words whole = options;
      whole.insert(whole.end(), {"--window", "1000"});
      CHECK(state(parse_json_output(run.call({"generate"}, whole))) ==
            (attention == "linear" ? 2 * (8 * 8 + 8) * 4 : 2 * 249 * 16 * 4));
      if (attention == "softmax") continue;
      const auto carried = parse_json_output(run.call({"eval", "--context", "carried", "--json"}));
      CHECK(carried["tokens"] == carried["bytes"]);
      CHECK(carried["tokens"] == parse_json_output(run.call({"eval", "--json"}))["tokens"]);
      const auto parts =
          parse_json_output(run.call({"eval", "--context", "carried", "--batch", "3", "--json"}));
      CHECK(parts["context"] == "state carried through 3 parts of the split");
      CHECK(parts["tokens"] == carried["tokens"]);  // no multiple of three
      CHECK(carried["tokens"].get<int64_t>() % 3 != 0);
      CHECK(std::abs(parts["bits_per_byte"].get<double>() - carried["bits_per_byte"].get<double>()) < 0.1);
    }
}

TEST_CASE("with a window, texts may exceed the positions of the model") {
  for (const std::string attention : {"linear", "lsh"}) {
    const TextRun run(attention);
    const Words options{"--json", "--prompt", "the cat sat.\n", "--length", "90",
                        "--seed", "4",        "--window",       "20"};
    const auto report = parse_json_output(run.call({"generate"}, options));
    CHECK(report["texts"][0].get<std::string>().size() == 90);
    CHECK(report["window"] == 20);
    Words recompute = options;
    recompute.insert(recompute.end(), {"--mode", "recompute"});
    CHECK(parse_json_output(run.call({"generate"}, recompute))["texts"] == report["texts"]);
  }
}

TEST_CASE("eval refuses contexts that the model cannot have") {
  const TextRun linear, softmax("softmax"), lsh("lsh");
  const auto error = [](const TextRun& run, const std::string& context) {
    const ProgramResult result = run.call({"eval", "--context", context});
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(contains(error(linear, "40"),
                 "expected \"carried\", or a number of tokens below data.sequence_length = 40"));
  CHECK(contains(error(linear, "none"), "expected \"carried\""));
  CHECK(contains(error(linear, "carried"), "the model has 40 positions, and a stream has"));
  CHECK(contains(error(softmax, "carried"), "grows with the text"));
  CHECK(contains(error(lsh, "carried"), "no recurrent form"));
}

TEST_CASE("a run does not resume with another vocabulary") {
  const TextRun run;
  write_file(run.text_path(), read_file(run.text_path()) + "€");
  Config config = run.config;
  config.train.steps = 5;
  CHECK(contains(message_of<ConfigError>([&] { train(config, run.dir / "run", true); }), "the tokenizer"));
}

TEST_CASE("a run that resumes with changed data writes a warning") {
  const TextRun run("linear", "bytes");
  const auto resumed = [&](const std::string& steps, const std::string& eval_limit = "0") {
    return run_program({"train", (run.dir / "run/config.toml").string(), "--run-dir", run.path(), "--resume",
                        "--set", "train.steps=" + steps, "--set", "data.eval_limit=" + eval_limit});
  };
  const ProgramResult same = resumed("4");
  CAPTURE(same.err);
  CHECK(same.code == 0);
  CHECK(!contains(same.err, "the training data have changed"));
  const ProgramResult fewer = resumed("5", "2");  // other examples for evaluation
  CAPTURE(fewer.err);
  CHECK(fewer.code == 0);
  CHECK(!contains(fewer.err, "the training data have changed"));
  std::string text = read_file(run.text_path());
  std::replace(text.begin(), text.end(), 'e', 'u');
  write_file(run.text_path(), text);
  const ProgramResult changed = resumed("6");
  CHECK(changed.code == 0);
  CHECK(contains(changed.err, "the training data have changed since this checkpoint"));
}

TEST_CASE("a checkpoint contains the SentencePiece model") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  run.config.data.options.set("tokenizer", "sentencepiece");
  run.config.data.options.set("vocabulary", 275);
  train(run.config, run.dir / "pieces");
  fs::remove(run.text_path());
  const ProgramResult result =
      run_program({"generate", (run.dir / "pieces").string(), "--prompt", "the cat", "--length", "5"});
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(result.out.starts_with("the cat"));
}

TEST_CASE("a resumed run uses the SentencePiece model of its checkpoint") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  run.config.data.options.set("tokenizer", "sentencepiece");
  run.config.data.options.set("vocabulary", 275);
  write_file(run.dir / "c.toml", to_toml(run.config));
  const auto train_to = [&](const std::string& steps) {
    return run_program({"train", (run.dir / "c.toml").string(), "--run-dir", (run.dir / "pieces").string(),
                        "--resume", "--set", "train.steps=" + steps});
  };
  CHECK(contains(train_to("3").err, "training a SentencePiece model"));
  const ProgramResult resumed = train_to("4");
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "at step 3 of 4"));
  CHECK(!contains(resumed.err, "training a SentencePiece model"));
  // Other pieces would change the meaning of the weights.
  std::string text = read_file(run.text_path());
  std::replace(text.begin(), text.end(), 'e', 'u');
  write_file(run.text_path(), text);
  const ProgramResult changed = train_to("5");
  CAPTURE(changed.err);
  CHECK(changed.code == 0);
  CHECK(contains(changed.err, "the training data have changed since this checkpoint"));
}

TEST_CASE("generate advises on --length if the states do not fit into memory") {
  const TextRun run("softmax", "bytes", "rotary");
  const ProgramResult result =
      run.call({"generate"}, {"--prompt", "a", "--length", "1000000000000", "--window", "1000000000000"});
  CHECK(result.code == 1);
  CHECK(contains(result.err, "out of memory: asked for"));
  CHECK(contains(result.err,
                 "for the states of 1000000000000 tokens; lower --length, --window or --batch, or use an "
                 "attention kind"));
}

TEST_CASE("training refuses a data.test_path without text") {
  TextRun run;
  const auto error = [&](const std::string& path) {
    run.config.data.options.set("test_path", path);
    return message_of<DataError>([&] { train(run.config, run.dir / "other"); });
  };
  write_file(run.dir / "empty", std::string());
  CHECK(contains(error((run.dir / "empty").string()), "empty: no text: the size is 0 bytes"));
  CHECK(error((run.dir / "none").string()).starts_with("data.test_path: " + (run.dir / "none").string()));
  CHECK(error(run.text_path().string()).empty());
}
