#include "train/reproduce/table_json.h"

#include <doctest/doctest.h>

#include "tests/support/temp_dir.h"
#include "train/reproduce/render.h"

using namespace tapeformer;

TEST_CASE("points of a curve over time are means over the seeds, although the times differ") {
  const test::TempDir dir;
  const Row row{.name = "linear", .line = "linear"};
  const Table table{.name = "a-table",
                    .rows = {row},
                    .measurements = {{.name = "loss"}},
                    .figures = {{"loss", "Loss", {"seconds"}, {"nats"}}}};
  const ReproductionOptions options{.config_folder = dir.path(), .output_folder = dir / "out"};
  ResultStore store(table, options, ProcessGroup());
  const auto put = [&](int64_t seed, const Json& points) {
    store.put(row, seed, "loss",
              {{"curves", {{{"figure", "loss"}, {"name", "linear"}, {"points", points}}}}});
  };
  put(1, Json::parse("[[10, 4], [20, 2], [30, 1]]"));
  put(2, Json::parse("[[12, 6], [26, 3]]"));
  const Json series = make_table_json(table, options, store)["figures"][0]["series"];
  REQUIRE(series.size() == 1);
  CHECK(series[0]["points"] == Json::parse("[[11.0, 5.0], [23.0, 2.5], [30.0, 1.0]]"));
}

TEST_CASE("the command of a table is quoted for the shell and for Markdown, and large values are short") {
  const test::TempDir dir;
  const Row row{.name = "linear", .line = "linear"};
  const Table table{
      .name = "a-table",
      .rows = {row},
      .measurements = {{.name = "test", .columns = {{"loss", "loss"}}, .row_names = {"linear"}}}};
  const ReproductionOptions options{.config_folder = dir.path(),
                                    .output_folder = dir / "out",
                                    .all_config_settings = {"run.name=\"a `b`\"", "train.steps=3"}};
  ResultStore store(table, options, ProcessGroup());
  store.put(row, 1, "test", {{"values", {{"loss", 1e300}}}});
  const Json json = make_table_json(table, options, store);
  const std::string command = json["command"];
  CHECK(command.find("--set 'run.name=\"a `b`\"' --set train.steps=3 --seeds 1") != std::string::npos);
  const std::string markdown = to_markdown(json);
  CHECK(markdown.find("`` " + command + " ``") != std::string::npos);
  CHECK(markdown.find("| 1e+300 |") != std::string::npos);
}
