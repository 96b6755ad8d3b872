// Tests that concern all commands: help, mistyped words, exit statuses, and output that cannot be written.
#include "tests/train/cli/program.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <iterator>

#include "core/cuda/devices.h"
#include "ops/linear.h"
#include "tests/train/cli/tiny_run.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Words = std::vector<std::string>;

const std::vector<std::string> kCommands = {"train", "eval", "generate", "complete", "bench", "data", "info"};

}  // namespace

TEST_CASE("help works with and without a command") {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--help"}, {"-h"}, {"help"}}) {
    const auto help = run_program(words);
    CHECK(help.code == 0);
    for (const auto& command : kCommands) CHECK(contains(help.out, "\n  " + command + " "));
    for (const auto& kind : {"linear", "softmax", "lsh", "local", "performer"})
      CHECK(contains(help.out, kind));
    CHECK(help.err == "");
  }
  for (const auto& command : kCommands) {
    CAPTURE(command);
    for (const auto& words :
         {std::vector<std::string>{command, "--help"}, {command, "-h"}, {"help", command}}) {
      const auto help = run_program(words);
      CHECK(help.code == 0);
      CHECK(contains(help.out, "tapeformer " + command));
      for (const std::string option :
           {"--device", "--threads", "--seed", "--data-dir", "--set", "--json", "--quiet"})
        CHECK(contains(help.out, option));
      CHECK(help.err == "");
    }
  }
}

TEST_CASE("no command is a usage error") {
  const auto result = run_program({});
  CHECK(result.code == 2);
  CHECK(result.out == "");
  CHECK(contains(result.err, "info"));
}

TEST_CASE("mistyped words cause exit status 2 and a suggestion") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"inffo"}, "did you mean \"info\""},
      {{"data", "lst"}, "did you mean \"list\""},
      {{"data", "verify", "mnst"}, "did you mean \"mnist\""},
      {{"bench", "small-opp"}, "did you mean \"small-op\""},
      {{"info", "--jsn"}, "did you mean --json"},
      {{"info", "--thread=2"}, "did you mean --threads"},
      {{"data", "list", "--data_dir", "x"}, "did you mean --data-dir"},
      {{"bench", "small-op", "--repeat=3"}, "did you mean --repeats"},
      {{"xyzzyquux"}, "there are"},
  };
  for (const auto& [words_bound, expected] : cases) {
    const auto& words = words_bound;  // clang 14 cannot capture structured bindings
    const auto result = run_program(words);
    CAPTURE(words.front());
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(contains(result.err, expected));
  }
}

TEST_CASE("words that consist of dashes are unknown options and no internal errors") {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"info", "---"}, {"eval", "--=x"}, {"eval", "-="}, {"train", "----=="}}) {
    const auto result = run_program(words);
    CHECK(result.code == 2);
    CHECK(contains(result.err, "error: unknown option " + words.back() + " of"));
  }
}

TEST_CASE("errors about empty arguments name the argument") {
  for (const std::string command : {"train", "eval", "generate"}) {
    const auto result = run_program({command, ""});
    CHECK(result.code == 2);
    CHECK(contains(result.err, command == "train" ? "CONFIG is empty" : "RUN is empty"));
  }
}

TEST_CASE("errors about options without a value name the option") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"bench", "small-op", "--repeats"}, "error: \"tapeformer bench\": --repeats needs a value"},
      {{"bench", "small-op", "--repeats", ""}, "error: --repeats: the value is empty"},
      {{"reproduce", "mnist-table", "--out", ""}, "error: --out: the value is empty"}};
  for (const auto& [words, expected] : cases) {
    const auto result = run_program(words);
    CHECK(result.code == 2);
    CHECK(contains(result.err, expected));
  }
}

TEST_CASE("two dashes end the options") {
  CHECK(run_program({"info", "--"}).code == 0);
  CHECK(contains(run_program({"info", "--", "--json"}).err, "does not take the argument \"--json\""));
  const auto result = run_program({"eval", "--", "--json"});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "error: --json: no such run directory"));
}

