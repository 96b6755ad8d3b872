#include <doctest/doctest.h>
#include <sys/stat.h>

#include "tests/support/encoded.h"
#include "tests/support/temp_dir.h"
#include "tests/train/config/config_fixture.h"

using namespace tapeformer;
using tapeformer::test::contains;
using tapeformer::test::message_of;

namespace {

// Returns the error message for a config file that contains the lines "[train]" and "steps = 5", and then
// `text`.
std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  TempFolder folder;
  std::string error = find_config_error(folder.write("a.toml", "[train]\nsteps = 5\n" + text), sets);
  const std::string prefix = folder.path("");  // removed from the message, which then begins with "a.toml:"
  for (size_t at; (at = error.find(prefix)) != std::string::npos;) error.erase(at, prefix.size());
  return error;
}

}  // namespace

TEST_CASE("the error about an unknown key has its position and a suggestion") {
  CHECK(error_of("[data]\n  bach_size = 3\n") ==
        "a.toml:4:3: unknown key data.bach_size; did you mean data.batch_size?");
  CHECK(error_of("[data]\nzzzzzzzzz = 3\n") ==
        "a.toml:4:1: unknown key data.zzzzzzzzz; \"tapeformer train --help data\" lists the keys of [data]");
  CHECK(error_of("[data]\n\"é\" = 1\n").starts_with("a.toml:4:1: unknown key data.é"));
}

TEST_CASE("the error about a key of another table suggests this table") {
  CHECK(error_of("lr = 1e-3\n") == "a.toml:3:1: unknown key train.lr; did you mean optimizer.lr?");
  TempFolder folder;
  CHECK(find_config_error(folder.write("a.toml",
                                       "seed = 3\n"
                                       "train.steps = 4\n")) ==
        folder.path("a.toml") + ":1:1: unknown key seed outside of all tables; did you mean run.seed?");
}

TEST_CASE("an unknown table is reported once, also if it is empty") {
  CHECK(error_of("[dta]\nx = 1\ny = 2\n") == "a.toml:3:2: unknown table [dta]; did you mean [data]?");
  CHECK(error_of("[optimiser]\n") == "a.toml:3:2: unknown table [optimiser]; did you mean [optimizer]?");
}

TEST_CASE("the error about an unknown key without a similar name says how to find the name") {
  const std::string mel = "; \"tapeformer train --help mel\" lists the keys with \"mel\" in their names";
  CHECK(error_of("[data]\nmel_bins = 3\n") == "a.toml:4:1: unknown key data.mel_bins" + mel);
  CHECK(error_of("", {"data.mel_bins=3"}) == "--set data.mel_bins: unknown key data.mel_bins" + mel);
  CHECK(error_of("", {"number_of_mel_filters=3"}) ==
        "--set number_of_mel_filters: unknown key number_of_mel_filters outside of all tables" + mel);
  CHECK(error_of("", {"zzzzz=3"}) ==
        "--set zzzzz: unknown key zzzzz outside of all tables; \"tapeformer train --help\" lists all keys");
  CHECK(error_of("", {"zzzzzzzzz.x=3"})
            .starts_with("--set zzzzzzzzz.x: unknown table [zzzzzzzzz]; the tables are [run], [data], "));
}

TEST_CASE("the error about a number that is too large states the whole range") {
  const std::string range = "expected an integer from 0 to 9223372036854775807, got ";
  CHECK(contains(error_of("", {"run.seed=9223372036854775808"}), range));
  CHECK(contains(error_of("", {"data.limit=99999999999999999999"}), range));
  CHECK(contains(error_of("", {"run.seed=-9223372036854775809"}), range));
  CHECK(contains(error_of("[run]\nseed = 9223372036854775808\n"), "64 bits"));
  CHECK(error_of("", {"run.seed=9223372036854775807"}) == "");
  CHECK(contains(error_of("", {"run.threads=9223372036854775808"}), "from 0 to 4096"));
  const std::string float_range = "expected a number from 0 to 1.7976931348623157e+308, got ";
  CHECK(contains(error_of("", {"optimizer.lr=1e400"}), float_range));
  CHECK(contains(error_of("[optimizer]\nlr = inf\n"), float_range));
  CHECK(contains(error_of("", {"optimizer.lr=large"}), "expected a number of at least 0, got "));
}

