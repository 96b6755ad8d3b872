// Tests of `tapeformer score`, and of texts with unknown characters or other encodings.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/data/text/piece_model.h"
#include "tests/support/encoded.h"
#include "tests/train/cli/text_run.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/text/scoring.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns the characters of the text of a TextRun as pieces of a SentencePiece model.
std::vector<std::string> character_pieces() {
  std::vector<std::string> pieces{"\u2581", ".", "\n"};
  for (const char c : std::string("acdeghinorstw")) pieces.emplace_back(1, c);
  return pieces;
}

}  // namespace

TEST_CASE("score prints the bits that the library computes for a line and its end") {
  const TextRun run("softmax", "bytes");
  write_file(run.dir / "lines", std::string("the cat sat.\nso\n"));
  const std::string path = (run.dir / "lines").string();
  const LoadedTask loaded = load_task({.path = run.path()});
  const auto& task = loaded.as<AutoregressiveTask>();
  double bits = 0;
  for (const double nats : compute_token_losses(task.model(), std::vector<int64_t>{'\n', 's', 'o', '\n'}))
    bits += nats / std::log(2);
  const auto report = parse_json_output(run.call({"score", path, "--json"}));
  CHECK(std::abs(report["scores"][1]["bits"].get<double>() - bits) < 1e-4);
  CHECK(report["scores"][1]["bytes"] == 3);
  const ProgramResult text = run.call({"score", path});
  CHECK(text.out.ends_with("\tso\n"));
  CHECK(std::abs(std::stod(text.out.substr(text.out.find('\n') + 1)) - bits) < 1e-2);
  CHECK(run.call({"score", "-"}, {}, path).out == text.out);
}

TEST_CASE("score counts no token of the line end before a line, also if a line end has several tokens") {
  if (no_sentencepiece()) return;
  TextRun run("softmax", "bytes");
  // As in Llama, a line begins with a space, and a line end is a byte.
  write_file(run.dir / "m.model",
             make_piece_model({.pieces = {"\u2581", "\u2581the", "s", "o"}, .byte_fallback = true}));
  run.config.data.options.set("tokenizer", "sentencepiece");
  run.config.data.options.set("sentencepiece_model", (run.dir / "m.model").string());
  train(run.config, run.dir / "pieces");
  const std::string path = (run.dir / "pieces").string();
  const LoadedTask loaded = load_task({.path = path});
  const auto& task = loaded.as<AutoregressiveTask>();
  write_file(run.dir / "lines", std::string("the\n\nso"));
  const auto scores =
      parse_json_output(run_program({"score", path, (run.dir / "lines").string(), "--json"}))["scores"];
  const std::vector<std::string> lines{"the\n", "\n", "so\n"};
  const size_t sizes[] = {5, 2, 4};  // with the space and the line end
  const auto end = task.tokenizer()->encode("\n");
  CHECK(end.size() == 2);
  for (size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    CHECK(scores[i]["bytes"] == sizes[i]);
    std::vector<int64_t> tokens(end.begin(), end.end());
    const auto own = task.tokenizer()->encode(lines[i]);
    tokens.insert(tokens.end(), own.begin(), own.end());
    const auto nats = compute_token_losses(task.model(), tokens);
    double bits = 0;
    for (size_t j = nats.size() - own.size(); j < nats.size(); ++j) bits += nats[j] / std::log(2);
    CHECK(std::abs(scores[i]["bits"].get<double>() - bits) < 1e-4);
  }
}

