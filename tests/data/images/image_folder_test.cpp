#include "data/images/image_folder.h"

#include <doctest/doctest.h>

#include <set>

#include "core/system/log.h"
#include "data/dataset_kind.h"
#include "data/images/png.h"
#include "tests/data/images/picture_files.h"
#include "tests/data/support.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

class QuietLog {
 public:
  QuietLog() { set_log_level(LogLevel::error); }
  ~QuietLog() { set_log_level(LogLevel::info); }
};

// Writes `count` pictures into three subfolders. All samples of picture i have the value i.
void write_pictures(const fs::path& folder, int count) {
  for (int i = 0; i < count; ++i) {
    const fs::path path = folder / ("class" + std::to_string(i % 3)) / (std::to_string(i) + ".png");
    fs::create_directories(path.parent_path());
    write_png(path, Tensor::full({5 + i % 3, 6, 3}, i, DType::uint8));
  }
}

std::set<double> colours(const ImageSet& set) {
  const auto values = set.pixels.to_vector();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("a folder of pictures is divided into splits by the hashes of paths") {
  const QuietLog quiet;
  const TempDir dir;
  write_pictures(dir.path(), 40);
  ImageFolderOptions options{
      .path = dir.path().string(), .valid_share = 0.1, .test_share = 0.2, .image_size = 4};
  std::set<double> all;
  for (const auto& [split, count] : {std::pair{"train", 28}, {"valid", 4}, {"test", 8}}) {
    const ImageSet set = load_image_folder(split, options);
    CHECK(set.pixels.shape() == Shape{count, 48});
    for (const double colour : colours(set)) CHECK(all.insert(colour).second);
    CHECK(load_image_folder(split, options).pixels.to_vector() == set.pixels.to_vector());
  }
  CHECK(all.size() == 40);
  options.limit = 5;
  CHECK(load_image_folder("train", options).pixels.size(0) == 5);
  CHECK_THROWS_AS(load_image_folder("tset", options), ConfigError);
  const DatasetKind& kind = find_dataset_kind("images");
  const OptionValues values =
      complete_options(kind.options, {{"path", dir.path().string()}, {"image_size", int64_t{4}}});
  const DatasetInfo info = kind.get_info(values, {});
  CHECK(kind.make(values, {})->info() == info);
  CHECK(info.length == 47);
}

TEST_CASE("valid_path and test_path replace the shares") {
  const QuietLog quiet;
  const TempDir dir;
  write_pictures(dir / "a", 10);
  write_pictures(dir / "b", 3);
  const ImageFolderOptions options{.path = (dir / "a").string(),
                                   .test_path = (dir / "b").string(),
                                   .valid_share = 0,
                                   .test_share = 0.5,
                                   .image_size = 2,
                                   .channels = 1};
  CHECK(load_image_folder("train", options).pixels.shape() == Shape{10, 4});
  CHECK(load_image_folder("test", options).pixels.shape() == Shape{3, 4});
}

TEST_CASE("bad files are named and left out, or refused") {
  const QuietLog quiet;
  const TempDir dir;
  write_pictures(dir.path(), 6);
  write_file(dir / "broken.png", std::string("\x89PNG\r\n\x1a\n broken"));
  write_file(dir / "notes.txt", std::string("not a picture"));
  write_png(dir / "tiny.png", Tensor::full({2, 9, 3}, 1, DType::uint8));
  fs::create_directory_symlink(dir.path(), dir / "loop");
  fs::create_symlink(dir / "nowhere.png", dir / "dangling.png");
  fs::create_directory_symlink(dir / "class0", dir / "again");
  ImageFolderOptions options{.path = dir.path().string(), .valid_share = 0, .test_share = 0, .image_size = 4};
  const PicturePathList list = list_picture_paths(options.path);
  CHECK(list.paths.size() == 6 + 2 + 2);  // 6 valid and 2 bad pictures, and 2 through the link to class0
  REQUIRE(list.faults.size() == 2);
  CHECK(contains(list.faults[0], "dangling.png: is a link without a target"));
  CHECK(contains(list.faults[1], "loop: is a link to a folder that contains it"));
  CHECK(load_image_folder("train", options).pixels.size(0) == 8);
  options.reject_faulty_files = true;
  const std::string text = message_of<DataError>([&] { load_image_folder("train", options); });
  for (const char* part :
       {"4 files cannot be used", "broken.png: expected a PNG image",
        "tiny.png: has 9 x 2 pixels, expected at least 4 x 4 (ImageFolderOptions::image_size)",
        "dangling.png", "loop"})
    CHECK_MESSAGE(contains(text, part), part);
}

TEST_CASE("pictures with other extensions are read or named") {
  const QuietLog quiet;
  const TempDir dir;
  write_pictures(dir.path(), 3);
  // The contents determine the format.
  for (const char* name : {"a.jfif", "b.JPE", "c.jif"})
    write_png(dir / name, Tensor::full({5, 5, 3}, 1, DType::uint8));
  const std::string heic(
      "\0\0\0\x18"
      "ftypheic",
      12),
      avif(
          "\0\0\0\x1c"
          "ftypavif",
          12);
  write_file(dir / "d.heic", heic);
  write_file(dir / "e.avif", avif);
  write_file(dir / "f.jp2", std::string("\0\0\0\x0cjP  ", 8));
  write_file(dir / "g.txt", std::string("text"));
  ImageFolderOptions options{.path = dir.path().string(), .valid_share = 0, .test_share = 0, .image_size = 4};
  CHECK(load_image_folder("train", options).pixels.size(0) == 6);
  options.reject_faulty_files = true;
  const std::string text = message_of<DataError>([&] { load_image_folder("train", options); });
  for (const char* part : {"3 files cannot be used", "d.heic: is a HEIC file; convert it to PNG or JPEG",
                           "e.avif: is an AVIF file; convert it to PNG or JPEG",
                           "f.jp2: is neither a PNG nor a JPEG file; convert it to PNG or JPEG"})
    CHECK_MESSAGE(contains(text, part), part);
}

TEST_CASE("missing and empty folders are errors") {
  const TempDir dir;
  CHECK(
      contains(message_of<DataError>([&] { load_image_folder("train", {.path = (dir / "none").string()}); }),
               "none: is not a folder"));
  CHECK(contains(message_of<DataError>([&] { load_image_folder("train", {.path = dir.path().string()}); }),
                 "no PNG or JPEG files for the split \"train\"; found 0 pictures in all"));
}

TEST_CASE("the error for a folder without usable pictures contains the reasons") {
  const QuietLog quiet;
  const TempDir dir;
  const ImageFolderOptions options{
      .path = dir.path().string(), .valid_share = 0, .test_share = 0, .image_size = 4};
  const auto error = [&] { return message_of<DataError>([&] { load_image_folder("train", options); }); };
  fs::create_symlink("missing.png", dir / "link.png");
  CHECK(contains(error(), "found 0 pictures in all; 1 cannot be used:\n"));
  CHECK(contains(error(), "link.png: is a link without a target"));
  write_file(dir / "broken.png", std::string("no picture"));
  write_png(dir / "small.png", Tensor::full({2, 6, 3}, 1, DType::uint8));
  CHECK(contains(error(), "no picture of the split \"train\" is usable; 3 cannot be used:\n"));
  CHECK(contains(error(), "broken.png"));
  CHECK(contains(error(), "small.png: has 6 x 2 pixels, expected at least 4 x 4 ("));
}

TEST_CASE("a cache of decoded images is used until a picture changes, and a damaged cache is replaced") {
  const QuietLog quiet;
  const TempDir dir;
  write_pictures(dir / "p", 9);
  write_png(dir / "p" / "tiny.png", Tensor::full({2, 2, 3}, 1, DType::uint8));
  const ImageFolderOptions options{.path = (dir / "p").string(),
                                   .valid_share = 0,
                                   .test_share = 0,
                                   .image_size = 4,
                                   .cache_folder = (dir / "cache").string()};
  const std::vector<double> first = load_image_folder("train", options).pixels.to_vector();
  REQUIRE(std::distance(fs::directory_iterator(dir / "cache"), {}) == 1);
  const fs::path cache = fs::directory_iterator(dir / "cache")->path();
  // A cache with a changed byte does not match its checksum, so the cache is computed and written again.
  std::string text = read_file(cache);
  CHECK(load_image_folder("train", options).pixels.to_vector() == first);
  text[text.size() - 30] = static_cast<char>(text[text.size() - 30] ^ 1);
  write_file(cache, text);
  CHECK(load_image_folder("train", options).pixels.to_vector() == first);
  CHECK(read_file(cache) != text);
  write_png(dir / "p" / "class0" / "0.png", Tensor::full({7, 7, 3}, 200, DType::uint8));
  CHECK(load_image_folder("train", options).pixels.to_vector() != first);
  CHECK(std::distance(fs::directory_iterator(dir / "cache"), {}) == 2);

  ImageFolderOptions unusable = options;
  unusable.cache_folder = (dir / "p/tiny.png").string();
  CHECK(contains(message_of<ConfigError>([&] { load_image_folder("train", unusable); }),
                 "tiny.png: cannot write to the folder of the image cache"));
}