TEST_CASE("the name of a benchmark may follow options") {
  const auto result =
      run_program({"bench", "--json", "--ops", "10", "--repeats=1", "small-op", "--device=cpu"});
  CHECK(result.code == 0);
  CHECK(parse_json_output(result)["benchmark"] == "small-op");
  CHECK(run_program({"bench", "--json", "small-opp"}).code == 2);
  CHECK(run_program({"bench", "--json"}).code == 2);
  CHECK(run_program({"bench", "--json", "--", "list"}).code == 0);
}

TEST_CASE("flags accept only true and false as values") {
  const auto result = run_program({"info", "--json=x"});
  CHECK(result.code == 2);
  CHECK(contains(result.err, "--json: expected true or false, got \"x\""));
  CHECK(contains(run_program({"generate", "nowhere", "--prompt", "--json=x"}).err, "nowhere"));
  const auto layers = parse_json_output(
      run_program({"bench", "lstm", "--bidirectional=false", "--batch", "1", "--frames", "2", "--in", "3",
                   "--hidden", "4", "--layers", "1", "--repeats", "1", "--json"}));
  CHECK(layers["parameters"] == 4 * 4 * (3 + 4 + 2));
}

TEST_CASE("control characters in arguments and file names are escaped") {
  const auto unknown = run_program({"info", "a\x1b[31m\nerror: forged\xff"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "\"a\\u001b[31m\n  error: forged\\xff\""));
  const TempDir dir;
  const std::string name = (dir / "lex\x1b]0;title\x07").string();
  write_file(name, std::string("word\n"));
  const auto verified = run_program({"data", "verify", name, "--layout", "lexicon"});
  CHECK(verified.code == 3);
  for (const std::string* text : {&verified.out, &verified.err}) {
    CHECK(contains(*text, "lex\\u001b]0;title\\u0007"));
    CHECK(!contains(*text, "\x1b"));
  }
}

TEST_CASE("JSON is valid and printable for names that are not UTF-8") {
  const TempDir dir;
  const std::string name = (dir / "lex\xff\xc2\x9b\x7f").string();
  write_file(name, std::string("word A\n"));
  const auto result = run_program({"data", "verify", name, "--layout", "lexicon", "--json"});
  CHECK(result.code == 0);
  CHECK(contains(result.out, "lex\xef\xbf\xbd\\u009b\\u007f"));
  CHECK(parse_json_output(result)["files"][0]["set"].get<std::string>().ends_with(
      "lex\xef\xbf\xbd\xc2\x9b\x7f"));
}

TEST_CASE("errors of the file system are reported as sentences") {
  const TempDir dir;
  write_file(dir / "file", std::string("x"));
  write_file(dir / "tiny.toml", std::string("[data]\ndataset = \"copy\"\n[model]\ntype = \"sequence\"\n"
                                            "layers = 1\nheads = 1\n[train]\nsteps = 1\n"));
  const std::string config = (dir / "tiny.toml").string(), below = (dir / "file" / "run").string(),
                    long_name = (dir / std::string(300, 'r')).string();
  const auto expect = [](const std::vector<std::string>& words, int code, const std::string& reason) {
    const auto result = run_program(words);
    CAPTURE(words.back());
    CAPTURE(result.err);
    CHECK(result.code == code);
    CHECK(contains(result.err, reason));
    CHECK(!contains(result.err, "filesystem error"));
  };
  expect({"train", config, "--run-dir", below}, 1, "Not a directory");
  expect({"train", config, "--run-dir", long_name}, 1, "File name too long");
  expect({"train", config, "--run-dir", "/proc/run"}, 1, "No such file or directory");
  expect({"train", long_name}, 2, "File name too long");
  expect({"eval", below}, 3, "no such run directory");
  expect({"eval", long_name}, 3, "no such run directory");
  expect({"data", "verify", long_name}, 3, "no such folder");
  std::filesystem::create_symlink("circle", dir / "circle");
  expect({"data", "verify", (dir / "circle").string()}, 3, "no such folder");
  expect({"data", "verify", (dir / "circle").string(), "--layout", "lexicon"}, 3, "circle: ");
}

