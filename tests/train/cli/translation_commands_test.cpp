// Tests of training, `translate`, `eval` and `score` of translation models.
#include <cmath>
#include <filesystem>
#include <sstream>

#include "core/base/interruption.h"
#include "tests/data/text/piece_model.h"
#include "tests/train/cli/text_run.h"
#include "tests/train/cli/translation_run.h"
#include "train/metrics.h"
#include "train/tasks/registry/load_task.h"
#include "train/tasks/translation/task.h"
#include "train/tasks/translation/translator.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Lines = std::vector<std::string>;

Lines split_lines(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A model after a few steps.
struct TinyTranslator : TranslationFiles {
  TinyTranslator() { train(config, dir / "run"); }
  ProgramResult call(Lines words, const std::string& in = "/dev/null") const {
    words.insert(words.begin() + 1, (dir / "run").string());
    return run_program(words, "", in);
  }
  std::string input(const std::string& text) const {
    write_file(dir / "input", text);
    return (dir / "input").string();
  }
};

}  // namespace

TEST_CASE("a translation model learns to reverse words, and eval prints its scores with signatures") {
  TranslationFiles files(2000);
  files.config.train.steps = 1000;
  files.config.schedule.kind = "cosine";
  files.config.optimizer.kind = "adamw";
  files.config.optimizer.lr = 3e-3;
  train(files.config, files.dir / "run");
  const std::string run = (files.dir / "run").string();
  const auto report = parse_json_output(run_program({"eval", run, "--json"}));
  MESSAGE("chrF2 " << report["chrf2"].get<double>() << ", nats " << report["nats_per_token"].get<double>());
  CHECK(report["chrf2"].get<double>() > 90);
  CHECK(report["examples"] == 20);
  CHECK(report["beam"] == 4);
  CHECK(report["signatures"].size() == 4);
  const auto record = read_metrics((files.dir / "run" / "metrics.jsonl").string()).back();
  CHECK(get_metric_number(record, "chrf2", -1) > 60);
  CHECK(run_program({"eval", run}).out.find("nrefs:1|case:mixed|eff:no|tok:13a") != std::string::npos);
}

TEST_CASE("translate keeps the order of the lines and empty lines, from a file and from standard input") {
  const TinyTranslator run;
  const std::string path = run.input("abc\n\nf\n \u3000\u00A0\u200B\nabc");
  const ProgramResult result = run.call({"translate", path});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Lines lines = split_lines(result.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[1].empty());
  CHECK(lines[3].empty());
  CHECK(lines[0] == lines[4]);
  CHECK(run.call({"translate"}, path).out == result.out);
  CHECK(run.call({"translate", "-"}, path).out == result.out);
  const std::string pipe = PROGRAM " translate \"$0\" <(cat \"$1\")";
  CHECK(run_words({"bash", "-c", pipe, (run.dir / "run").string(), path}).out == result.out);
  CHECK(run.call({"translate", path, "--batch-tokens", "1"}).out == result.out);
  CHECK(run.call({"translate", path, "--greedy"}).out == run.call({"translate", path, "--beam", "1"}).out);
}

TEST_CASE("translate and score refuse a text of zero bytes, from a file and from standard input") {
  const TinyTranslator run;
  const std::string empty = run.input("");
  for (const ProgramResult& refused : {run.call({"translate", empty}), run.call({"translate"}, empty),
                                       run.call({"score", empty, empty}), run.call({"score", "-", empty})}) {
    CHECK(refused.code == 3);
    CHECK_MESSAGE(refused.err.find(": no text: the size is 0 bytes") != std::string::npos, refused.err);
  }
}

TEST_CASE("translate prints n-best lists as Marian, scores, and JSON") {
  const TinyTranslator run;
  const std::string path = run.input("abc\nfe\n");
  const Lines best = split_lines(run.call({"translate", path}).out);
  const Lines lists = split_lines(run.call({"translate", path, "--n-best", "3"}).out);
  REQUIRE(lists.size() == 6);
  CHECK(lists[0].starts_with("0 ||| " + best[0] + " ||| F0= -"));
  CHECK(lists[3].starts_with("1 ||| " + best[1] + " ||| F0= -"));
  const Lines scored = split_lines(run.call({"translate", path, "--scores"}).out);
  CHECK(scored[0].ends_with("\t" + best[0]));
  const auto report = parse_json_output(run.call({"translate", path, "--n-best", "2", "--json"}));
  CHECK(report["lines"] == 2);
  CHECK(report["translations"][1]["hypotheses"].size() == 2);
  const auto& first = report["translations"][0]["hypotheses"][0];
  CHECK(first["text"] == best[0]);
  // The score is the log-probability divided by ((5 + n) / 6)^0.6.
  const auto n = first["tokens"].get<double>();
  CHECK(first["score"].get<double>() ==
        doctest::Approx(first["log_probability"].get<double>() / std::pow((5 + n) / 6, 0.6)));
}

