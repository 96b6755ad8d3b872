#include "train/reproduce/table_file.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"
#include "train/reproduce/table_settings.h"

using namespace tapeformer;

namespace {

constexpr char kTasks[] = R"(
title = "A sweep of {kind}"
config = "copy.toml"
fixed = ["model.attention={kind}"]
settings = ["train.steps=2", {paper = "train.steps=9"}]
notes = ["Sequences have {data.max_length} symbols."]
seeds = [3, 4]
[variables]
kind = "linear"
deep = ["model.layers=3", "model.norm=pre"]
[measure]
longest = {help = "largest length", value = {smoke = 32, else = 64}}
[[tasks]]
name = "short"
settings = ["data.max_length=16"]
[[tasks]]
name = "long"
suffix = "-long"
settings = ["data.max_length={longest}"]
variables = {side = 4}
[[rows]]
name = "plain"
published = {loss = 0.5}
[[rows]]
name = "deep"
tasks = ["long"]
settings = ["{deep}", "model.heads=2"]
fixed = ["model.head_dim={side}"]
[[measurements]]
kind = "evaluation"
tasks = ["long"]
columns = ["loss"]
[[measurements]]
name = "lengths"
kind = "sweep"
first_of_line = true
from = 16
to = "{longest}"
arguments = ["bench", "{x}"]
columns = [{name = "ms_{x}", label = "ms at {x}", at = "{x}", print_at = "{longest}"}]
)";

constexpr char kConfig[] = "[model]\ntype = \"sequence\"\n[data]\ndataset = \"copy\"\n";

struct Folder {
  test::TempDir dir;
  ReproductionOptions options = {};

  Folder() { test::write_file(dir / "copy.toml", std::string(kConfig)); }
  TableFile write(const std::string& text, const std::string& name = "sweep.toml") {
    test::write_file(dir / name, text);
    return read_table_file((dir / name).string(), dir / "configs");
  }
  std::string find_error(const std::string& text) {
    try {
      ReproductionOptions used = options;
      select_rows(make_table(write(text), used), used);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

const std::string kRow =
    "[[rows]]\nname = \"a\"\nfixed = [\"model.type=sequence\", \"data.dataset=copy\", "
    "\"train.steps=1\"]\n";

}  // namespace

TEST_CASE("rows of a table file have the settings of the table, the task and the row, and its variables") {
  Folder folder;
  const TableFile file = folder.write(kTasks);
  const Table table = make_table(file, folder.options);
  CHECK(table.name == "sweep");
  CHECK(table.title == "A sweep of linear");
  CHECK(table.notes == Words{"Sequences have 16 symbols."});
  CHECK(table.seeds == std::vector<int64_t>{3, 4});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].name == "plain");
  CHECK(table.rows[1].name == "plain-long");
  CHECK(table.rows[1].line == "plain");
  CHECK(table.rows[1].settings == Words{"train.steps=2", "data.max_length=32"});
  CHECK(table.rows[1].published.at("loss") == 0.5);
  const Row& deep = table.rows[2];
  CHECK(deep.settings ==
        Words{"train.steps=2", "data.max_length=32", "model.layers=3", "model.norm=pre", "model.heads=2"});
  CHECK(fill_texts(deep.fixed, deep.variables) == Words{"model.attention=linear", "model.head_dim=4"});
  CHECK(table.measurements[0].name == "evaluation");
  CHECK(table.measurements[0].row_names == Words{"plain-long", "deep-long"});
  CHECK(table.measurements[1].row_names == Words{"plain", "deep-long"});
  const std::vector<Column>& columns = table.measurements[1].columns;
  REQUIRE(columns.size() == 2);
  CHECK(columns[1].label == "ms at 32");
  CHECK(columns[1].at == 32);
  CHECK_FALSE(columns[0].printed);
  CHECK(columns[1].printed);
  CHECK(select_rows(table, folder.options).size() == 3);

  ReproductionOptions paper{.scale = "paper", .overrides = {.config_settings = {"measure.longest=16"}}};
  const Table small = make_table(file, paper);
  CHECK(small.rows[1].settings == Words{"train.steps=2", "train.steps=9", "data.max_length=16"});
  CHECK(small.measurements[1].sweep == std::vector<int64_t>{16});
  CHECK(paper.overrides.config_settings.empty());
  CHECK(paper.all_config_settings == Words{"measure.longest=16"});
}