TEST_CASE("unknown characters are refused with their position and the key that accepts them, or counted") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  std::vector<std::string> pieces = character_pieces();
  pieces.pop_back();  // "w"
  write_file(run.dir / "m.model", make_piece_model({.pieces = pieces, .add_dummy_prefix = false}));
  run.config.data.options.set("tokenizer", "sentencepiece");
  run.config.data.options.set("sentencepiece_model", (run.dir / "m.model").string());
  CHECK(message_of<DataError>([&] { train(run.config, run.dir / "pieces"); }) ==
        "data.path: " + run.text_path().string() +
            ":3 (byte 31): the character \"w\" (U+0077) is not in the vocabulary of the SentencePiece model; "
            "train "
            "the model with the option byte_fallback of spm_train, or set data.unknown_characters = "
            "\"token\"");
  run.config.data.options.set("unknown_characters", "token");
  train(run.config, run.dir / "pieces");
  const std::string path = (run.dir / "pieces").string();
  for (const Words& options : {Words{}, Words{"--context", "carried", "--limit", "39"}}) {
    Words words{"eval", path, "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const auto report = parse_json_output(run_program(words));
    const auto unknown = report["unknown_tokens"].get<double>(), tokens = report["tokens"].get<double>();
    CHECK(unknown > 0);
    CHECK(report["unknown_share"].get<double>() == doctest::Approx(unknown / tokens));
    CHECK(report["bytes"].get<double>() == tokens - unknown);
  }
  write_file(run.dir / "lines", std::string("so it was\nthe cat\n"));
  const std::string lines = (run.dir / "lines").string();
  const auto report = parse_json_output(run_program({"score", path, lines, "--json"}));
  CHECK(report["unknown_tokens"] == 1);
  CHECK(report["scores"][0]["bytes"] == 9);
  CHECK(report["scores"][1]["bytes"] == 8);
  const ProgramResult refused =
      run_program({"score", path, lines, "--set", "data.unknown_characters=refuse"});
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "lines:1, byte 7: the character \"w\" (U+0077)"));
  CHECK(contains(refused.err, "or set data.unknown_characters = \"token\""));
  CHECK(contains(run_program({"score", path, lines}).err,
                 "unknown tokens in the lines, for characters that are not in the vocabulary: 1\n"));
  // The model draws mainly from equal probabilities, and an unknown token is printed as U+FFFD, also if
  // prompts must not have it.
  for (const std::string unknown : {"token", "refuse"}) {
    const Words words = {"generate", path, "--set",    "data.unknown_characters=" + unknown, "--length", "38",
                         "--count",  "40", "--prompt", unknown == "token" ? "w" : "a"};
    const ProgramResult text = run_program(words);
    CHECK(text.code == 0);
    int64_t count = 0;
    for (size_t at = 0; (at = text.out.find("\uFFFD", at)) != std::string::npos; ++at) ++count;
    CHECK(count > 0);
    CHECK(contains(text.err,
                   "unknown tokens in the generated text, whose text is U+FFFD: " + std::to_string(count)));
    Words json = words;
    json.emplace_back("--json");
    const auto drawn = parse_json_output(run_program(json));
    CHECK(drawn["unknown_tokens"] == count);
    CHECK(drawn.contains("unknown_prompt_tokens") == (unknown == "token"));
    CHECK(contains(text.err, "unknown tokens in the prompt, for characters") == (unknown == "token"));
  }
}

TEST_CASE("lines without bytes have no bits per byte") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  std::vector<std::string> pieces = character_pieces();
  std::erase(pieces, "\n");
  write_file(run.dir / "m.model", make_piece_model({.pieces = pieces, .add_dummy_prefix = false}));
  run.config.data.options.set("tokenizer", "sentencepiece");
  run.config.data.options.set("sentencepiece_model", (run.dir / "m.model").string());
  run.config.data.options.set("unknown_characters", "token");
  train(run.config, run.dir / "pieces");
  const std::string path = (run.dir / "pieces").string(), lines = (run.dir / "lines").string();
  write_file(lines, std::string("so\n\n"));
  const auto scores = parse_json_output(run_program({"score", path, lines, "--json"}))["scores"];
  CHECK(scores[0]["bits_per_byte"] > 0);
  CHECK(scores[1]["bits"] > 0);
  CHECK(scores[1]["bytes"] == 0);
  CHECK(scores[1]["bits_per_byte"].is_null());
  CHECK(run_program({"score", path, lines}).out.ends_with("\tnan\t\n"));
}

TEST_CASE("errors of score contain the number of an unreadable line") {
  const TextRun run;
  write_file(run.dir / "lines", std::string("the cat\na DOG\n"));
  ProgramResult result = run.call({"score", (run.dir / "lines").string()});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "lines:2, byte 3: the character \"D\" (U+0044) is not in the vocabulary"));
  write_file(run.dir / "long", "the\n" + std::string((1 << 24) + 1, 'a'));
  result = run.call({"score", (run.dir / "long").string()});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "long:2: the line has 16777217 bytes, expected at most 16777216"));
  write_file(run.dir / "empty", std::string());
  CHECK(contains(run.call({"score", (run.dir / "empty").string()}).err, "no text: the size is 0 bytes"));
  result = run.call({"score", "-"}, {}, (run.dir / "empty").string());
  CHECK(result.code == 3);
  CHECK(contains(result.err, "standard input: no text: the size is 0 bytes"));
}

