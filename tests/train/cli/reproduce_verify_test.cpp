// Tests of `tapeformer reproduce --verify`. The tests of reproduce_command_test.cpp verify further tables.
#include <cmath>

#include "core/system/files.h"
#include "tests/data/stand_ins.h"
#include "tests/train/cli/reproduce_words.h"
#include "tests/train/cli/translation_run.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

TEST_CASE(
    "reproduce --verify names the values that differ, repeats the stated seed, and leaves out slow rows") {
  const TempDir dir;
  const auto file = dir / "stated.json";
  const auto verify = [&](const Words& more, const std::string& folder) {
    return run_program(verify_command("copy-convergence", file, dir / folder, more));
  };
  REQUIRE(run_program(reproduce_command("copy-convergence", dir / "out", kTinyCopy,
                                        {"--rows", "softmax,linear", "--seeds", "3,4"}))
              .code == 0);
  Json stated = Json::parse(read_file(dir / "out/table.json"));
  write_file(file, stated.dump());
  const auto same = verify({}, "same");
  CAPTURE(same.err);
  CHECK(same.code == 0);
  const auto report = parse_json_output(same);
  CHECK(report["agree"] == 4);
  CHECK(report["speeds_not_compared"] == 2);
  CHECK(contains(same.err, "not repeated: lsh-1: has no stated values"));
  CHECK(fs::exists(dir / "same/cells/linear-seed-3.json"));
  CHECK(!fs::exists(dir / "same/cells/linear-seed-4.json"));

  // Outside of the stated values by less than the spread, and by more.
  auto& cell = stated["rows"][0]["cells"]["test_loss_nats"];
  const double spread = cell["spread"].get<double>();
  for (const auto& [shift, code] : {std::pair(-0.9, 0), std::pair(-2.5, 1)}) {
    Json moved = stated;
    for (auto& one : moved["rows"][0]["cells"]["test_loss_nats"]["values"])
      one["value"] = cell["values"][0]["value"].get<double>() + shift * spread;
    write_file(file, moved.dump());
    const auto result = verify({}, "same");  // repeats no training
    CHECK(result.code == code);
    CHECK(parse_json_output(result)["differ"] == code);
  }
  CHECK(contains(verify({}, "same").err, "1 values differ from"));

  stated["rows"][1]["seconds"] = 700;
  write_file(file, stated.dump());
  const auto quick = verify({"--rows", "softmax"}, "same");
  CHECK(parse_json_output(quick)["agree"] == 2);
  const auto slow = verify({"--rows", "linear"}, "slow");
  CHECK(slow.code == 2);
  CHECK(contains(slow.err, "nothing can be compared"));
  CHECK(parse_json_output(verify({"--rows", "linear", "--verify-minutes", "12"}, "same"))["agree"] == 2);

  CHECK(contains(verify({"--scale", "small"}, "same").err, "--scale and --verify cannot be combined"));
  CHECK(contains(run_program({"reproduce", "mnist-table", "--verify", file.string()}).err,
                 "is a result of copy-convergence, and not of mnist-table"));
  write_file(file, std::string("{\"table\": \"copy-convergence\", \"rows\": [5]}"));
  CHECK(verify({}, "same").code == 3);
}

TEST_CASE("reproduce --verify agrees with each table that trains on data sets") {
  const TempDir dir;
  write_stand_in_mnist(dir / "data/mnist");
  write_stand_in_cifar10(dir / "data/cifar10");
  write_stand_in_an4(dir / "data/an4", 4);
  const TranslationFiles pairs;
  for (const std::string split : {"train", "valid", "test"})
    for (const auto& [side, language] : {std::pair("source", "en"), std::pair("target", "de")})
      write_file(dir / "data/tatoeba-de-en" / (split + "." + language), read_file(pairs.path(split, side)));
  const Words stand_ins = {"--data-dir", (dir / "data").string()};
  const struct {
    std::string name;
    Words sets, data;
  } tables[] = {
      {"mnist-table",
       {"data.downscale=7", "measure.batch=1", "train.steps=2", "data.batch_size=2", "data.eval_limit=2"},
       stand_ins},
      {"cifar10-table",
       {"measure.batch=1", "train.steps=2", "data.batch_size=2", "data.eval_limit=2"},
       stand_ins},
      {"speech-table", {"train.epochs=1", "data.eval_limit=2", "model.layers=1"}, stand_ins},
      {"speech-scaling", {"measure.shortest=64", "measure.longest=128", "model.layers=1"}, {}},
      {"translation-table", {"train.steps=2", "data.eval_limit=2", "data.tokenizer=characters"}, stand_ins}};
  for (const auto& [name, sets, data] : tables) {
    CAPTURE(name);
    Words more = {"--rows", "linear"};
    more.insert(more.end(), data.begin(), data.end());
    const auto ran = run_program(reproduce_command(name, dir / name, sets, more));
    CAPTURE(ran.err);
    REQUIRE(ran.code == 0);
    CHECK(check_verification(name, dir / name, data)["cells"].size() > 0);
  }
}
