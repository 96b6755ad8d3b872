// Tests of `tapeformer report`: the page for small runs, errors for damaged files, and the page in a browser.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "core/system/files.h"
#include "data/images/png.h"
#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

void train(const fs::path& run, const std::string& lr) {
  Words words = {"train",     std::string(SOURCE_DIR) + "/configs/copy/linear.toml",
                 "--run-dir", run.string(),
                 "--threads", "1"};
  for (const char* set : {"train.steps=6", "train.log_every=2", "train.eval_every=3", "data.batch_size=2",
                          "data.eval_limit=2", "model.layers=1", "model.head_dim=2", "model.feedforward=8"})
    words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--set", "optimizer.lr=" + lr});
  REQUIRE(run_program(words).code == 0);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Returns the path of an installed Chromium or Chrome, or "" if there is none.
std::string browser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (fs::exists(path)) return path;
  return "";
}

}  // namespace

TEST_CASE("report creates the folder of its page and separates problems by semicolons") {
  const TempDir dir;
  train(dir / "a", "0.001");
  write_file(dir / "a/config.toml", std::string("[run]\nnmae = 1\n"));
  std::ofstream(dir / "a/metrics.jsonl", std::ios::app) << "{damaged\n";
  const fs::path page = dir / "new/folder/report.html";
  const auto result = run_program({"report", (dir / "a").string(), "--out", page.string()});
  CHECK(result.code == 0);
  CHECK(fs::is_regular_file(page));
  const auto problems =
      parse_json_output(run_program({"report", (dir / "a").string(), "--out", page.string(), "--json"}));
  const auto list = problems["runs"][0]["problems"].get<Words>();
  REQUIRE(list.size() == 2);
  CHECK(contains(result.out, list[0] + "; " + list[1]));
  write_file(dir / "file", std::string());
  const auto refused =
      run_program({"report", (dir / "a").string(), "--out", (dir / "file/report.html").string()});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "file"));
}

TEST_CASE("report writes one page with the curves, samples and config differences of two runs") {
  const TempDir dir;
  train(dir / "a", "0.001");
  train(dir / "b", "0.01");
  fs::create_directories(dir / "a/samples");
  write_png(dir / "a/samples/generate.png", Tensor::full({8, 8, 3}, 200, DType::uint8));
  const fs::path page = dir / "report.html";
  const auto report = parse_json_output(
      run_program({"report", (dir / "a").string(), (dir / "b").string(), "--out", page.string(), "--json"}));
  CHECK(report["runs"][1]["records"] == 3 + 2);
  const std::string html = read_file(page);
  CHECK(count(html, "<svg") >= 7);
  CHECK(contains(html, "seconds of training"));
  CHECK(contains(html, "data:image/png;base64,iVBOR"));
  CHECK(contains(html, "<tr class=\"marked\"><td>optimizer.lr</td><td>0.001</td><td>0.01</td></tr>"));
  CHECK(!contains(html, "<tr class=\"marked\"><td>model.layers"));
  CHECK(!contains(html, "src=\"http"));
  CHECK(!contains(html, "refresh"));
}

TEST_CASE("report does not replace a file of a run") {
  const TempDir dir;
  train(dir / "a", "0.001");
  fs::create_directories(dir / "a/samples");
  write_png(dir / "a/samples/s.png", Tensor::full({4, 4, 3}, 9, DType::uint8));
  fs::create_symlink(dir / "a/metrics.jsonl", dir / "link.html");
  const std::string run = (dir / "a").string();
  for (const fs::path& out : {dir / "a/config.toml", dir / "link.html", dir / "a/samples/s.png",
                              dir / "a/checkpoints/latest/model.safetensors"}) {
    const std::string before = read_file(out);
    const auto refused = run_program({"report", run, "--out", out.string()});
    CHECK(refused.code == 2);
    CHECK_MESSAGE(contains(refused.err, out.string() + ": is an input of the command"), refused.err);
    CHECK(read_file(out) == before);
  }
  for (int i = 0; i < 2; ++i)
    CHECK(run_program({"report", run, "--out", (dir / "a/report.html").string()}).code == 0);
}

