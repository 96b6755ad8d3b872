#include "train/metrics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/support/file_size_limit.h"
#include "tests/train/config/config_fixture.h"

using namespace tapeformer;

TEST_CASE("metrics: a record is a line with its fields in order, and is read back exactly") {
  TempFolder folder;
  const std::string path = folder.path("metrics.jsonl");
  MetricsWriter writer{Folder(folder.path(""))};
  writer.write({{"step", int64_t{1}}, {"split", "train"}, {"loss_nats", 0.1 + 0.2}});
  CHECK(read_file(path) == "{\"step\":1,\"split\":\"train\",\"loss_nats\":0.30000000000000004}\n");
  writer.write({{"step", int64_t{2}}, {"grad_norm", std::numeric_limits<double>::infinity()}});
  MetricsWriter(Folder(folder.path(""))).write({{"step", int64_t{3}}});

  const auto records = read_metrics(path);
  REQUIRE(records.size() == 3);
  CHECK(std::get<double>(records[0][2].second) == 0.1 + 0.2);
  CHECK(std::get<std::string>(records[0][1].second) == "train");
  CHECK(std::isnan(get_metric_number(records[1], "grad_norm", 0)));
  CHECK(get_metric_number(records[2], "step", -1) == 3);
  CHECK(get_metric_number(records[2], "loss_nats", -1) == -1);
}

TEST_CASE("metrics: a resume removes only later steps and incomplete lines") {
  TempFolder folder;
  const std::string kept = "{\"step\":1}\n{\"note\":\"é\"}\n{\"step\":10,\"x\":1.50}\n";
  const auto path = folder.write("metrics.jsonl", kept + "{\"step\":11}\nnonsense\n{\"step\":12");
  const Folder run(folder.path(""));
  drop_metrics_after(run, 10, true);
  CHECK(read_file(path) == kept);
  MetricsWriter(Folder(folder.path(""))).write({{"step", int64_t{11}}});
  CHECK(read_metrics(path).size() == 4);
  std::filesystem::remove(path);
  drop_metrics_after(run, 10, true);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("metrics: an invalid line is an error with its number, and an incomplete last line is skipped") {
  TempFolder folder;
  const auto path = folder.write("metrics.jsonl", "{\"step\":1}\n{\"step\":");
  CHECK(read_metrics(path).size() == 1);
  folder.write("metrics.jsonl", "{\"step\":1}\n{\"step\":\n");
  CHECK_THROWS_WITH_AS(read_metrics(path), (path + ":2: expected a JSON object").c_str(), DataError);
  CHECK_THROWS_AS(read_metrics(folder.path("none")), FileError);
}

TEST_CASE("metrics: records that do not fit on the disk wait in memory and are written later") {
  TempFolder folder;
  const std::string path = folder.path("metrics.jsonl");
  MetricsWriter writer{Folder(folder.path(""))};
  writer.write({{"step", int64_t{1}}});
  const std::string first = read_file(path);
  {
    const test::FileSizeLimit limit(first.size() + 5);
    writer.write({{"step", int64_t{2}}});
    writer.write({{"step", int64_t{3}}});
    CHECK(writer.pending_record_count() == 2);
    CHECK(writer.last_error() == "cannot write " + path + ": File too large");
    CHECK(read_file(path) == first);  // the file has no incomplete line
  }
  writer.flush();
  CHECK(writer.pending_record_count() == 0);
  CHECK(writer.last_error() == "");
  CHECK(read_file(path) == first + "{\"step\":2}\n{\"step\":3}\n");
}

TEST_CASE("metrics: a resume removes the evaluation of its step if the checkpoint was saved before it") {
  TempFolder folder;
  const std::string training = "{\"step\":10,\"split\":\"train\"}\n{\"step\":10,\"split\":\"epoch\"}\n";
  const std::string earlier = "{\"step\":5,\"split\":\"test\"}\n";
  const std::string whole = earlier + training + "{\"step\":10,\"split\":\"test\"}\n";
  const auto path = folder.write("metrics.jsonl", whole);
  const Folder run(folder.path(""));
  drop_metrics_after(run, 10, true);
  CHECK(read_file(path) == whole);
  drop_metrics_after(run, 10, false);
  CHECK(read_file(path) == earlier + training);
}