TEST_CASE("a circular link in place of an input is an error in the data or the arguments") {
  const TextRun run;
  const std::string loop = (run.dir / "loop").string();
  std::filesystem::create_symlink(loop, loop);
  CHECK(run.call({"score", loop}).code == 3);
  CHECK(run.call({"generate", "--prompt-file", loop}).code == 3);
  CHECK(run_program({"report", loop, "--out", (run.dir / "page.html").string()}).code == 3);
  CHECK(run_program({"reproduce", "copy-convergence", "--runs", loop}).code == 2);
  CHECK(run_program({"train", std::string(SOURCE_DIR) + "/configs/copy/linear.toml", "--run-dir",
                     (run.dir / "new").string(), "--set", "model.init=\"" + loop + "\""})
            .code == 2);
}

TEST_CASE("a byte order mark is not a part of a prompt or a scored text, and UTF-16 is named") {
  const TextRun run;
  const std::string text = "a cat\nso it was\n", marked = "\xEF\xBB\xBF" + text;
  const fs::path file = run.dir / "lines.txt";
  const auto score = [&](const std::string& bytes, bool piped) {
    write_file(file, bytes);
    return piped ? run.call({"score"}, {"-"}, file.string()) : run.call({"score"}, {file.string()});
  };
  const std::string plain = score(text, false).out;
  CHECK(plain.ends_with("\tso it was\n"));
  CHECK(score(marked, false).out == plain);
  CHECK(score(marked, true).out == plain);
  const Words prompt = {"--prompt-file", file.string(), "--length", "5", "--greedy"};
  write_file(file, marked);
  CHECK(generated(run, prompt).starts_with(text));
  const std::string wide = encoded(std::u16string(text.begin(), text.end()));
  for (const bool piped : {false, true}) {
    const ProgramResult refused = score(wide, piped);
    CHECK(refused.code == 3);
    CHECK_MESSAGE(
        contains(refused.err, "is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8\n"),
        refused.err);
  }
  const ProgramResult refused = run.call({"generate"}, prompt);
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, file.string() + ": is UTF-16, expected UTF-8; convert it with iconv"));
}

TEST_CASE("training refuses a text in UTF-16, and a model of bytes warns about it") {
  const TextRun run("linear", "bytes");
  const std::string text = read_file(run.text_path());
  write_file(run.text_path(), encoded(std::u16string(text.begin(), text.end())));
  write_file(run.dir / "c.toml", to_toml(run.config));
  const auto train_with = [&](const std::string& tokenizer) {
    return run_program({"train", (run.dir / "c.toml").string(), "--run-dir", (run.dir / tokenizer).string(),
                        "--set", "data.tokenizer=" + tokenizer});
  };
  const ProgramResult refused = train_with("characters"), taken = train_with("bytes");
  CHECK(refused.code == 3);
  CHECK_MESSAGE(
      contains(refused.err, run.text_path().string() +
                                ": is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8"),
      refused.err);
  CHECK(taken.code == 0);
  CHECK_MESSAGE(contains(taken.err, "warning: " + run.text_path().string() + ": is UTF-16"), taken.err);
}

TEST_CASE("long lines are scored in overlapping windows") {
  const TextRun run("softmax", "bytes");
  const LoadedTask loaded = load_task({.path = run.path()});
  const auto& task = loaded.as<AutoregressiveTask>();
  std::vector<int64_t> tokens;
  for (int i = 0; i < 130; ++i) tokens.push_back('a' + i % 7);
  const auto nats = compute_token_losses(task.model(), tokens);
  CHECK(nats.size() == 129);
  const auto first = compute_token_losses(task.model(), std::span(tokens).first(41));
  for (size_t i = 0; i < first.size(); ++i) CHECK(std::abs(nats[i] - first[i]) < 1e-5);
  // The losses 40 to 59 come from the second window, which contains the tokens 20 to 60.
  const auto second = compute_token_losses(task.model(), std::span(tokens).subspan(20, 41));
  for (size_t i = 40; i < 60; ++i) CHECK(std::abs(nats[i] - second[i - 20]) < 1e-5);
}
