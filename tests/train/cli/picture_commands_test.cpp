// Tests of commands that read a folder of pictures, with the config configs/images/small.toml and small
// images. One of the tests checks the errors for missing folders.
#include <doctest/doctest.h>

#include "data/images/png.h"
#include "ops/kernels/linear.h"
#include "tests/support/temp_dir.h"
#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

Words train_words(const fs::path& pictures, const fs::path& run, const Words& sets = {}) {
  Words words = {"train",     std::string(SOURCE_DIR) + "/configs/images/small.toml",
                 "--run-dir", run.string(),
                 "--threads", "1",
                 "--set",     "data.path=" + pictures.string()};
  for (const char* set : {"data.image_size=8", "data.batch_size=2", "train.steps=1", "model.head_dim=8",
                          "model.feedforward=8", "model.layers=2", "model.attention=local"})
    words.insert(words.end(), {"--set", set});
  for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
  return words;
}

void write_pictures(const fs::path& folder) {
  fs::create_directories(folder);
  for (int64_t i = 0; i < 40; ++i)
    write_png(folder / (std::to_string(i) + ".png"),
              Tensor::full({9, 10, 3}, 6.0 * static_cast<double>(i), DType::uint8));
}

}  // namespace

TEST_CASE("configs/images/small.toml trains on images of 8 x 8, and moved pictures cause a warning") {
  const TempDir dir;
  write_pictures(dir / "pictures");
  const auto trained = run_program(train_words(dir / "pictures", dir / "run"));
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const Words draw{"generate", (dir / "run").string(),  "--count", "1", "--quiet",
                   "--out",    (dir / "a.png").string()};
  CHECK(run_program(draw).err.empty());
  fs::rename(dir / "pictures", dir / "moved");
  const auto moved = run_program(draw);
  CHECK(moved.code == 0);
  CHECK(contains(moved.err, "warning: data.path = \"" + (dir / "pictures").string() +
                                "\" was not found, so images begin with the byte 0"));
}

TEST_CASE("the images of a bfloat16 model do not depend on the batch size") {
  const TempDir dir;
  write_pictures(dir / "pictures");
  REQUIRE(run_program(train_words(dir / "pictures", dir / "run",
                                  {"run.precision=bfloat16", "model.head_dim=16", "train.steps=9"}))
              .code == 0);
  Words modes = {"recurrent"};
  if (!cpu::get_gemm_library_name().starts_with("oneDNN")) modes.push_back("recompute");
  for (const std::string& mode : modes) {
    const auto draw = [&](const std::string& batch) {
      const std::string path = (dir / (mode + batch + ".png")).string();
      const auto result =
          run_program({"generate", (dir / "run").string(), "--count", mode == "recurrent" ? "64" : "8",
                       "--batch", batch, "--mode", mode, "--out", path});
      CAPTURE(result.err);
      CHECK(result.code == 0);
      return read_file(path);
    };
    const std::string image = draw("64");
    for (const char* batch : {"1", "4", "5", "6"}) CHECK(draw(batch) == image);
  }
}

TEST_CASE("the error for a missing folder of pictures names the config key") {
  const TempDir dir;
  write_pictures(dir / "pictures");
  fs::create_directories(dir / "empty");
  const auto error = [&](const fs::path& pictures, const Words& sets) {
    const auto result = run_program(train_words(pictures, dir / "run", sets));
    CHECK(result.code == 3);
    return result.err;
  };
  CHECK(contains(error(dir / "none", {}), "data.path: " + (dir / "none").string() + ": is not a folder"));
  CHECK(contains(error(dir / "pictures", {"data.test_path=" + (dir / "empty").string()}),
                 "data.test_path: " + (dir / "empty").string() + ": no PNG or JPEG files"));
}