TEST_CASE("the error about an unknown key of an attention kind names the kind") {
  CHECK(error_of("[attention]\nep = 4\n") ==
        "a.toml:4:1: unknown key attention.ep of attention kind \"linear\"; did you mean attention.eps?");
  CHECK(error_of("[model]\nattention = \"softmax\"\n[attention]\nhops = 4\n") ==
        "a.toml:6:1: unknown key attention.hops of attention kind \"softmax\"; \"tapeformer train --help "
        "attention.softmax\" lists the keys of [attention.softmax]");
  CHECK(error_of("[attention]\neps = 0\n") ==
        "a.toml:4:7: attention.eps: expected a number from 1e-12 to 1, got integer 0");
}

TEST_CASE("the error about a value of the wrong type names the expected and the actual type") {
  CHECK(error_of("[data]\nbatch_size = \"10\"\n") ==
        "a.toml:4:14: data.batch_size: expected an integer from 1 to 1048576, got string \"10\"");
  CHECK(error_of("[data]\nbatch_size = 10.0\n").find("expected an integer") != std::string::npos);
  CHECK(error_of("[data]\nbatch_size = { a = 1 }\n").find("got a table") != std::string::npos);
  CHECK(error_of("[data]\nshuffle = 1\n") ==
        "a.toml:4:11: data.shuffle: expected true or false, got integer 1");
  CHECK(error_of("[run]\nname = 2020-01-01\n") ==
        "a.toml:4:8: run.name: expected a string, got a date or time");
  CHECK(error_of("[optimizer]\nlr = true\n") ==
        "a.toml:4:6: optimizer.lr: expected a number of at least 0, got true");
  CHECK(error_of("[optimizer]\nbetas = 0.9\n").find("expected a list of 2 numbers") != std::string::npos);
  CHECK(error_of("[optimizer]\nbetas = [0.9]\n").find("got a list of 1") != std::string::npos);
  CHECK(error_of("[optimizer]\nbetas = [0.9, \"x\"]\n").find("got string \"x\" in the list") !=
        std::string::npos);
  CHECK(
      error_of("[schedule]\nkind = \"step\"\nstep_at = [1, 2.5]\n") ==
      "a.toml:5:11: schedule.step_at: expected a list of integers of at least 1, got float 2.5 in the list");
}

TEST_CASE("a table that is written as a value or as a list of tables is an error") {
  TempFolder folder;
  CHECK(find_config_error(folder.write("a.toml", "data = 3\ntrain.steps = 4\n")) ==
        folder.path("a.toml") + ":1:8: data: expected a table, got integer 3");
  CHECK(error_of("[[data]]\nlimit = 3\n").find("data: expected a table, got a list of 1") !=
        std::string::npos);
  CHECK(error_of("[data.limit]\nx = 3\n").find("data.limit: expected an integer") != std::string::npos);
}

TEST_CASE("optimizer and schedule options that exclude or require each other are errors") {
  CHECK(error_of("[optimizer]\nclip_norm = 1\nclip_value = 1\n") ==
        "a.toml:5:14: optimizer.clip_value: both clip_norm and clip_value are set, expected at most one");
  CHECK(error_of("[schedule]\nkind = \"rsqrt\"\n").find("decays from the end of the warm-up") !=
        std::string::npos);
  CHECK(error_of("[model]\ntied_embeddings = true\n").find("belongs to the model type \"sequence\"") !=
        std::string::npos);
}

TEST_CASE("the error about a value out of range names the range or the choices, and a suggestion") {
  CHECK(error_of("[data]\nbatch_size = 0\n") ==
        "a.toml:4:14: data.batch_size: expected an integer from 1 to 1048576, got integer 0");
  CHECK(error_of("[model]\ndropout = 1.0\n").find("of at least 0 and below 1, got float 1") !=
        std::string::npos);
  CHECK(error_of("[model]\nnorm = \"pst\"\n") ==
        "a.toml:4:8: model.norm: got string \"pst\"; did you mean \"post\"? Expected one of \"post\", "
        "\"pre\"");
  CHECK(error_of("[model]\nattention = \"lnear\"\n[attention]\neps = 3\n")
            .starts_with("a.toml:4:13: model.attention: got string \"lnear\"; did you mean \"linear\"? "
                         "Expected one of \"linear\", "));
  for (const char* lr : {"nan", "inf", "-inf", "-1e-9"})
    CHECK_MESSAGE(
        error_of(std::string("[optimizer]\nlr = ") + lr + "\n").find("optimizer.lr: expected a number") !=
            std::string::npos,
        lr);
  CHECK(error_of("[data]\ndownscale = 3\n") ==
        "a.toml:4:13: data.downscale: expected one of 1, 2, 4, 7, got integer 3");
  CHECK(error_of("[run]\ndevice = \"gpu\"\n").find("\"cuda:N\", got \"gpu\"") != std::string::npos);
  CHECK(error_of("[run]\nname = \"../up\"\n").find("expected a name that can be a folder") !=
        std::string::npos);
  CHECK(error_of("[data]\nlimit = 99999999999999999999\n").starts_with("a.toml:4:"));
}