TEST_CASE("score gives the log-probabilities of the search, with the same numbers of lines and tokens") {
  const TinyTranslator run;
  const std::string path = run.input("abc\nfe\n");
  const auto report = parse_json_output(run.call({"translate", path, "--json"}));
  std::string targets;
  for (const auto& one : report["translations"])
    targets += one["hypotheses"][0]["text"].get<std::string>() + "\n";
  write_file(run.dir / "targets", targets);
  const auto scores =
      parse_json_output(run.call({"score", path, (run.dir / "targets").string(), "--json"}))["scores"];
  for (size_t i = 0; i < 2; ++i) {
    const auto& one = report["translations"][i]["hypotheses"][0];
    CHECK(scores[i]["line"] == report["translations"][i]["line"]);
    if (!one["complete"].get<bool>()) continue;
    CHECK(scores[i]["tokens"] == one["tokens"]);
    CHECK(scores[i]["log_probability"].get<double>() ==
          doctest::Approx(one["log_probability"].get<double>()).epsilon(1e-4));
  }
}

TEST_CASE(
    "score cuts sentences that are longer than the model takes, as translate does, and names the first") {
  const TinyTranslator run;
  const std::string sources = run.input("abc\n" + std::string(500, 'a') + "\n" + std::string(32, 'a') + "\n");
  const std::string targets = (run.dir / "targets").string();
  write_file(targets, "CBA\nA\n" + std::string(33, 'A') + "\n");
  const ProgramResult result = run.call({"score", sources, targets, "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(
      result.err.find("pairs with a sentence of more than 32 tokens, twice data.max_length, whose end is not "
                      "scored: 2, the first is line 2") != std::string::npos);
  const auto scores = parse_json_output(result)["scores"];
  CHECK(scores[0]["tokens"] == 4);
  CHECK(scores[1]["tokens"] == 2);
  CHECK(scores[2]["tokens"] == 33);
  CHECK(scores[0]["cut"] == false);
  CHECK(scores[1]["cut"] == true);
}

TEST_CASE("a translation does not end: long lines, unknown characters and the maximum length are answered") {
  const TinyTranslator run;
  const std::string path = run.input(std::string(500, 'a') + "\n\xE4\xBA\xBA\naXb\n");
  const ProgramResult result = run.call({"translate", path, "--max-length", "5"});
  CHECK(result.code == 0);
  CHECK(split_lines(result.out).size() == 3);
  CHECK(result.err.find("lines with more than 32 tokens, twice data.max_length, whose ends are not "
                        "translated: 1, the first is line 1") != std::string::npos);
  CHECK(result.err.find("left out characters, which are not in the vocabulary: 2") != std::string::npos);
  const auto report = parse_json_output(run.call({"translate", path, "--max-length", "5", "--json"}));
  CHECK(report["left_out_characters"] == 2);
  for (const std::string& line : split_lines(result.out)) CHECK(line.size() <= 5);
}

TEST_CASE("the counts of lines do not contain those of an interrupted translation") {
  static int checks_left;
  struct Interruption {};
  const TinyTranslator run;
  const LoadedTask loaded = load_task({.path = (run.dir / "run").string()});
  const auto& task = loaded.as<TranslationTask>();
  Translator translator(task.model(), task.tokenizer(), {});
  const Lines lines{"abc", std::string(500, 'a'), "a\xE4\xBA\xBA"};
  translator.translate(lines);
  const InterruptionScope scope([] {
    if (--checks_left < 0) throw Interruption();
  });
  for (const int checks : {2, 5}) {  // within the lines, and within the decoding
    checks_left = checks;
    CHECK_THROWS_AS(translator.translate(lines), Interruption);
  }
  CHECK(translator.counts().lines == 3);
  CHECK(translator.counts().cut_lines == 1);
  CHECK(translator.counts().first_cut_line == 2);
  CHECK(translator.counts().left_out_characters == 1);
}

TEST_CASE(
    "eval, translate and score take longer sentences with a larger data.max_length, and mark cut ones") {
  TinyTranslator run;
  const std::string path = run.input("abc\n" + std::string(500, 'a') + "\n");
  const auto cut = [&](const Lines& settings) {
    Lines words = {"translate", path, "--json", "--max-length", "3"};
    words.insert(words.end(), settings.begin(), settings.end());
    const auto report = parse_json_output(run.call(words));
    CHECK(report["translations"][0]["cut"] == false);
    return report["translations"][1]["cut"].get<bool>();
  };
  CHECK(cut({}));
  CHECK(cut({"--set", "data.max_length=249"}));
  CHECK_FALSE(cut({"--set", "data.max_length=250"}));  // above data.batch_tokens
  const Lines score = {"score", path, path, "--json", "--set", "data.max_length=250"};
  CHECK(parse_json_output(run.call(score))["scores"][1]["cut"] == false);
  for (const std::string side : {"source", "target"})
    write_file(run.path("test", side), std::string(side == "source" ? "abc\n" : "CBA\n") +
                                           std::string(500, side == "source" ? 'a' : 'A') + "\n");
  const ProgramResult result = run.call({"eval", "--beam", "1", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(parse_json_output(result)["cut_pairs"] == 1);
  CHECK(result.err.find("1 of 2 pairs have a sentence of more than 32 tokens, twice data.max_length, and are "
                        "cut, the first in " +
                        run.path("test", "source") + ":2") != std::string::npos);
  const ProgramResult whole = run.call({"eval", "--beam", "1", "--json", "--set", "data.max_length=250"});
  CHECK(parse_json_output(whole)["cut_pairs"] == 0);
}

TEST_CASE("evaluations in training, eval and report say how translations were decoded") {
  const TinyTranslator run;
  const std::string path = (run.dir / "run").string();
  CHECK(get_metric_number(read_metrics(path + "/metrics.jsonl").back(), "beam", -1) == 1);
  const ProgramResult trained =
      run_program({"train", path + "/config.toml", "--run-dir", path + "2", "--json"});
  CHECK_MESSAGE(trained.err.find(", greedy decoding") != std::string::npos, trained.err);
  CHECK(parse_json_output(trained)["beam"] == 1);
  CHECK(run.call({"eval"}).out.find("beam") != std::string::npos);
  const std::string page = (run.dir / "page.html").string();
  REQUIRE(run_program({"report", path, "--out", page}).code == 0);
  for (const std::string text : {"evaluation BLEU, greedy", "chrF2 of greedy decoding"})
    CHECK(read_file(page).find(text) != std::string::npos);
}

TEST_CASE("an n-best list has all hypotheses also if the maximum length ends them") {
  const TinyTranslator run;
  const std::string path = run.input("abc\nfe\n");
  const ProgramResult result = run.call({"translate", path, "--n-best", "4", "--max-length", "2"});
  CHECK(split_lines(result.out).size() == 8);
  const auto report =
      parse_json_output(run.call({"translate", path, "--n-best", "4", "--max-length", "2", "--json"}));
  for (const auto& line : report["translations"]) CHECK(line["hypotheses"].size() == 4);
}

TEST_CASE("unknown tokens of sources and of translations are shown and counted") {
  if (no_sentencepiece()) return;
  TranslationFiles files;
  write_file(files.dir / "m.model", make_piece_model({.pieces = {"\u2581", "a", "b", "c", "A", "B", "C"},
                                                      .add_dummy_prefix = false}));
  files.config.data.options.erase("tokenizer");
  files.config.data.options.set("sentencepiece_model", (files.dir / "m.model").string());
  const std::string run = (files.dir / "run").string();
  train(files.config, run);
  CheckpointContents contents = read_checkpoint_contents(run);
  Tensor& bias = contents.model_tensors.at("predictor.bias");
  bias.data<float>()[0] = 1000;
  save_checkpoint(run, contents);
  const std::string source = (files.dir / "source").string(), target = (files.dir / "target").string();
  write_file(source, std::string("abc\na\u00DFb\n"));
  write_file(target, std::string("ABC\nA\u00DF\u00DFB\n"));
  const ProgramResult text = run_program({"translate", run, source, "--greedy", "--max-length", "3"});
  CHECK(text.out == "\uFFFD\uFFFD\uFFFD\n\uFFFD\uFFFD\uFFFD\n");
  CHECK(contains(text.err, "unknown tokens in the lines, for characters that are not in the vocabulary: 1"));
  CHECK(contains(text.err, "unknown tokens in the translations, whose text is U+FFFD: 6"));
  const auto report =
      parse_json_output(run_program({"translate", run, source, "--greedy", "--max-length", "3", "--json"}));
  CHECK(report["unknown_tokens"] == 6);
  CHECK(report["unknown_source_tokens"] == 1);
  CHECK(report["translations"][0]["hypotheses"][0]["unknown_tokens"] == 3);
  const ProgramResult scored = run_program({"score", run, source, target, "--json"});
  CHECK(parse_json_output(scored)["unknown_tokens"] == 1);
  CHECK(parse_json_output(scored)["unknown_source_tokens"] == 1);
  CHECK(contains(scored.err,
                 "unknown tokens in the translations, for characters that are not in the vocabulary: 1"));
  const ProgramResult evaluated = run_program({"eval", run, "--limit", "2", "--json"});
  CHECK_MESSAGE(parse_json_output(evaluated)["unknown_tokens"].get<int>() > 2, evaluated.err);
  CHECK(contains(evaluated.err, "unknown tokens in the translations, whose text is U+FFFD: "));
}

TEST_CASE("errors of translate and score name the option, the file or the line") {
  const TinyTranslator run;
  const std::string path = run.input("abc\n"), latin = (run.dir / "latin").string();
  write_file(latin, std::string("a\n\xE4 b\n"));
  const auto error = [&](const Lines& words, int code, const std::string& in = "/dev/null") {
    const ProgramResult result = run.call(words, in);
    CAPTURE(result.err);
    CHECK(result.code == code);
    return result.err;
  };
  const auto contains_text = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(contains_text(error({"translate", path, "--n-best", "5"}, 2),
                      "--n-best 5: expected at most the beam, 4"));
  CHECK(contains_text(error({"translate", path, "--greedy", "--beam", "2"}, 2), "--greedy excludes --beam"));
  for (const Lines& words : {Lines{"eval"}, Lines{"translate", path}}) {
    Lines wide = words;
    wide.insert(wide.end(), {"--beam", "1001"});
    CHECK(contains_text(error(wide, 2), "--beam"));
  }
  CHECK(run.call({"translate", path, "--max-length", "33"}).code == 0);
  CHECK(contains_text(
      error({"translate", path, "--max-length", "34"}, 2),
      "--max-length 34: this model translates at most 33 tokens, twice data.max_length and one"));
  CHECK(contains_text(error({"translate", latin}, 3), "latin:2"));
  CHECK(contains_text(error({"translate"}, 3, latin), "standard input:2"));
  CHECK(contains_text(error({"score", path}, 2), "TARGET"));
  CHECK(contains_text(error({"score", path, latin}, 3), "latin"));
  const std::string unknown = (run.dir / "unknown").string();
  write_file(unknown, std::string("ab\u03A9\n"));
  CHECK(contains_text(error({"score", path, unknown}, 3),
                      unknown + ":1, byte 3: the character \"\u03A9\" (U+03A9)"));
  CHECK(contains_text(error({"score", unknown, path}, 3),
                      unknown + ":1, byte 3: the character \"\u03A9\" (U+03A9)"));
  const std::string loop = (run.dir / "loop").string();
  std::filesystem::create_symlink(loop, loop);
  CHECK(contains_text(error({"translate", loop}, 3), loop));
  CHECK(contains_text(error({"score", loop, path}, 3), loop));
  CHECK(contains_text(error({"generate"}, 2), "this is a model of translations"));
  CHECK(contains_text(error({"eval", "--context", "3"}, 2), "this is a model of translations"));
}

TEST_CASE("settings of the tokenizer, which the run stores, are refused after training") {
  const TinyTranslator run;
  for (const std::string setting : {"data.tokenizer=bytes", "data.tokenizer=sentencepiece"}) {
    const ProgramResult result = run.call({"eval", "--set", setting});
    CHECK(result.code == 2);
    CHECK_MESSAGE(result.err.find("data.tokenizer: the run stores its tokenizer, so the value must be "
                                  "that of the run, \"characters\"") != std::string::npos,
                  result.err);
  }
  CHECK(run.call({"translate", run.input("abc\n"), "--set", "data.tokenizer=bytes"}).code == 2);
  CHECK(run.call({"eval", "--set", "data.tokenizer=characters"}).code == 0);
}

TEST_CASE("eval of a split with its own files needs no training files, and training says that it does") {
  const TinyTranslator run;
  const Lines no_training_files = {"--set", "data.source=''", "--set", "data.target=''"};
  const auto call_without = [&](Lines words) {
    words.insert(words.end(), no_training_files.begin(), no_training_files.end());
    return run_program(words);
  };
  const std::string path = (run.dir / "run").string();
  const ProgramResult test = call_without({"eval", path});
  CHECK_MESSAGE(test.code == 0, test.err);
  CHECK(call_without({"eval", path, "--split", "valid"}).code == 0);
  for (const Lines& words : {Lines{"eval", path, "--split", "train"},
                             Lines{"train", path + "/config.toml", "--run-dir", path + "2"}}) {
    const ProgramResult result = call_without(words);
    CHECK(result.code == 2);
    CHECK_MESSAGE(result.err.find("data.source: needs a file, a folder or a pattern") != std::string::npos,
                  result.err);
  }
}
