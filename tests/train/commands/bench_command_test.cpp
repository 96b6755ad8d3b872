// tapeformer bench: every benchmark runs at a small size and reports figures that can be right.
#include <doctest/doctest.h>

#include "tests/train/commands/program.h"

using namespace tapeformer::test;

TEST_CASE("bench list names what bench runs") {
  const auto list = json_of(run_program({"bench", "list", "--json"}))["benchmarks"];
  CHECK(!list.empty());
  for (const auto& entry : list) {
    const auto help = run_program({"bench", entry["name"], "--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, "tapeformer bench " + entry["name"].get<std::string>()));
  }
}

TEST_CASE("bench small-op") {
  const auto figures =
      json_of(run_program({"bench", "small-op", "--ops", "100", "--repeats", "3", "--json"}));
  CHECK(figures["benchmark"] == "small-op");
  CHECK(figures["elements"] == 16);
  // A recorded op cannot cost less than the same op unrecorded.
  CHECK(figures["microseconds_unrecorded"] > 0);
  CHECK(figures["microseconds_per_op"] > figures["microseconds_unrecorded"]);
}