TEST_CASE("train --help KEY prints the matching keys") {
  const auto lr = run_program({"train", "--help", "lr"});
  CHECK(lr.code == 0);
  CHECK(lr.out.starts_with("[optimizer]\n  lr = "));
  CHECK(contains(lr.out, "final_lr_ratio"));
  CHECK(!contains(lr.out, "--device"));
  CHECK(!contains(run_program({"help", "train", "optimizer.lr"}).out, "[schedule]"));
  CHECK(
      contains(run_program({"train", "--help", "attention"}).out, "\n[attention]  # where model.attention"));
  const auto wrong = run_program({"train", "--help", "optimizer.lrr"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "did you mean \"optimizer.lr\"?"));
}

TEST_CASE("invalid values cause exit status 2 and name the option") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"info", "--threads", "two"}, "--threads: expected an integer"},
      {{"info", "--threads", "-1"}, "--threads: expected an integer from 0 to 4096, got \"-1\""},
      {{"info", "--threads", "2.5"}, "--threads"},
      {{"info", "--seed", "-1"}, "--seed: expected an integer of at least 0, got \"-1\""},
      {{"info", "--seed", "9223372036854775808"},
       "--seed: expected an integer from 0 to 9223372036854775807, got \"9223372036854775808\""},
      {{"eval", "run", "--limit", "99999999999999999999"},
       "--limit: expected an integer from 0 to 9223372036854775807"},
      {{"generate", "run", "--length", "0"}, "--length: expected an integer from 1 to 1000000000000"},
      {{"generate", "run", "--temperature", "1e400"}, "--temperature: expected a number from 0 to 1000"},
      {{"complete", "run", "--index", "99999999999999999999"},
       "--index: expected numbers from 0 to 9223372036854775807"},
      {{"info", "--threads"}, "threads"},
      {{"info", "surplus"}, "surplus"},
      {{"info", "--set", "run.seed=1"}, "--set"},
      {{"info", "--device", "gpu"}, "gpu"},
      {{"data"}, "ACTION"},
      {{"bench", "small-op", "--ops", "0"}, "at least 1"},
  };
  for (const auto& [words, expected] : cases) {
    const auto result = run_program(words);
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(contains(result.err, expected));
  }
}

TEST_CASE("the help states the device and the seed that a command uses without options") {
  const auto check = [](const Words& words, const std::string& device, const std::string& seed) {
    std::string help = run_program(words).out;
    std::string text;  // the help in one line
    std::unique_copy(help.begin(), help.end(), std::back_inserter(text), [](char a, char b) {
      return std::isspace(static_cast<unsigned char>(a)) && std::isspace(static_cast<unsigned char>(b));
    });
    std::replace(text.begin(), text.end(), '\n', ' ');
    CAPTURE(text);
    CHECK(contains(text, "cuda or cuda:N (default: " + device + ")"));
    CHECK(contains(text, "seed of all random numbers (default: " + seed + ")"));
  };
  check({"train", "--help"}, "run.device", "run.seed");
  for (const char* command : {"eval", "generate", "complete", "data", "info"})
    check({command, "--help"}, "auto", "0");
  check({"reproduce", "--help"}, "auto", "1");
  check({"bench", "train-step", "--help"}, "auto", "1");
  check({"bench", "speech-step", "--help"}, "auto", "run.seed");
}

TEST_CASE("train uses run.seed and run.device without --seed and --device, and the options override them") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.run.seed = 7;
  config.run.device = "cpu";
  write_file(dir / "config.toml", to_toml(config));
  const auto resolved = [&](const std::string& name, Words options) {
    const std::string run = (dir / name).string();
    options.insert(options.begin(), {"train", (dir / "config.toml").string(), "--run-dir", run});
    CHECK(run_program(options).code == 0);
    return read_file(dir / name / "config.toml");
  };
  const std::string kept = resolved("kept", {});
  CHECK(contains(kept, "seed = 7\n"));
  CHECK(contains(kept, "device = \"cpu\"\n"));
  const std::string overridden = resolved("overridden", {"--seed", "0", "--device", "auto"});
  CHECK(contains(overridden, "seed = 0\n"));
  CHECK(contains(overridden, "device = \"auto\"\n"));
}

TEST_CASE("--device cuda never falls back to another device") {
  for (const std::string device : {"cuda", "cuda:0", "cuda:3"}) {
    const auto result = run_program({"bench", "small-op", "--device", device});
    CHECK(result.code == 4);
    CHECK(result.out == "");
    CHECK(contains(result.err, device));
  }
}