TEST_CASE("a duplicate key or table is a syntax error with the line of the second occurrence") {
  const auto is_reported = [](const std::string& text, const std::string& line, const std::string& name) {
    const std::string error = error_of(text);
    CAPTURE(error);
    CHECK(error.starts_with("a.toml:" + line + ":"));
    CHECK(error.find("syntax error: ") != std::string::npos);
    CHECK(error.find("redefine existing") != std::string::npos);
    CHECK(error.find("'" + name + "'") != std::string::npos);
  };
  is_reported("[data]\nlimit = 3\n  limit = 4\n", "5", "limit");
  is_reported("[data]\nlimit = 3\n[model]\n[data]\nshuffle = true\n", "6", "data");
}

TEST_CASE("one error reports all unknown, ill-typed and out-of-range keys, in order") {
  TempFolder folder;
  folder.write("base.toml", "[model]\nlayres = 3\n");
  const std::string error = find_config_error(folder.write("a.toml", R"(extends = "base.toml"
[data]
bach_size = 1
shuffle = "no"
limit = -1
symbols = 0
[trian]
steps = 1
[model]
norm = "pots"
)"),
                                              {"model.heads=0", "nonsense"});
  const std::string a = folder.path("a.toml"), base = folder.path("base.toml");
  CHECK(error ==
        a + ":3:1: unknown key data.bach_size; did you mean data.batch_size?\n" + a +
            ":4:11: data.shuffle: expected true or false, got string \"no\"\n" + a +
            ":5:9: data.limit: expected an integer of at least 0, got integer -1\n" + a +
            ":6:11: data.symbols: expected an integer from 1 to 65535, got integer 0\n" + a +
            ":7:2: unknown table [trian]; did you mean [train]?\n" + a +
            ":10:8: model.norm: got string \"pots\"; did you mean \"post\"? Expected one of \"post\", "
            "\"pre\"\n" +
            base +
            ":2:1: unknown key model.layres; did you mean model.layers?\n"
            "--set model.heads: expected an integer from 1 to 4096, got integer 0\n"
            "--set nonsense: expected table.key=value");
}

TEST_CASE("a config with more logistics than the loss supports is an error") {
  CHECK(error_of("[model]\nmixtures = 65\n") ==
        "a.toml:4:12: model.mixtures: expected an integer from 1 to 64, got integer 65");
}

TEST_CASE("a syntax error has a position and one line") {
  CHECK(error_of("[data]\nlimit = \n").starts_with("a.toml:4:9: syntax error: "));
  CHECK(error_of("[data\n").starts_with("a.toml:3:6: syntax error: "));
}

TEST_CASE(
    "extends: errors about a missing base, a cycle and a wrong type have the position of the extending "
    "line") {
  TempFolder folder;
  const std::string a = folder.path("a.toml"), b = folder.path("b.toml");
  folder.write("a.toml", "\nextends = \"none.toml\"\n[train]\nsteps = 1\n");
  CHECK(find_config_error(a) ==
        a + ":2:11: extends: " + folder.path("none.toml") + " cannot be read: No such file or directory");
  folder.write("a.toml", "extends = \"b.toml\"\n[train]\nsteps = 1\n");
  folder.write("b.toml", "extends = \"./a.toml\"\n");
  CHECK(find_config_error(a) ==
        b + ":1:11: extends: files extend each other in a cycle: a.toml -> b.toml -> a.toml");
  folder.write("a.toml", "extends = \"a.toml\"\n[train]\nsteps = 1\n");
  CHECK(find_config_error(a).find("cycle: a.toml -> a.toml") != std::string::npos);
  folder.write("a.toml", "extends = 3\n[train]\nsteps = 1\n");
  CHECK(find_config_error(a) == a + ":1:11: extends: expected a string, got integer 3");
}

