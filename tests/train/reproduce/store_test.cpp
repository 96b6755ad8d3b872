#include "train/reproduce/store.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"
#include "train/reproduce/table_json.h"

using namespace tapeformer;

TEST_CASE("ResultStore throws DataError with the name of the file if a result file is damaged") {
  const test::TempDir dir;
  const Row row{.name = "linear"};
  const Table table{.name = "a-table"};
  const ReproductionOptions options{.config_folder = dir.path(), .output_folder = dir / "out"};
  const auto open = [&] { return ResultStore(table, options, ProcessGroup()); };
  open().put(row, 1, "test", {{"values", {{"accuracy", 0.5}, {"loss", NAN}}}, {"curves", Json::array()}});
  CHECK(open().get(row, 1)["test"]["values"]["accuracy"] == 0.5);
  const std::string path = dir / "out/cells/linear-seed-7.json";
  const std::string curve = R"({"loss": {"curves": [{"figure": "loss", "name": "linear")";
  for (const std::string& text :
       {std::string("{"), std::string(), std::string("[]"), std::string(R"({"training": 5})"),
        std::string(R"({"test": 5})"), std::string(R"({"training": {"output": {"run_dir": 5}}})"),
        std::string(R"({"test": {"error": 5}})"), std::string(R"({"test": {"values": "x"}})"),
        std::string(R"({"test": {"values": {"accuracy": "x"}}})"), std::string(R"({"test": {"texts": 5}})"),
        std::string(R"({"test": {"texts": {"accuracy": 5}}})"), std::string(R"({"test": {"pictures": 5}})"),
        std::string(R"({"test": {"date": 5}})"), std::string(R"({"loss": {"curves": [5]}})"), curve + "}]}}",
        curve + R"(, "points": [[1]]}]}})", curve + R"(, "points": [["1", 2]]}]}})"}) {
    CAPTURE(text);
    test::write_file(path, text);
    CHECK_THROWS_WITH_AS(open(), doctest::Contains(path.c_str()), DataError);
  }
  test::write_file(path, curve + R"(, "points": [[1, null]]}]}})");
  CHECK(open().list_seeds(row) == std::vector<int64_t>{1, 7});
}

TEST_CASE("a result without values leaves its cell empty") {
  const test::TempDir dir;
  const Row row{.name = "linear"};
  const Table table{.name = "a-table",
                    .rows = {row},
                    .measurements = {{.name = "test", .columns = {{"accuracy"}}, .row_names = {"linear"}}}};
  const ReproductionOptions options{.config_folder = dir.path(), .output_folder = dir / "out"};
  ResultStore store(table, options, ProcessGroup());
  store.put(row, 1, "test", Json::object());
  const Json table_json = make_table_json(table, options, store);
  CHECK(table_json["rows"][0]["cells"]["accuracy"]["status"] == "not run");
}