TEST_CASE("--device auto logs the chosen device, except with --quiet") {
  const std::vector<std::string> words = {"bench", "small-op", "--ops", "10", "--repeats", "1"};
  auto with = [&](const std::string& word) {
    auto all = words;
    all.push_back(word);
    return run_program(all);
  };
  CHECK(contains(run_program(words).err, "device cpu"));
  CHECK(with("--quiet").err == "");
  CHECK(with("--device=cpu").err == "");
}

TEST_CASE("a full disk for standard output is an error") {
  const auto result = run_program({"info"}, "/dev/full");
  CHECK(result.code == 1);
  CHECK(contains(result.err, "standard output"));
}

TEST_CASE("an interrupted command exits with 130") {
  const TempDir dir;
  const pid_t child = start_program({"bench", "small-op", "--repeats", "1000000"}, (dir / "out").string(),
                                    (dir / "err").string());
  siginfo_t ended{};
  // Waits for the first message. The program installs its signal handler before it prints this message.
  while (read_file(dir / "err").empty() && ended.si_pid == 0) {
    usleep(1000);
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  kill(child, SIGINT);
  CHECK(wait_for_exit_code(child) == 130);
}

TEST_CASE("info prints versions and devices") {
  const auto info = parse_json_output(run_program({"info", "--json", "--threads", "1"}));
  CHECK(info["version"].is_string());
  CHECK((contains(info["compiler"], "g++") || contains(info["compiler"], "clang")));
  CHECK(contains(info["blas"], "OpenBLAS"));
  CHECK(info["cpu_products"] == tapeformer::get_cpu_gemm_library_name());
  CHECK(info["cpu_bfloat16_products"] == tapeformer::uses_bfloat16_instructions(tapeformer::kCpu));
  CHECK(info["threads"] == 1);
  CHECK(info["devices"][0] == "cpu");
  CHECK(info["vector_bytes"].get<int>() >= 32);
  for (const std::string extension : {"avx2", "avx512f", "avx512_bf16"})
    if (contains(info["compiled_for"], extension)) CHECK(contains(info["processor_has"], extension));
  CHECK(info["memory_bytes"].get<double>() >= info["available_memory_bytes"].get<double>());
}

TEST_CASE("info gives advice on OPENBLAS_CORETYPE only if OpenBLAS does not use AVX-512") {
  const char* const before = std::getenv("OPENBLAS_CORETYPE");
  const std::string saved = before ? before : "";
  const auto info_with = [](const char* kernels) {
    setenv("OPENBLAS_CORETYPE", kernels, 1);
    return run_program({"info", "--json"});
  };
  const ProgramResult narrow = info_with("Haswell"), wide = info_with("SkylakeX");
  before ? setenv("OPENBLAS_CORETYPE", saved.c_str(), 1) : unsetenv("OPENBLAS_CORETYPE");
  const bool has_avx512 = contains(parse_json_output(narrow)["processor_has"], "avx512vl");
  const bool obeys = parse_json_output(narrow)["blas_kernels"] == "Haswell";
  CHECK(contains(narrow.err, "unset the environment variable OPENBLAS_CORETYPE") == (has_avx512 && obeys));
  if (parse_json_output(wide)["blas_kernels"] == "SkylakeX")
    CHECK_FALSE(contains(wide.err, "OPENBLAS_CORETYPE"));
}

TEST_CASE("a processor without the needed instructions ends the program with a message") {
  const std::string emulator = "qemu-x86_64";
  if (std::system((emulator + " --version > /dev/null 2>&1").c_str()) != 0) {
    MESSAGE("skipped: the program " << emulator << " is not installed");
    return;
  }
  if (!contains(parse_json_output(run_program({"info", "--json"}))["compiled_for"], "sse4.2")) {
    MESSAGE("skipped: this build runs on every processor");
    return;
  }
  const TempDir folder;
  const std::string err = (folder / "err").string();
  const int status =
      std::system((emulator + " -cpu Conroe '" PROGRAM "' info > /dev/null 2> '" + err + "'").c_str());
  CHECK(WEXITSTATUS(status) == 4);
  CHECK(contains(read_file(err), "and this processor lacks sse4.1 sse4.2 popcnt"));
}
