// Tests of `translate` and `score` with lines that arrive one after another on standard input.
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/support/encoded.h"
#include "tests/train/cli/text_run.h"
#include "tests/train/cli/translation_run.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct TinyTranslator : TranslationFiles {
  TinyTranslator() { train(config, dir / "run"); }
  std::string path() const { return (dir / "run").string(); }
};

enum class StreamKind { pipe, non_blocking_pipe, socket, terminal };

// A running command. The test writes to its standard input, and standard output is a file.
class Dialogue {
 public:
  Dialogue(Words words, StreamKind kind = StreamKind::pipe) {
    int ends[2];  // of the program and of the test
    if (kind == StreamKind::terminal) {
      REQUIRE(openpty(&ends[1], &ends[0], nullptr, nullptr, nullptr) == 0);
    } else if (kind == StreamKind::socket) {
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else {
      REQUIRE(pipe(ends) == 0);
      if (kind == StreamKind::non_blocking_pipe) fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    input_ = ends[1];
    words.insert(words.begin(), PROGRAM);
    const std::string out = (dir_ / "out").string(), err = (dir_ / "err").string();
    child_ = fork();
    if (child_ == 0) {
      signal(SIGHUP, SIG_DFL);  // nohup ignores it for the tests
      dup2(ends[0], STDIN_FILENO);
      close(ends[0]);
      close(ends[1]);
      dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv.front(), argv.data());
      _exit(127);
    }
    close(ends[0]);
  }
  ~Dialogue() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      finish();
    }
  }

  void write(const std::string& bytes) const {
    REQUIRE(::write(input_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  // Writes a line to a pipe, and waits until the program has read it, which is after its earlier answers.
  void write_and_wait(const std::string& line) const {
    write(line);
    for (int waiting = 1, i = 0; waiting > 0 && i < 3000; ++i) {
      REQUIRE(ioctl(input_, FIONREAD, &waiting) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Waits until `count` lines were printed, or half a minute. Returns whether they were.
  bool hear(int64_t count) const {
    for (int i = 0; i < 600; ++i) {
      const std::string text = out();
      if (std::count(text.begin(), text.end(), '\n') >= count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  // Sends the signal, unless it is 0, and closes standard input unless there is a signal. Returns the exit
  // code.
  int finish(int signal = 0) {
    if (signal != 0) kill(child_, signal);
    if (signal == 0) close(input_);
    const int code = wait_for_exit_code(std::exchange(child_, 0));
    if (signal != 0) close(input_);
    return code;
  }
  std::string out() const { return std::filesystem::exists(dir_ / "out") ? read_file(dir_ / "out") : ""; }
  std::string err() const { return read_file(dir_ / "err"); }

 private:
  TempDir dir_;
  pid_t child_ = 0;
  int input_ = -1;
};

}  // namespace

TEST_CASE("translate answers each line of a pipe, a socket and a terminal before the next line is written") {
  const TinyTranslator run;
  write_file(run.dir / "lines", std::string("abc\n\ndef\n"));
  const std::string expected = run_program({"translate", run.path(), (run.dir / "lines").string()}).out;
  for (const StreamKind kind :
       {StreamKind::pipe, StreamKind::non_blocking_pipe, StreamKind::socket, StreamKind::terminal}) {
    CAPTURE(static_cast<int>(kind));
    Dialogue talk({"translate", run.path(), "-"}, kind);
    talk.write("abc\n");
    CHECK(talk.hear(1));
    talk.write("\nde");
    CHECK(talk.hear(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK_FALSE(talk.out().size() > expected.substr(0, expected.find('\n') + 2).size());
    talk.write(kind == StreamKind::terminal ? "f\n" : "f");  // a last line without an end
    if (kind == StreamKind::terminal) CHECK(talk.hear(3));
    CHECK(talk.finish(kind == StreamKind::terminal ? SIGHUP : 0) == (kind == StreamKind::terminal ? 130 : 0));
    CHECK(talk.out() == expected);
  }
}

TEST_CASE("lines that have arrived together are translated together, in blocks") {
  const TinyTranslator run;
  std::string lines;
  for (int i = 0; i < 2500; ++i) lines += std::string(1, static_cast<char>('a' + i % 6)) + "\n";
  write_file(run.dir / "lines", lines);
  const std::string path = (run.dir / "lines").string();
  const ProgramResult file = run_program({"translate", run.path(), path, "--greedy", "--max-length", "3"});
  CHECK(std::count(file.out.begin(), file.out.end(), '\n') == 2500);
  for (const std::string& command : {std::string(" - <\"$1\""), std::string(" <(cat \"$1\")")}) {
    const std::string words = PROGRAM " translate \"$0\" --greedy --max-length 3" + command;
    CHECK(run_words({"bash", "-c", words, run.path(), path}).out == file.out);
  }
}

TEST_CASE("score answers each line of a pipe, for texts and for translations") {
  const TextRun text;
  Dialogue lines({"score", text.path(), "-"});
  lines.write("so\n");
  CHECK(lines.hear(1));
  lines.write("\xEF\xBB\xBF");  // a byte order mark is a character after the start
  CHECK(lines.finish() == 3);
  CHECK(contains(lines.err(), "standard input:2, byte 1: the character"));

  const TinyTranslator run;
  write_file(run.dir / "targets", std::string("CBA\nF\n"));
  write_file(run.dir / "sources", std::string("abc\nf\n"));
  const std::string sources = (run.dir / "sources").string(), targets = (run.dir / "targets").string();
  const std::string expected = run_program({"score", run.path(), sources, targets}).out;
  {
    Dialogue pairs({"score", run.path(), "-", targets});
    pairs.write("abc\n");
    CHECK(pairs.hear(1));
    pairs.write("f\n");
    CHECK(pairs.hear(2));
    CHECK(pairs.finish() == 0);
    CHECK(pairs.out() == expected);
  }
  for (const auto& [given, message] :
       {std::pair{"abc\n", "targets: the file has 2 lines, but standard input has 1"},
        {"abc\nf\na\n", "targets: the file has 2 lines, but standard input has more"}}) {
    Dialogue pairs({"score", run.path(), "-", targets});
    pairs.write(given);
    CHECK(pairs.finish() == 3);
    CHECK_MESSAGE(contains(pairs.err(), message), pairs.err());
  }
  Dialogue late({"score", run.path(), "-", targets});
  late.write("abc\n");
  CHECK(late.hear(1));
  late.write("\xCE\xA9\n");
  CHECK(late.finish() == 3);
  CHECK_MESSAGE(contains(late.err(), "standard input:2, byte 1: the character"), late.err());
}

TEST_CASE("a signal keeps the answers, which --json prints before the command ends") {
  const TinyTranslator run;
  const TextRun text;
  write_file(run.dir / "targets", std::string("CBA\nF\nA\n"));
  const std::string targets = (run.dir / "targets").string();
  for (const int signal : {SIGINT, SIGTERM}) {
    Dialogue talk({"translate", run.path(), "-"});
    talk.write("abc\nf\n");
    CHECK(talk.hear(2));
    CHECK(talk.finish(signal) == 130);
    CHECK(contains(talk.err(), std::string("error: interrupted by SIG") + sigabbrev_np(signal)));
    for (const Words& words :
         {Words{"translate", run.path(), "-", "--json"}, Words{"score", run.path(), "-", targets, "--json"},
          Words{"score", text.path(), "-", "--json"}}) {
      CAPTURE(words.front());
      Dialogue json(words);
      for (int i = 0; i < 3; ++i) json.write_and_wait(words[1] == text.path() ? "so\n" : "abc\n");
      CHECK(json.finish(signal) == 130);
      CHECK(contains(json.err(), std::string("error: interrupted by SIG") + sigabbrev_np(signal)));
      CHECK(parse_json_output({0, json.out(), json.err()})["lines"] >= 2);
    }
  }
}

TEST_CASE("--json prints the lines that were answered before an error") {
  const TinyTranslator run;
  const TextRun text;
  write_file(run.dir / "targets", std::string("CBA\nF\nA\n"));
  const std::string targets = (run.dir / "targets").string();
  for (const Words& words :
       {Words{"translate", run.path(), "-", "--json"}, Words{"score", run.path(), "-", targets, "--json"},
        Words{"score", text.path(), "-", "--json"}}) {
    CAPTURE(words.front());
    const std::string line = words[1] == text.path() ? "so\n" : "abc\n";
    Dialogue talk(words);
    talk.write_and_wait(line);
    talk.write("\xFF\n");
    CHECK(talk.finish() == 3);
    CHECK(contains(talk.err(), "standard input:2"));
    CHECK(parse_json_output({0, talk.out(), ""})["lines"] == 1);
    Dialogue none(words);
    none.write("\xFF\n");
    CHECK(none.finish() == 3);
    CHECK(none.out().empty());
  }
}

TEST_CASE("the lines before a line that is not UTF-8 are answered, and a line without an end stays bounded") {
  const TinyTranslator run;
  Dialogue talk({"translate", run.path(), "-"});
  talk.write("abc\nf\n\xFF\nabc\n");
  CHECK(talk.finish() == 3);
  CHECK(contains(talk.err(), "standard input:3: is not UTF-8: byte 1"));
  const std::string out = talk.out();
  CHECK(std::count(out.begin(), out.end(), '\n') == 2);
  write_file(run.dir / "long", "a\n" + std::string((1 << 20) + 1, 'a'));
  const ProgramResult refused = run_program({"translate", run.path(), "-", "--greedy", "--max-length", "3"},
                                            "", (run.dir / "long").string());
  CHECK(refused.code == 3);
  CHECK_MESSAGE(contains(refused.err, "standard input:2: the line has more than 1048576 bytes"), refused.err);
  CHECK(std::count(refused.out.begin(), refused.out.end(), '\n') == 1);
}

TEST_CASE("texts in UTF-16 and UTF-32 are refused on standard input as in files") {
  const TinyTranslator run;
  const TextRun characters, bytes("linear", "bytes");
  const std::u16string text = u"a cat\nso it was\n";
  const std::string path = (run.dir / "wide").string(), targets = (run.dir / "targets").string();
  write_file(targets, std::string("A\nB\n"));
  for (const bool big_endian : {false, true})
    for (const bool is_utf16 : {true, false}) {
      const std::string name = is_utf16 ? "UTF-16" : "UTF-32";
      CAPTURE(name);
      write_file(path, is_utf16 ? encoded(text, big_endian)
                                : encoded(std::u32string(text.begin(), text.end()), big_endian));
      for (const std::string& file : {std::string("-"), path})
        for (const Words& words :
             {Words{"translate", run.path(), file}, Words{"score", run.path(), file, targets},
              Words{"score", characters.path(), file}}) {
          CAPTURE(words.front());
          const ProgramResult refused = run_program(words, "", path);
          CHECK(refused.code == 3);
          CHECK(refused.out.empty());
          CHECK_MESSAGE(contains(refused.err, ": is " + name + ", expected UTF-8; convert it with iconv -f " +
                                                  name + " -t UTF-8\n"),
                        refused.err);
        }
      const ProgramResult file = run_program({"score", bytes.path(), path}),
                          stream = run_program({"score", bytes.path(), "-"}, "", path);
      CHECK(stream.code == 0);
      CHECK(stream.out == file.out);
      CHECK(contains(stream.err, "warning: standard input: is " + name));
    }
}
