// Commands of `tapeformer reproduce` for tests, and values in their tables.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/cli/program.h"

namespace tapeformer::test {

using Words = std::vector<std::string>;
using Json = nlohmann::json;

inline const std::string kConfigs = std::string(SOURCE_DIR) + "/configs";

inline Words reproduce_command(const std::string& name, const std::filesystem::path& out, const Words& sets,
                               const Words& extra_words = {}) {
  Words words = {"reproduce", name, "--configs", kConfigs, "--out", out.string(), "--threads", "1", "--json"};
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), extra_words.begin(), extra_words.end());
  return words;
}

inline const Words kTinyDuplication = {"train.steps=2",    "data.batch_size=2",     "data.eval_limit=3",
                                       "model.head_dim=4", "model.axial_dims=[16]", "model.feedforward=8"};
inline const Words kTinyCopy = {"train.steps=4",      "train.log_every=2", "data.batch_size=2",
                                "data.eval_limit=3",  "model.layers=1",    "model.head_dim=2",
                                "model.feedforward=8"};

inline const Json& row_of(const Json& table, const std::string& name) {
  for (const Json& row : table["rows"])
    if (row["name"] == name) return row;
  throw std::runtime_error("no row " + name);
}

inline double mean(const Json& table, const std::string& row, const std::string& column) {
  return row_of(table, row)["cells"][column]["mean"].get<double>();
}

inline Words verify_command(const std::string& name, const std::filesystem::path& file,
                            const std::filesystem::path& out, const Words& extra_words = {}) {
  return reproduce_command(name, out, {}, [&] {
    Words words = {"--verify", file.string()};
    words.insert(words.end(), extra_words.begin(), extra_words.end());
    return words;
  }());
}

// Repeats the rows of the table in the folder `out`, and checks that all values are the same.
inline Json check_verification(const std::string& name, const std::filesystem::path& out,
                               const Words& extra_words = {}) {
  const auto ran = run_program(verify_command(name, out / "table.json", out / "verification", extra_words));
  CAPTURE(ran.err);
  CHECK(ran.code == 0);
  auto report = parse_json_output(ran);
  CHECK(report["differ"] == 0);
  for (const Json& cell : report["cells"])
    if (cell["result"] == "agrees") CHECK(cell["stated"] == cell["repeated"]);
  return report;
}

}  // namespace tapeformer::test