TEST_CASE("errors about --set name the option") {
  CHECK(error_of("", {"data.bach_size=3"}) ==
        "--set data.bach_size: unknown key data.bach_size; did you mean data.batch_size?");
  CHECK(error_of("", {"dta.limit=3"}) == "--set dta.limit: unknown table [dta]; did you mean [data]?");
  CHECK(error_of("", {"lr=3"}).find("did you mean optimizer.lr?") != std::string::npos);
  CHECK(error_of("", {"data=3"}) == "--set data: expected a table, got integer 3");
  CHECK(error_of("", {"data={limit=3}"}) == "--set data: set one key at a time, data.KEY=VALUE");
  CHECK(error_of("", {"data.limit"}) == "--set data.limit: expected table.key=value");
  CHECK(error_of("", {"=3"}) == "--set =3: expected table.key=value");
  CHECK(error_of("", {"data.limit=many"}).find("got string \"many\"") != std::string::npos);
  CHECK(error_of("", {"optimizer.betas=[0.9,"}).starts_with("--set optimizer.betas: syntax error: "));
  CHECK(error_of("", {"data.limit.x=1"}).find("unknown key data.limit.x") != std::string::npos);
  CHECK(error_of("", {"run.seed=1\ndata=2"}).find("--set run.seed: expected an integer") !=
        std::string::npos);
}

TEST_CASE("errors about missing, binary and huge files name the file") {
  TempFolder folder;
  const std::string none = folder.path("none.toml");
  CHECK(find_config_error(none) == none + ": cannot be read: No such file or directory");
  CHECK(find_config_error(folder.path("")).find("is a folder") != std::string::npos);
  CHECK(find_config_error(folder.write("nul", std::string("[data]\n\0x", 9))).find("is not a text file") !=
        std::string::npos);
  CHECK(find_config_error(folder.write("latin", "x = \"\xe9\xff\"\n")).find("latin:1:") != std::string::npos);
  CHECK(find_config_error(folder.write("huge", std::string(2 << 20, '\n'))).find("larger than 1 MiB") !=
        std::string::npos);
  CHECK(find_config_error(folder.write("long", std::string(5000, 'x'))).find("line longer than") !=
        std::string::npos);
  std::string deep = "a";
  for (int i = 0; i < 2000; ++i) deep += ".a";
  CHECK(find_config_error(folder.write("deep", deep + " = 1\n")).find("unknown table [a]") !=
        std::string::npos);
  CHECK(find_config_error(folder.write("lists", "x = " + std::string(4000, '[') + "\n")).find("lists:1:") !=
        std::string::npos);
}

TEST_CASE("the error about a config in UTF-16 names the encoding and a command that converts it") {
  const TempFolder folder;
  const std::string text = "[run]\nseed = 3\n[train]\nsteps = 1\n";
  CHECK(find_config_error(folder.write("mark", "\xEF\xBB\xBF" + text)).empty());
  const std::u16string wide(text.begin(), text.end());
  CHECK(find_config_error(folder.write("wide", test::encoded(wide)))
            .find("is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8") !=
        std::string::npos);
}

TEST_CASE("a pipe instead of a config is an error and does not block") {
  TempFolder folder;
  const std::string pipe = folder.path("pipe.toml");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(find_config_error(pipe) == pipe + ": is a pipe, expected a config file");
}

TEST_CASE("random bytes cause an error that names the file, and no crash") {
  TempFolder folder;
  uint64_t state = 42;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const std::string alphabet = "[]{}=.,\"'#\n\n ab1e-+_\\\xc3\xa9";
    for (int i = 0; i < 60; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      text += alphabet[(state >> 33) % alphabet.size()];
    }
    CHECK_MESSAGE(
        find_config_error(folder.write("noise.toml", text)).find("noise.toml:") != std::string::npos, text);
  }
}

