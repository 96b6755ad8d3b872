#include "train/reproduce/measurement_kind.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/temp_dir.h"

using namespace tapeformer;

namespace {

// Returns the result of a measurement of the kind "metrics" with these lines of metrics.jsonl.
Json measure_metrics(const std::string& lines, std::vector<Column> columns, std::vector<CurveSource> curves) {
  const test::TempDir dir;
  test::write_file(dir / "metrics.jsonl", lines);
  const Row row{.name = "linear", .line = "linear", .published = {{"seconds", 6}}};
  const ReproductionOptions options;
  const StopSignalScope signals;
  const CommandContext context{.options = options, .signals = signals};
  const Measurement measurement{.name = "curve",
                                .kind = &find_measurement_kind("metrics"),
                                .options = Json::object(),
                                .columns = std::move(columns),
                                .curves = std::move(curves)};
  return run_measurement(measurement, Trial{.row = row, .run_dir = dir.path().string()}, context);
}

}  // namespace

TEST_CASE("fitted exponents are the powers of the longer half of the points") {
  CHECK(fit_power_law_exponent({{1, 3}, {2, 12}, {4, 48}}) == doctest::Approx(2));
  // The fit uses only the second half of the points. The constant values in the first half have no effect.
  CHECK(fit_power_law_exponent({{1, 9}, {2, 9}, {4, 9}, {8, 16}, {16, 32}, {32, 64}}) == doctest::Approx(1));
  CHECK(fit_power_law_exponent({{512, 5}, {1024, 5}}) == doctest::Approx(0));
  CHECK(std::isnan(fit_power_law_exponent({{512, 5}})));
}

TEST_CASE("columns and curves read the records of a measurement") {
  const std::string lines =
      "{\"step\":1,\"split\":\"train\",\"loss\":4,\"bytes\":1048576}\n"
      "{\"step\":2,\"split\":\"train\",\"loss\":3,\"bytes\":2097152}\n"
      "{\"step\":2,\"split\":\"epoch\",\"epoch\":1,\"cpu\":10}\n"
      "{\"step\":2,\"split\":\"valid\",\"per\":30}\n"
      "{\"step\":4,\"split\":\"train\",\"loss\":2,\"bytes\":4194304}\n"
      "{\"step\":4,\"split\":\"epoch\",\"epoch\":2,\"cpu\":20}\n"
      "{\"step\":4,\"split\":\"valid\",\"per\":25}\n"
      "{\"step\":4,\"split\":\"test\",\"per\":27,\"seconds\":3,\"loss\":null}\n";
  const Json result =
      measure_metrics(lines,
                      {{.name = "last", .key = "loss", .split = "train"},
                       {.name = "lowest", .key = "per", .reduce = "lowest"},
                       {.name = "cpu", .key = "cpu", .reduce = "median"},
                       {.name = "mebibytes", .key = "bytes", .before = "valid", .factor = 1.0 / (1 << 20)},
                       {.name = "none", .key = "nothing"},
                       {.name = "seconds", .key = "seconds"},
                       {.name = "ratio", .published_ratio = "seconds"},
                       {.name = "unpublished", .published_ratio = "last"},
                       {.name = "split", .key = "split"}},
                      {{.figure = "loss", .x = "step", .y = "loss", .split = "train"},
                       {.figure = "epochs", .x = "epoch", .y = "per"},
                       {.figure = "time", .x = "cpu", .y = "per", .sum_x = true}});
  CHECK(result["values"] ==
        Json({{"last", 2}, {"lowest", 25}, {"cpu", 15}, {"mebibytes", 2}, {"seconds", 3}, {"ratio", 2}}));
  CHECK(result["texts"] == Json({{"unpublished", "–"}, {"split", "test"}}));
  CHECK(result["curves"][0]["points"] == Json::parse("[[1, 4], [2, 3], [4, 2]]"));
  CHECK(result["curves"][1]["points"] == Json::parse("[[1, 30], [2, 25], [2, 27]]"));
  CHECK(result["curves"][2]["points"] == Json::parse("[[10, 30], [30, 25], [30, 27]]"));
  CHECK(result.contains("commit"));
}
