// Tests of output to terminals. A launcher such as mpirun gives a process a pseudo-terminal that is not its
// controlling terminal.
#include <doctest/doctest.h>
#include <pty.h>
#include <termios.h>
#include <utmp.h>

#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Words = std::vector<std::string>;

// Runs the program with standard output and standard error connected to a pseudo-terminal that does not
// change the bytes. Returns the bytes.
std::string run_on_terminal(Words words, bool is_controlling) {
  termios raw{};
  cfmakeraw(&raw);
  int terminal = -1, program_side = -1;
  REQUIRE(openpty(&terminal, &program_side, nullptr, &raw, nullptr) == 0);
  words.insert(words.begin(), PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (is_controlling)
      login_tty(program_side);
    else
      for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) dup2(program_side, descriptor);
    execv(argv.front(), argv.data());
    _exit(127);
  }
  close(program_side);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  close(terminal);
  CHECK(wait_for_exit_code(child) == 0);
  return text;
}

}  // namespace

TEST_CASE("generate escapes control characters on its controlling terminal only") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat.\n";
  write_file(dir / "text.txt", text);
  Config config = make_tiny_sequence_config();
  config.data = {.dataset = "text", .batch_size = 4};
  config.data.options.set("path", (dir / "text.txt").string());
  config.data.options.set("tokenizer", "bytes");
  config.data.options.set("sequence_length", 20);
  train(config, dir / "run");
  const Words words = {"generate", (dir / "run").string(), "--prompt", "a\r\n\tb\x1b[1m", "--length", "1",
                       "--quiet"};
  CHECK(run_on_terminal(words, true).starts_with("a\\u000d\n\tb\\u001b[1m"));
  CHECK(run_on_terminal(words, false) == run_program(words).out);
}

TEST_CASE("messages have colors, and progress is rewritten in place, on the controlling terminal only") {
  const TempDir dir;
  write_file(dir / "config.toml", to_toml(make_tiny_sequence_config()));
  setenv("TERM", "xterm-color", 1);
  const auto output = [&](const std::string& name, bool is_controlling) {
    return run_on_terminal(
        {"train", (dir / "config.toml").string(), "--run-dir", (dir / name).string(), "--device", "auto"},
        is_controlling);
  };
  const std::string own = output("own", true), other = output("other", false);
  CHECK(contains(own, "\x1b[32minfo"));
  CHECK(contains(own, "\rstep 1"));
  CHECK(contains(other, "info: "));
  CHECK(contains(other, "\nstep "));
  for (const char* code : {"\x1b", "\r"}) CHECK(!contains(other, code));
}