TEST_CASE("contradictions between keys of the length, the data set, the schedule or the width are errors") {
  TempFolder folder;
  const std::string a = folder.path("a.toml");
  folder.write("a.toml", "[train]\nsteps = 1\nepochs = 1\n");
  CHECK(find_config_error(a).find(a + ":3:10: train.epochs: both train.steps and train.epochs") == 0);
  folder.write("a.toml", "[run]\n[train]\nlog_every = 1\n");
  CHECK(find_config_error(a).find(a + ":2:2: train.steps: neither train.steps nor train.epochs") == 0);
  folder.write("a.toml", "");
  CHECK(find_config_error(a).find(a + ":1:1: train.steps: neither") == 0);
  CHECK(error_of("[data]\ndataset = \"copy\"\n") ==
        "a.toml:1:1: model.type: data set \"copy\" needs type \"sequence\", got \"image\"");
  CHECK(
      error_of("[data]\ndataset = \"cifar10\"\ndownscale = 7\n").find("does not divide images of 32 x 32") !=
      std::string::npos);
  CHECK(error_of("[schedule]\nkind = \"step\"\n").find("needs at least one step") != std::string::npos);
  CHECK(error_of("[schedule]\nkind = \"step\"\nstep_at = [5, 5]\n").find("expected increasing steps") !=
        std::string::npos);
  CHECK(error_of("[schedule]\nkind = \"plateau\"\n").find("set train.eval_every") != std::string::npos);
  CHECK(error_of("[model]\nvalue_dim = 256\n").find("the width, 256, got 256") != std::string::npos);
}

TEST_CASE("positions that a speech model does not have are errors") {
  const std::string speech = "[data]\ndataset = \"an4\"\n[model]\ntype = \"speech\"\npositions = ";
  const auto errors_of = [&](const std::string& positions) {
    return error_of(speech + "\"" + positions + "\"\n");
  };
  CHECK(errors_of("rotary").find("model.positions") == std::string::npos);
  CHECK(
      errors_of("axial").find("model.positions: \"axial\" needs a model of type \"image\" or \"sequence\"") !=
      std::string::npos);
  CHECK(errors_of("grid").find("model.positions: \"grid\" needs a data set of images") != std::string::npos);
}

TEST_CASE("contradictions between keys of reversible layers, chunks or axial positions are errors") {
  CHECK(error_of("[model]\nreversible = true\n") ==
        "a.toml:3:2: model.norm: reversible layers require pre-norm: expected \"pre\"");
  CHECK(error_of("[model]\nreversible = true\nnorm = \"pre\"\nrecompute = true\n") ==
        "a.toml:6:13: model.recompute: reversible layers already recompute activations: expected false");
  CHECK(error_of("[model]\nreversible = true\nnorm = \"pre\"\nfeedforward_chunks = 8\nloss_chunks = 3\n") ==
        "");
  for (const char* key : {"feedforward_chunks", "loss_chunks"})
    CHECK(error_of(std::string("[model]\n") + key + " = 0\n") ==
          std::string("a.toml:4:") + (key[0] == 'f' ? "22" : "15") + ": model." + key +
              ": expected an integer from 1 to 1048576, got integer 0");
  const std::string axial = "[model]\npositions = \"axial\"\n";
  CHECK(error_of(axial + "axial_shape = [28, 28]\naxial_dims = [64, 192]\n") == "");
  CHECK(
      error_of(axial + "axial_dims = [64, 192]\n")
          .find(
              "model.axial_shape: axial positions need 1 to 3 sizes above 0, for example [64, 64], got []") !=
      std::string::npos);
  CHECK(error_of(axial + "axial_shape = [28, 28]\naxial_dims = [64, 64]\n") ==
        "a.toml:6:14: model.axial_dims: expected numbers that add up to the width, 256, "
        "got a "
        "sum of 128");
  CHECK(error_of(axial + "axial_shape = [28, 28]\naxial_dims = [256]\n") ==
        "a.toml:6:14: model.axial_dims: expected a number above 0 for each of 2 axes, got [256]");
  CHECK(error_of(axial + "axial_shape = [28, 0]\naxial_dims = [64, 192]\n")
            .find("model.axial_shape: expected a list of integers from 1") != std::string::npos);
  CHECK(error_of(axial + "axial_shape = [28, 28]\naxial_dims = [64, 192]\nvalue_dim = 8\n") ==
        "a.toml:7:1: model.value_dim: belongs to configs where model.positions = \"sinusoidal\" or \"grid\", "
        "and "
        "model.positions is \"axial\"");
}

TEST_CASE("a key whose condition depends on another condition names the first that is not met") {
  TempFolder folder;
  const auto path =
      folder.write("run.toml", "[data]\ndataset = \"text\"\ntokenizer = \"characters\"\nvocabulary = 500\n");
  CHECK(
      find_config_error(path).ends_with(":4:1: data.vocabulary: belongs to configs where data.tokenizer = "
                                        "\"sentencepiece\", and data.tokenizer is "
                                        "\"characters\""));
}

