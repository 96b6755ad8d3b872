// Functions that run the program in a separate process.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace tapeformer::test {

struct ProgramResult {
  int code = -1;  // exit status, or 128 + the number of the signal that ended the process
  std::string out, err;
};

// Starts a command with its standard streams connected to files. If the first of `words` is a name without a
// path, searches for the program in $PATH.
inline pid_t start_command(std::vector<std::string> words, const std::string& out, const std::string& err,
                           const std::string& in = "/dev/null") {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), kFlags, 0600);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + words.front());
  return child;
}

inline pid_t start_program(std::vector<std::string> words, const std::string& out, const std::string& err,
                           const std::string& in = "/dev/null") {
  words.insert(words.begin(), PROGRAM);
  return start_command(std::move(words), out, err, in);
}

inline int wait_for_exit_code(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs a command; see start_command(). Standard input is read from `in_path`. If `out_path` is not empty,
// standard output is written to this file, and not to the result.
inline ProgramResult run_words(const std::vector<std::string>& words, const std::string& out_path = "",
                               const std::string& in_path = "/dev/null") {
  const TempDir dir;
  const std::string out = out_path.empty() ? (dir / "out").string() : out_path, err = (dir / "err").string();
  ProgramResult result;
  result.code = wait_for_exit_code(start_command(words, out, err, in_path));
  if (out_path.empty()) result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

// Runs tapeformer with the arguments `words`; see run_words().
inline ProgramResult run_program(std::vector<std::string> words, const std::string& out_path = "",
                                 const std::string& in_path = "/dev/null") {
  words.insert(words.begin(), PROGRAM);
  return run_words(words, out_path, in_path);
}

// Returns the JSON object that a command with --json printed. Throws if standard output is not one object on
// one line.
inline nlohmann::json parse_json_output(const ProgramResult& result) {
  if (result.out.find('\n') != result.out.size() - 1)
    throw std::runtime_error("not one line on standard output: " + result.out + "\n" + result.err);
  const auto object = nlohmann::json::parse(result.out);
  if (!object.is_object()) throw std::runtime_error("not an object: " + result.out);
  return object;
}

}  // namespace tapeformer::test