TEST_CASE("report names damaged lines of metrics.jsonl and shows all other lines") {
  const TempDir dir;
  train(dir / "run", "0.001");
  std::ofstream(dir / "run/metrics.jsonl", std::ios::app) << "{\"step\": 5, \n[1]\n\x00\xff\n";
  const fs::path page = dir / "report.html";
  const auto result = run_program({"report", (dir / "run").string(), "--out", page.string()});
  CHECK(result.code == 0);
  for (const char* line : {"metrics.jsonl:6", "metrics.jsonl:7"}) {
    CHECK(contains(result.err, line));
    CHECK(contains(read_file(page), line));
  }
  CHECK(contains(read_file(page), "<polyline"));
  fs::remove(dir / "run/metrics.jsonl");
  CHECK(run_program({"report", (dir / "run").string(), "--out", page.string()}).code == 0);
  CHECK(contains(read_file(page), "Damaged: "));
  const auto none = run_program({"report", (dir / "nowhere").string(), "--out", page.string()});
  CHECK(none.code == 3);
  CHECK(contains(none.err, "not a run directory"));
}

TEST_CASE("report escapes invalid UTF-8, and reports samples that are not PNG files") {
  const TempDir dir;
  const fs::path run = dir / "run\xff", page = dir / "report.html";
  fs::create_directories(run / "samples");
  write_file(run / "metrics.jsonl", std::string("{\"step\":1,\"split\":\"train\",\"loss_nats\":2}\n"));
  write_file(run / "samples/a.png", std::string("no picture"));
  CHECK(run_program({"report", run.string(), "--out", page.string()}).code == 0);
  const std::string html = read_file(page);
  CHECK(contains(html, "run\\xff"));
  CHECK(!contains(html, "\xff"));
  CHECK(!contains(html, "<img"));
  CHECK(contains(html, "a.png: not a PNG file"));
}

TEST_CASE("report --live ends when the run ends, and its last page does not reload itself") {
  const TempDir dir;
  train(dir / "run", "0.001");
  const fs::path page = dir / "report.html";
  pid_t live = 0;
  {
    const FolderLock training((dir / "run").string());  // the lock of a process that trains in the folder
    live = start_program(
        {"report", (dir / "run").string(), "--out", page.string(), "--live", "--interval", "0.1"},
        (dir / "out").string(), (dir / "err").string());
    for (int i = 0; i < 200 && !fs::exists(page); ++i) usleep(50000);
    CHECK(contains(read_file(page), "http-equiv=\"refresh\""));
  }
  CHECK(wait_for_exit_code(live) == 0);
  CHECK(!contains(read_file(page), "http-equiv=\"refresh\""));
}

TEST_CASE("a browser shows the page of report") {
  if (browser().empty()) {
    MESSAGE("skipped: no chromium");
    return;
  }
  const TempDir dir;
  train(dir / "run", "0.001");
  const fs::path page = dir / "report.html", picture = dir / "page.png", dom = dir / "dom";
  REQUIRE(run_program({"report", (dir / "run").string(), "--out", page.string()}).code == 0);
  const std::string command =
      browser() + " --headless --no-sandbox --disable-gpu --user-data-dir=" + (dir / "profile").string() +
      " --window-size=1200,1600 --screenshot=" + picture.string() + " file://" + page.string() +
      " 2>/dev/null >" + dom.string();
  REQUIRE(std::system(command.c_str()) == 0);
  const Tensor image = read_png(picture);
  CHECK(image.size(1) == 1200);
  // Counts white pixels, which are the background, and pixels in the colour of the first curve (#0072B2).
  int64_t white = 0, blue = 0;
  const uint8_t* const pixels = image.data<uint8_t>();
  const int64_t channels = image.size(2);
  REQUIRE(channels == 3);
  for (int64_t i = 0; i < image.size(0) * image.size(1); ++i) {
    const uint8_t* const p = pixels + i * channels;
    white += p[0] == 255 && p[1] == 255 && p[2] == 255;
    blue += p[0] < 60 && p[1] > 80 && p[1] < 150 && p[2] > 140;
  }
  CHECK(white > image.size(0) * image.size(1) / 2);
  CHECK(blue > 500);
}