TEST_CASE("a table file that extends another one replaces its entries and single variables") {
  Folder folder;
  folder.write(kTasks);
  const TableFile file = folder.write(
      "extends = \"sweep.toml\"\ntitle = \"More\"\nmeasurements = []\n[variables]\nkind = \"softmax\"\n",
      "more.toml");
  const Table table = make_table(file, folder.options);
  CHECK(table.title == "More");
  CHECK(table.rows.size() == 3);
  CHECK(table.rows[2].settings.size() == 5);
  CHECK(fill_texts(table.rows[0].fixed, table.rows[0].variables).back() == "model.attention=softmax");
  CHECK(table.measurements.empty());
  CHECK_THROWS_WITH_AS(folder.write("extends = \"self.toml\"", "self.toml"),
                       doctest::Contains("extend each other"), ConfigError);
}

TEST_CASE("errors of a table file name the file and the key") {
  Folder folder;
  const std::pair<std::string, std::string> cases[] = {
      {"title = 5\n" + kRow, ""},  // a number is also a text
      {"titel = \"a\"\n" + kRow, "table: unknown key \"titel\"; did you mean \"title\"?"},
      {"notes = 5\n" + kRow, "notes: expected a list"},
      {"title = \"a\"", "rows: expected at least one row"},
      {"rows = 5", "rows: expected a list of tables"},
      {kRow + kRow, "row \"a\": the name occurs twice"},
      {"[[rows]]\nname = \"a b\"", "row \"a b\": expected a name without spaces"},
      {"[[rows]]\nname = \"a\"\nconfig = \"none.toml\"", "there is no config "},
      {"[[rows]]\nname = \"a\"\npublished = {loss = \"x\"}", "published.loss: expected a number"},
      {kRow + "[[measurements]]\nname = \"x\"", "`kind` is missing"},
      {kRow + "[[measurements]]\nkind = \"metrics\"\nrows = [\"b\"]", "unknown row \"b\""},
      {kRow + "[[measurements]]\nkind = \"metrics\"\ntasks = [\"b\"]", "unknown task \"b\""},
      {kRow + "[[rows]]\nattention_kinds = \"some\"", "attention_kinds: expected"},
      {kRow + "[[measurements]]\nkind = \"evalation\"", "did you mean \"evaluation\"?"},
      {kRow + "[[measurements]]\nkind = \"evaluation\"\nchekpoint = \"best\"", "unknown key \"chekpoint\""},
      {kRow + "[[measurements]]\nkind = \"evaluation\"\nsettings = 5", "settings: expected a list"},
      {kRow + "[[measurements]]\nkind = \"evaluation\"\nsettings = [\"model.layers={deep}\"]",
       "unknown variable {deep}"},
      {kRow + "[[measurements]]\nkind = \"sweep\"\nfrom = 8\nto = 4", "to = 4: expected at least 8"},
      {kRow + "[[measurements]]\nkind = \"metrics\"\ncolumns = [{name = \"a\", reduce = \"mean\"}]",
       "reduce: unknown value \"mean\""},
      {kRow + "fixed = 5", "sweep.toml:4:"},
  };
  for (const auto& [text, error] : cases) {
    CAPTURE(text);
    const std::string found = folder.find_error(text);
    CHECK_MESSAGE(found.find(error) != std::string::npos, found);
    CHECK(found.empty() == error.empty());
  }
}

TEST_CASE("every table of configs/tables is valid at every scale") {
  const std::filesystem::path configs = std::string(SOURCE_DIR) + "/configs";
  for (const std::string& name : list_table_names(configs))
    for (const std::string& scale : list_table_scales()) {
      CAPTURE(name);
      CAPTURE(scale);
      ReproductionOptions options{.scale = scale, .config_folder = configs, .device = "cuda"};
      const TableFile file = read_table_file(name, configs);
      CHECK(!file.summary().empty());
      const Table table = make_table(file, options);
      CHECK(select_rows(table, options).size() == table.rows.size());
      CHECK(table.title.find('{') == std::string::npos);
      for (const std::string& note : table.notes) CHECK(note.find('{') == std::string::npos);
      for (const Measurement& measurement : table.measurements) CHECK(!measurement.row_names.empty());
    }
}