TEST_CASE("the condition of a key is a part of the sentence about its configs") {
  const TempFolder folder;
  const auto error_of = [&](const std::string& keys) {
    return find_config_error(folder.write("run.toml", keys));
  };
  const std::string pairs = "[data]\ndataset = \"translation\"\nsource = \"a\"\ntarget = \"b\"\n",
                    valid = "valid_source = \"c\"\nvalid_target = \"d\"\nvalid_pairs = 3\n";
  CHECK(error_of(pairs + valid)
            .find("data.valid_pairs: belongs to configs where data.valid_source is empty, and") !=
        std::string::npos);
}

TEST_CASE("commands do not check a setting against keys that they do not use, and training does") {
  TempFolder folder;
  const auto check_key = [&](const std::string& path, const std::string& setting, const std::string& key) {
    ConfigLoadOptions options{.unused_key_policy = UnusedKeyPolicy::ignore_in_file};
    CHECK(message_of<ConfigError>([&] { load_config(path, {setting}, options); }).find(key) !=
          std::string::npos);
    options.purpose = ConfigPurpose::generation;
    CHECK_NOTHROW(load_config(path, {setting}, options));
  };
  check_key(folder.write("pairs.toml",
                         "[data]\ndataset = \"translation\"\nsource = \"a\"\ntarget = \"b\"\n"
                         "max_length = 24\nbatch_tokens = 300\n[model]\ntype = \"translation\"\n"
                         "[train]\nsteps = 1\n"),
            "data.max_length=900", "data.batch_tokens: expected 0 or at least max_length + 1 = 901");
  check_key(folder.write("text.toml",
                         "[data]\ndataset = \"text\"\npath = \"a\"\nsequence_length = 64\n"
                         "eval_context = 32\n[model]\ntype = \"sequence\"\n[train]\nsteps = 1\n"),
            "data.sequence_length=16", "data.eval_context: expected less than sequence_length = 16");
}

TEST_CASE("text that is not UTF-8 is refused before training: files, --set and the name of the config file") {
  TempFolder folder;
  const auto path = folder.write("run.toml", "[train]\nsteps = 1\n");
  CHECK(find_config_error(path) == "");
  CHECK(find_config_error(path, {"run.name=caf\xc3\xa9"}) == "");
  CHECK(find_config_error(path, {"run.name=caf\xe9"}).find("is not valid UTF-8") != std::string::npos);
  CHECK(find_config_error(path, {"data.path=\"/data/\xff\""}).find("is not valid UTF-8") !=
        std::string::npos);
  const auto in_file = folder.write("bytes.toml", "[train]\nsteps = 1\n[run]\nname = \"caf\xe9\"\n");
  CHECK(find_config_error(in_file).starts_with(in_file + ":4:"));
  const auto named = folder.write("caf\xe9.toml", "[train]\nsteps = 1\n");
  CHECK(find_config_error(named).find("run.name: the name of the config file is not valid UTF-8") !=
        std::string::npos);
  CHECK(find_config_error(named, {"run.name=plain"}) == "");
}

TEST_CASE("data.eval_context and data.shuffle are errors if data.streams is true") {
  const std::string text = "[data]\ndataset = \"text\"\npath = \"a\"\nstreams = true\n";
  const std::string model = "[model]\ntype = \"sequence\"\n";
  CHECK(error_of(text + "eval_context = 3\n" + model)
            .find("data.eval_context: the segments of streams = true do not overlap, expected 0, got 3") !=
        std::string::npos);
  CHECK(error_of(text + "shuffle = false\n" + model)
            .find("data.shuffle: belongs to batches of independent examples, and data.streams is true") !=
        std::string::npos);
}

TEST_CASE("a contradiction at a position in a file names the --set options") {
  const TempFolder folder;
  const auto path = folder.write(
      "a.toml", "[data]\ndataset = \"copy\"\n[train]\nsteps = 1\n[model]\ntype = \"sequence\"\n");
  CHECK(
      find_config_error(path, {"data.dataset=mnist"}) ==
      path +
          ":6:8: model.type: data set \"mnist\" needs type \"image\" or \"classification\", got \"sequence\" "
          "(with --set data.dataset)");
  CHECK(find_config_error(path, {"train.epochs=2", "train.steps=2"}).find("(with --set") ==
        std::string::npos);
}
